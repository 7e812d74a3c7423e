"""A node's numbers as a scraper sees them."""

import asyncio
import urllib.error
import urllib.request

import pytest

from happened.net import metrics

NUMBERS = {
    "sent": 7,
    "p99_seconds": 0.25,
    "failure": None,
    "peers": {"bob": {"held": 1, "address": "127.0.0.1:1"}, 'c"\n\\': {"held": 0}},
    "refusals": {"proof": 3},
}


def test_numbers_become_samples_and_the_rest_is_left_out():
    assert metrics.render(NUMBERS, node="alice").splitlines() == [
        "# TYPE happened_p99_seconds untyped",
        'happened_p99_seconds{node="alice"} 0.25',
        "# TYPE happened_peer_held untyped",
        'happened_peer_held{node="alice",peer="bob"} 1',
        'happened_peer_held{node="alice",peer="c\\"\\n\\\\"} 0',
        "# TYPE happened_refusal untyped",
        'happened_refusal{node="alice",refusal="proof"} 3',
        "# TYPE happened_sent untyped",
        'happened_sent{node="alice"} 7',
    ]


def test_a_scraper_gets_them_and_others_get_an_answer():
    async def act():
        server = await metrics.serve_metrics(("127.0.0.1", 0), lambda: NUMBERS, node="alice")
        base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

        def fetch():
            with urllib.request.urlopen(base + "/metrics", timeout=30) as response:
                assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
                text = response.read().decode()
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(base + "/", timeout=30)
            with pytest.raises(urllib.error.HTTPError, match="405"):
                urllib.request.urlopen(base + "/metrics", data=b"x", timeout=30)
            return text

        async with server:
            return await asyncio.to_thread(fetch)

    assert asyncio.run(act()) == metrics.render(NUMBERS, node="alice")


@pytest.mark.parametrize("request_bytes", [b"GET /metrics", b"x" * 20_000, b""])
def test_a_request_without_end_is_cut_off(request_bytes, monkeypatch):
    monkeypatch.setattr(metrics, "REQUEST_SECONDS", 0.2)

    async def act():
        async with await metrics.serve_metrics(("127.0.0.1", 0), lambda: NUMBERS, node="alice") as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(request_bytes)
            try:
                answer = await asyncio.wait_for(reader.read(), 30)
            except ConnectionError:
                answer = b""
            writer.close()
            return answer

    assert asyncio.run(act()) == b""
