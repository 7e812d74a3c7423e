"""What goes wrong is told: in one line with its remedy, in numbers, to a listener, in the node's health."""

import asyncio
import logging
import subprocess
import sys

from netcluster import QUICK
from test_node import addresses, make, run, take, until

from happened.net import Limits, LinkChange, Node, SharedKey
from happened.net.identity import make_key
from happened.net.metrics import serve_metrics


def test_a_wrong_key_is_told_in_one_sentence_with_what_to_do(tmp_path, caplog):
    keys = {name: tmp_path / f"{name}.key" for name in "ab"}
    for path in keys.values():
        make_key(path)

    async def scenario():
        where = addresses("a", "b")
        limits = Limits(**{**QUICK, "linger": 0.1})
        a, b = (
            Node(name, peers=where, listen=where[name], guard=SharedKey(keys[name]), limits=limits)
            for name in "ab"
        )
        await asyncio.gather(a.start(), b.start())
        await until(lambda: "does not have our shared key" in caplog.text)
        await until(lambda: a.stats()["failures"].get("b", 0) + a.stats()["failures"].get("strangers", 0) > 1)
        assert not a.health().is_ready or not a._engine.outboxes[1]
        assert any(problem.startswith("no link to b") for problem in a.health().problems)
        await asyncio.gather(a.close(), b.close())

    with caplog.at_level(logging.WARNING):
        run(scenario())
    said = [record.getMessage() for record in caplog.records if "shared key" in record.getMessage()]
    assert said and all("give both the same key file" in each for each in said)


def test_warnings_are_on_stderr_if_the_application_configures_no_logging():
    code = (
        "import asyncio\n"
        "from happened.net import Limits, Node, Plaintext\n"
        "async def main():\n"
        "    peers = {'a': '127.0.0.1:0', 'b': '127.0.0.1:1'}\n"
        "    async with Node('a', peers=peers, guard=Plaintext(), limits=Limits(linger=0.0)) as node:\n"
        "        while not node.stats()['failures']: await asyncio.sleep(0.01)\n"
        "asyncio.run(main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("a: no link to b: ") and line.endswith("is it running, and is that its address?")


def test_health_and_listeners_tell_who_comes_and_goes(tmp_path):
    async def scenario():
        where = addresses("a", "b")
        changes = []
        a = make("a", where, tmp_path, {"outbox": 1000, "linger": 0.1})
        assert a.health() == (True, False, ("new",))
        a.on_link(changes.append)
        a.on_link(lambda change: 1 / 0)  # which must not end a connection
        await a.start()
        assert a.health().is_live and a.health().is_ready  # nothing is due to b yet
        await until(lambda: any(problem.startswith("no link to b: ") for problem in a.health().problems))
        await a.multicast(["b"], b"x" * 2000)
        assert not a.health().is_ready
        assert "has too much that is not acknowledged by b: multicasts wait" in a.health().problems
        b = make("b", where, tmp_path)
        await b.start()
        await take(b, 1)
        await until(lambda: a.health() == (True, True, ()))
        await b.close()
        await until(lambda: a.health().problems)
        ups = [change for change in changes if change.is_up]
        assert LinkChange("b", True, True, "") in ups
        assert any(change.peer == "b" and not change.is_up for change in changes)
        server = await serve_metrics(("127.0.0.1", 0), a.stats, node="a", health=a.health)
        port = server.sockets[0].getsockname()[1]
        assert (await ask(port, "/livez")).startswith("HTTP/1.1 200") and "no link to b" in await ask(
            port, "/readyz"
        )
        await a.close()
        assert a.health() == (False, False, ("closed",))
        assert (await ask(port, "/livez")).startswith("HTTP/1.1 503")
        server.close()

    run(scenario())


async def ask(port, path):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer.decode()
