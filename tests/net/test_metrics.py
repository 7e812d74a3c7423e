"""A node's numbers as a scraper sees them."""

import asyncio
import urllib.error
import urllib.request
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from happened.net import metrics, timing
from happened.net.batch import Delivery
from happened.testing import MemoryNetwork

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


def families(text):
    return {family.name: family for family in text_string_to_metric_families(text)}


def test_every_number_of_a_node_has_a_type_and_a_client_library_reads_them(tmp_path):
    """The judge is Prometheus's own reader. A number that a node gets and nobody types is found here."""

    async def act():
        network = MemoryNetwork(delay=0.001)
        async with network.nodes("a", "b", "c") as (a, b, c):
            c.timings()
            network.cut("a", "c")
            await a.multicast(["b", "c"], b"question")
            await asyncio.wait_for(anext(b), 10)
            await b.multicast(["c"], b"answer")
            async with asyncio.timeout(10):
                while not c.pending():
                    await asyncio.sleep(0.002)
            await asyncio.sleep(0.03)  # the answer is held so long at least
            network.heal()
            for _ in range(2):
                await asyncio.wait_for(anext(c), 10)
            return metrics.render(c.stats() | c.timings(), node="c")

    found = families(asyncio.run(act()))
    assert not [name for name, family in found.items() if family.type == "unknown"]
    assert found["happened_deliveries"].type == "counter" and found["happened_held"].type == "gauge"
    hold, delivery = found["happened_hold_seconds"], found["happened_delivery_seconds"]
    assert hold.type == delivery.type == "histogram"
    values = {(each.name, each.labels.get("le")): each.value for each in hold.samples}
    assert values["happened_hold_seconds_count", None] == values["happened_hold_seconds_bucket", "+Inf"] == 2
    assert values["happened_hold_seconds_bucket", "0.025"] == 1  # the question, which was not held
    assert 0.03 <= values["happened_hold_seconds_sum", None] < 10
    assert {each.labels["node"] for each in hold.samples} == {"c"}


def test_what_is_never_delivered_is_forgotten(monkeypatch):
    monkeypatch.setattr(timing, "ARRIVALS", 3)
    now = iter(range(100))
    measured = timing.Timing(lambda: next(now), None)
    for clock in range(1, 7):
        measured.received(clock, 0, SimpleNamespace(sender=0, clock=clock), b"")
    measured.received(7, 0, SimpleNamespace(sender=0), b"")
    for clock in range(1, 7):
        measured.delivered(8, 0, 0, clock)
    assert (sum(measured.hold.counts), measured.hold.sum) == (3, 6 - 3 + 7 - 4 + 8 - 5)
    measured.committed([Delivery(1, 0, 6, b""), Delivery(2, 0, 1, b"")])
    assert (sum(measured.delivery.counts), measured.delivery.sum) == (1, 9 - 5)
