"""Nodes that share a token: all may send at once, and a node that leaves, closes or is killed keeps nobody
waiting longer than it must."""

import asyncio
from itertools import pairwise

import pytest
from test_node import addresses, make, nodes, run, take

from happened.core.errors import LocalProtocolError, RemoteProtocolError
from happened.net import NodeFull
from happened.net.engine import Engine
from happened.ordering import protocols

SERIALIZED = sorted(name for name, facts in protocols().items() if facts.assumes.serialized)


async def everybody_sends(these, count):
    names = [node.name for node in these]

    async def send(node):
        return [await node.multicast(names, b"%d" % k) for k in range(count)]

    sent = await asyncio.gather(*map(send, these))
    orders = await asyncio.gather(*(take(node, len(these) * count) for node in these))
    assert all(order == orders[0] for order in orders)
    assert sorted(orders[0]) == sorted(name for each in sent for name in each)
    return orders[0]


@pytest.mark.parametrize("protocol", SERIALIZED)
def test_all_send_at_once_and_have_one_order(tmp_path, protocol):
    async def test():
        async with nodes("a", "b", "c", tmp_path=tmp_path, protocol=protocol) as these:
            with pytest.raises(NodeFull, match="token"):
                these[1].multicast_nowait(["a", "b", "c"], b"out of turn")
            order = await everybody_sends(these, 5)
            senders = [name[0] for name in order]
            assert sum(x != y for x, y in pairwise(senders)) >= 3  # the token went round

    run(test())


@pytest.mark.parametrize("protocol", SERIALIZED)
def test_who_leaves_hands_the_token_over(tmp_path, protocol):
    async def test():
        groups = {"all": ["a", "b", "c"]}
        async with nodes("a", "b", "c", tmp_path=tmp_path, protocol=protocol, groups=groups) as (a, b, c):
            await everybody_sends((a, b, c), 2)
            await asyncio.gather(a.leave(), b.multicast("all", b"meanwhile"))
            await b.leave()
            assert await c.multicast(["c"], b"alone")

    run(test())


def test_who_closes_passes_the_token_on_and_who_comes_back_gets_its_turn(tmp_path):
    async def test():
        where, protocol = addresses("a", "b"), "serialized-multicast"
        a, b = (make(name, where, tmp_path, protocol=protocol) for name in "ab")
        await a.start()
        await b.start()
        await a.multicast(["b"], b"first")
        await take(b, 1)
        await a.close()
        assert await b.multicast(["b", "a"], b"without a") and await b.multicast(["b"], b"again")
        async with make("a", where, tmp_path, protocol=protocol) as a:
            assert await a.multicast(["b"], b"back")
            await take(b, 3)
            await take(a, 1)
        await b.close()

    run(test())


def test_a_killed_holder_has_the_token_when_it_comes_back():
    """Its turn ends with the application that had it; what others asked for before is not forgotten."""
    a, b = (Engine(name, ["a", "b"], "serialized-multicast") for name in "ab")
    a.serialization.want()
    b.serialization.want()
    b.release(b.cut())
    ((_, request),) = b.outboxes[0].after(0, 1000)
    a.receive(1, request)
    batch = a.cut()
    again = Engine("a", ["a", "b"], "serialized-multicast")
    again.replay(batch.entries, 0)
    assert again.has_turn and not again.outboxes[1]
    again.serialization.release()
    again.release(again.cut())
    ((_, passed),) = again.outboxes[1].after(0, 1000)
    assert not b.has_turn
    b.receive(0, passed)
    assert b.has_turn
    with pytest.raises(LocalProtocolError, match="does not have the token"):
        again.multicast([1], b"")
    with pytest.raises(LocalProtocolError, match="does not have the token"):
        again.leave("a")


def test_a_token_that_cannot_be_is_refused_and_changes_nothing():
    b = Engine("b", ["a", "b"], "serialized-multicast")
    for frame, why in (
        (b'\xfc\x01[2,[],[],"0x0",[[7,[1,0]]]]', "cannot be"),
        (b'\xfc\x01[2,[],[],"0x0",5]', "cannot be"),
        (b"\xfc\x01[1,1,1]", "for process 1"),
    ):
        before = b.snapshot()
        with pytest.raises(RemoteProtocolError, match=why):
            b.receive(0, frame)
        assert b.snapshot() == before and not b.is_dirty


def test_a_token_needs_a_journal():
    with pytest.raises(LocalProtocolError, match="give every node a journal"):
        make("a", {"a": "127.0.0.1:0"}, protocol="serialized-broadcast")
