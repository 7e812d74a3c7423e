"""The server of views: whom it answers, what it answers, and a trace that grows meanwhile."""

import http.client
import json
import socket
import threading
import zlib
from urllib.parse import quote

import pytest

from happened.trace import TraceWriter
from happened.view.server import Followed, ViewServer
from view.chromium import Tab
from view.unpacking import Unpacked


def chain(process, first, last, to):
    """Sends of one process, each of whose messages the other delivers."""
    for k in range(first, last + 1):
        yield {"process": process, "seq": k, "kind": "send", "message": f"{process}:{k}", "to": [to]}


def deliveries(process, first, last, of):
    for k in range(first, last + 1):
        yield {"process": process, "seq": k, "kind": "deliver", "message": f"{of}:{k}"}


@pytest.fixture
def writer(tmp_path):
    with TraceWriter(tmp_path / "trace") as writer:
        for row in (*chain("p", 1, 30, "q"), *deliveries("q", 1, 30, "p")):
            writer.append(row)
        writer.flush()
        yield writer


@pytest.fixture
def server(writer, tmp_path):
    with ViewServer(Followed(str(tmp_path / "trace"))) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()


def ask(server, path, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.putrequest(method, path, skip_host=True)
        given = {"Host": server.hosts[0], "X-Happened-Token": server.token} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        for name, value in given.items():
            if value is not None:
                connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())
    finally:
        connection.close()


def scene(server, query):
    status, body, _ = ask(server, f"/scene?{query}")
    assert status == 200, body
    return Unpacked(zlib.decompress(body))


def test_who_brings_the_token_gets_the_page_and_scenes(server):
    status, body, headers = ask(server, f"/?token={server.token}", X_Happened_Token=None)
    assert status == 200 and b"<canvas" in body
    assert "script-src 'sha256-" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["Cache-Control"] == "no-store"
    assert len(scene(server, "from=1&to=9").events) == 60
    past = scene(server, f"past={quote('q#7')}").events
    assert set(past) == {(p, k) for p in "pq" for k in range(1, 8)}
    assert json.loads(ask(server, f"/reach?event={quote('q#7')}")[1]) == {"past": 13, "future": 23}
    path = json.loads(ask(server, f"/path?first={quote('p#3')}&last={quote('q#9')}")[1])
    assert [path[0]["event"], path[-1]["event"]] == ["p#3", "q#9"]
    assert json.loads(ask(server, f"/path?first={quote('q#3')}&last={quote('p#9')}")[1]) is None


@pytest.mark.parametrize(
    "headers",
    [
        {"X_Happened_Token": None},
        {"X_Happened_Token": "x"},
        {"X_Happened_Token": "ä"},
        {"Host": "attacker.example"},
        {"Host": None},
        {"Host": "127.0.0.1"},
        {"Origin": "http://attacker.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
    ids=str,
)
def test_others_are_refused(server, headers):
    headers = {k: v.format(port=server.port) if v else v for k, v in headers.items()}
    for path in ("/scene", "/status", "/reach?event=p%231"):
        status, body, _ = ask(server, path, **headers)
        assert status == 403 and len(body) < 200


@pytest.mark.parametrize(
    ("name", "value"), [("Host", "attacker.example"), ("Origin", "http://attacker.example")]
)
def test_who_names_two_hosts_or_origins_is_refused(server, name, value):
    good = {"Host": server.hosts[0], "Origin": f"http://{server.hosts[0]}", "X-Happened-Token": server.token}
    lines = [f"{key}: {text}\r\n" for key, text in (*good.items(), (name, value))]
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(f"GET /status HTTP/1.1\r\n{''.join(lines)}\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 403")


def test_a_page_that_does_not_read_its_answer_keeps_no_other_waiting(server, monkeypatch):
    monkeypatch.setattr(server, "places", threading.BoundedSemaphore(1))
    monkeypatch.setitem(
        server.answers, "/scene", lambda query: ("application/octet-stream", bytes(50_000_000))
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        headers = f"Host: {server.hosts[0]}\r\nX-Happened-Token: {server.token}\r\n"
        connection.sendall(f"GET /scene HTTP/1.1\r\n{headers}\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
        monkeypatch.setattr("happened.view.server.PATIENCE", 1)
        assert ask(server, "/status")[0] == 200


@pytest.mark.parametrize("token", ["", "?token=", "?token=x", "?token=x&token=y"])
def test_a_page_without_the_token_is_refused(server, token):
    assert ask(server, f"/{token}", X_Happened_Token=None)[0] == 403
    assert server.token.encode() not in ask(server, f"/{token}", X_Happened_Token=None)[1]


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd", "/scene/../../etc/passwd", "//etc/passwd", "/%2e%2e/etc/passwd", "/scene%00",
        "/.", "/trace", "/assets/app.js", "http://attacker.example/scene", "http://[/scene", "/scene/",
        "\\scene", "/SCENE",
    ],
)  # fmt: skip
def test_there_are_no_paths_but_those_of_the_table(server, path):
    status, body, _ = ask(server, path)
    assert status in (400, 404) and b"root:" not in body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD"])
def test_nothing_but_reading(server, method):
    assert ask(server, "/scene", method)[0] == 501


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("from=x", 400), ("from=1e9", 400), ("to=" + "9" * 40, 400), ("past=p", 400), ("past=p%2399", 404),
        ("past=nobody%231", 404), ("computation=99", 200), ("computation=-1", 200), ("from=9&to=1", 200),
    ],
)  # fmt: skip
def test_questions_that_make_no_sense(server, query, expected):
    assert ask(server, f"/scene?{query}")[0] == expected
    many = "&".join(f"a{k}=1" for k in range(99))
    assert ask(server, f"/scene?{many}")[0] == 400


def test_idle_connections_are_bounded(server, monkeypatch):
    monkeypatch.setattr("happened.view.server.MOST_CONNECTIONS", threading.active_count() + 3)
    idle = [socket.create_connection(("127.0.0.1", server.port), timeout=30) for _ in range(12)]
    closed = [each for each in idle[6:] if each.recv(1) == b""]  # the others wait for a request
    assert len(closed) == 6
    for each in idle:
        each.close()


def test_a_trace_that_grows_is_read_again_and_a_damaged_one_is_not(server, writer, tmp_path, monkeypatch):
    def status():
        return json.loads(ask(server, f"/status?version={version}")[1])

    version = server.followed.version
    assert status() == {"version": version, "trouble": ""}
    for row in (*chain("p", 31, 40, "q"), *deliveries("q", 31, 40, "p")):
        writer.append(row)
    writer.flush()
    monkeypatch.setattr(server.followed, "_next", 0)
    said = status()
    assert said["version"] != version
    assert said["about"]["computations"][0]["events"] == 80
    version = said["version"]
    assert len(scene(server, "from=1&to=9").events) == 80
    (tmp_path / "trace" / "part-999999.parquet").write_bytes(b"not parquet")
    monkeypatch.setattr(server.followed, "_next", 0)
    assert "cannot be read" in status()["trouble"]
    assert len(scene(server, "from=1&to=9").events) == 80


def test_a_page_follows_a_trace_that_grows(server, writer, chromium, monkeypatch):
    monkeypatch.setattr("happened.view.server.POLL", 50)
    tab = Tab(chromium).open(server.address)
    assert len(tab.ask("happened.events()")) == 60
    tab.ask("happened.select('p#3')")
    for row in (*chain("p", 31, 35, "q"), *deliveries("q", 31, 35, "p")):
        writer.append(row)
    writer.flush()
    server.followed._next = 0
    tab.page.wait_for_selector("html[data-events='70']", state="attached")
    assert "p#35" in tab.ask("happened.events()")
    assert tab.ask("happened.future()")[-1] == "q#35"  # what was selected still is
    assert tab.errors == []
    assert all(url.startswith(f"http://{server.hosts[0]}/") for url in tab.requests)
    tab.context.close()


def test_a_trace_without_events_yet_is_waited_for(tmp_path, chromium, monkeypatch):
    monkeypatch.setattr("happened.view.server.POLL", 50)
    with TraceWriter(tmp_path / "trace", prefix="empty"):
        pass
    with ViewServer(Followed(str(tmp_path / "trace"))) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        assert b"no events yet" in ask(server, "/scene")[1]
        tab = Tab(chromium).open(server.address)
        assert "no events" in tab.page.text_content("#notice")
        with TraceWriter(tmp_path / "trace", prefix="p") as writer:
            writer.append(process="p", seq=1, kind="internal")
        tab.page.wait_for_selector("html[data-events='1']", state="attached")
        tab.context.close()
        server.shutdown()


def test_windows_of_a_large_computation_are_loaded_as_one_goes(writer, tmp_path, chromium, monkeypatch):
    monkeypatch.setattr("happened.view.server.MOST_EVENTS", 20)
    with ViewServer(Followed(str(tmp_path / "trace"))) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        tab = Tab(chromium).open(server.address)
        assert len(tab.ask("happened.events()")) <= 20
        tab.ask("happened.look(24, 28)")
        tab.page.wait_for_selector("html[data-window^='2']", state="attached")
        assert "p#26" in tab.ask("happened.events()") and "p#1" not in tab.ask("happened.events()")
        tab.ask("happened.select('q#26')")
        tab.page.get_by_text("4 after", exact=True).wait_for()
        assert "51 before" in tab.panel()
        tab.ask("happened.slice('past', 'q#26')")
        assert len(tab.ask("happened.events()")) <= 20
        assert tab.errors == []
        tab.context.close()
        server.shutdown()


def test_the_whole_trace_is_searched_and_not_only_the_window(writer, tmp_path, chromium, monkeypatch):
    monkeypatch.setattr("happened.view.server.MOST_EVENTS", 20)
    with ViewServer(Followed(str(tmp_path / "trace"))) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        status, body, _ = ask(server, f"/find?find={quote('message:p:2 kind:deliver')}")
        found = json.loads(body)
        names = ["q#2", *(f"q#{k}" for k in range(20, 30))]
        assert status == 200 and found["count"] == sum(found["columns"]) == len(names)
        assert [each["event"] for each in found["events"]] == names
        assert found["events"][0]["level"] == 3
        assert json.loads(ask(server, "/find?find=%20")[1])["count"] == 0
        tab = Tab(chromium).open(server.address)
        assert "q#27" not in tab.ask("happened.events()")
        tab.page.fill("#search", "message:p:27")
        tab.page.get_by_text("2 matching events in the whole trace. Enter").wait_for()
        assert tab.ask("happened.found()") == {"count": 2, "events": ["p#27", "q#27"]}
        tab.page.focus("#search")
        tab.page.keyboard.press("Enter")
        tab.page.wait_for_selector("html[data-window^='2']", state="attached")
        tab.page.locator("#live", has_text="p#27").wait_for(state="attached")
        tab.page.wait_for_timeout(400)  # one who looks at more than a window has the match nevertheless
        assert "q#27" in tab.ask("happened.inView()")
        tab.page.get_by_role("button", name="q#27").click()
        tab.page.locator("#live", has_text="q#27").wait_for(state="attached")
        assert tab.errors == []
        tab.context.close()
        server.shutdown()


def test_a_window_that_comes_late_does_not_replace_one_asked_for_after_it(
    writer, tmp_path, chromium, monkeypatch
):
    monkeypatch.setattr("happened.view.server.MOST_EVENTS", 20)
    with ViewServer(Followed(str(tmp_path / "trace"))) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        tab = Tab(chromium).open(server.address)
        tab.page.fill("#search", "message:p:27")
        tab.page.get_by_text("2 matching events in the whole trace. Enter").wait_for()
        scene, held, go_on = server.answers["/scene"], threading.Event(), threading.Event()

        def slow(query):
            if not held.is_set():
                held.set()
                assert go_on.wait(60)
            return scene(query)

        monkeypatch.setitem(server.answers, "/scene", slow)
        near = "p#1" in tab.ask("happened.events()")
        tab.ask("happened.look(14, 17)" if near else "happened.look(1, 3)")
        assert held.wait(60)
        tab.page.focus("#search")
        tab.page.keyboard.press("Enter")
        tab.page.locator("#live", has_text="p#27").wait_for(state="attached")
        with tab.page.expect_event("requestfinished"):
            go_on.set()
        assert "q#27" in tab.ask("happened.inView()")
        tab.context.close()
        server.shutdown()
