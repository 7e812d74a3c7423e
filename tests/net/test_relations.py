"""How two delivered messages stand to each other, against the closure of the recorded events."""

import asyncio
import itertools
import random
from collections import Counter

import pytest

from happened.core.errors import LocalProtocolError
from happened.net import Causality, Limits
from happened.net.message import stamp_from_text
from happened.testing import MemoryNetwork
from happened.trace import read

NAMES = ("a", "b", "c", "d")


def run(scenario):
    return asyncio.run(asyncio.wait_for(scenario, 60))


def pasts_of_sends(directory):
    """By message, the names of all messages whose sends are in its send's past: sets that follow the events,
    and no clock."""
    rows = sorted(read(directory).to_pylist(), key=lambda row: (row["process"], row["seq"]))
    lanes = {name: [row for row in rows if row["process"] == name] for name in NAMES}
    known, pasts, before = {name: set() for name in NAMES}, {}, None
    unordered = {row["message"] for row in rows if row["kind"] == "unordered"}
    while any(lanes.values()):
        assert before != (before := sum(map(len, lanes.values()))), "a delivery without its send"
        for name, lane in lanes.items():
            while lane and (lane[0]["kind"] != "deliver" or lane[0]["message"] in pasts.keys() | unordered):
                row = lane.pop(0)
                if row["message"] in unordered:
                    continue
                if row["kind"] == "send":
                    pasts[row["message"]] = frozenset(known[name])
                    known[name].add(row["message"])
                elif row["kind"] == "deliver":
                    known[name] |= pasts[row["message"]] | {row["message"]}
    return pasts


def expected(one, other, pasts):
    if one == other:
        return Causality.EQUAL
    if one in pasts[other]:
        return Causality.BEFORE
    return Causality.AFTER if other in pasts[one] else Causality.CONCURRENT


@pytest.mark.parametrize(
    ("protocol", "tracker"), [("ks", "p1"), ("sequencer", "vector"), ("cbcast", "p3-reduced")]
)
def test_stamps_tell_what_follows_from_the_events(seed, tmp_path, protocol, tracker):
    dice, got = random.Random(seed), {}
    network = MemoryNetwork(seed, delay=0.003)

    async def listen(node):
        async for message in node:
            got.setdefault(node.name, []).append(message)

    async def talk(node):
        for _ in range(12):
            to = dice.sample([name for name in NAMES if name != node.name], dice.randint(1, 3))
            await node.multicast(to, b"x", ordered=dice.random() > 0.1)
            await asyncio.sleep(dice.uniform(0, 0.004))

    async def scenario():
        options = {"protocol": protocol, "tracker": tracker, "headers": True, "stamps": True}
        limits = Limits(linger=0.3)
        async with network.nodes(*NAMES, trace=tmp_path, limits=limits, **options) as nodes:
            listening = [asyncio.create_task(listen(node)) for node in nodes]
            await asyncio.gather(*map(talk, nodes))
            async with asyncio.timeout(20):
                while any(peer["outbox_frames"] for node in nodes for peer in node.stats()["peers"].values()):
                    await asyncio.sleep(0.005)
            await asyncio.sleep(0)
            node = nodes[0]
        await asyncio.gather(*listening)
        return node

    node = run(scenario())
    pasts, seen = pasts_of_sends(tmp_path), Counter()
    for messages in got.values():
        ordered = [message for message in messages if message.stamp is not None]
        assert all(message.name in pasts for message in ordered)
        for one, other in itertools.product(ordered, repeat=2):
            told = node.relation(one, other)
            assert told is expected(one.name, other.name, pasts), (one, other)
            seen[told] += 1
    assert min(seen[each] for each in Causality) > 20, seen


def test_what_cannot_be_told_is_refused():
    async def scenario():
        async with MemoryNetwork().nodes("a", "b", "c", headers=True, limits=Limits(linger=0.1)) as (a, b, c):
            for node in (a, a, b):
                await node.multicast("c", b"")
            got = sorted([await asyncio.wait_for(anext(c), 10) for _ in range(3)], key=lambda each: each.name)
            assert c.relation(got[0], got[1]) is Causality.BEFORE and got[0].stamp is None
            assert c.relation(got[1], got[0]) is Causality.AFTER
            with pytest.raises(LocalProtocolError, match=r"b:1 has no timestamp.*stamps=True"):
                c.relation(got[2], got[0])

    run(scenario())
    for options in ({"tracker": "p1"}, {"headers": True}, {"headers": True, "tracker": "lamport"}):
        with pytest.raises(LocalProtocolError, match=r"a tracker that tells vectors: one of vector, .*p1"):
            MemoryNetwork().node("a", ("a", "b"), stamps=True, **options)


@pytest.mark.parametrize("text", ["", "{}", "[1]", "[1, 2]", '["x", {}]', '[1, {"a": []}]', "[" * 100_000])
def test_a_header_that_is_no_timestamp_tells_nothing(text):
    assert stamp_from_text("a", text) is None
