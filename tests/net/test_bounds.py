"""What a node keeps is bounded in bytes for every protocol, and one peer that is away stops no others."""

import asyncio
import contextlib

import pytest
from test_node import addresses, make, run, take, until

from happened.net import Limits, NodeFull
from happened.net.running import SOME
from happened.ordering import Relays, protocols
from happened.testing import MemoryNetwork

SIZE, OUTBOX = 4000, 40_000


def usable():
    """Protocols that a small group can use: with one destination, or all."""
    return sorted(name for name, facts in protocols().items() if not facts.assumes.serialized)


@pytest.mark.parametrize("protocol", usable())
def test_a_dead_peer_makes_its_senders_wait_at_the_limit(protocol):
    """What is in outboxes and what the protocol keeps back, as `causal-total` does."""

    async def scenario():
        names = ("a", "b", "c")
        network = MemoryNetwork()
        limits = Limits(outbox=OUTBOX, linger=0.0)
        async with network.nodes(*names, protocol=protocol, limits=limits) as (a, _, c):
            await c.close()
            to = ["c"] if is_unicast(protocol) else names
            sent = 0
            with pytest.raises(NodeFull):
                for _ in range(200):
                    await a.multicast(to, b"x" * SIZE, timeout=0.2)
                    sent += 1
            stats = a.stats()
            kept = stats["queued_bytes"] + max(peer["outbox_bytes"] for peer in stats["peers"].values())
            # Relayed or ordered elsewhere, it waits there: the bound is that of the one who passes it on.
            most = (
                2 * OUTBOX + 3 * SIZE if protocols()[protocol].copies.relays is Relays.NOBODY else 10 * OUTBOX
            )
            assert sent > 2 and kept <= most, (sent, stats)

    run(scenario())


@pytest.mark.parametrize("protocol", ["agreed", "causal-total"])
def test_what_waits_behind_a_message_to_a_dead_peer_is_bounded_at_its_receiver(protocol):
    """d knows nothing of what b waits for, and no outbox for the dead one is ever full."""

    async def scenario():
        limits = Limits(outbox=OUTBOX, held_bytes=OUTBOX, linger=0.0)
        async with MemoryNetwork().nodes("a", "b", "c", "d", protocol=protocol, limits=limits) as nodes:
            a, b, c, d = nodes
            await c.close()
            await a.multicast(["b", "c"], b"first")
            await until(lambda: b.stats()["held"])
            with pytest.raises(NodeFull):
                for _ in range(200):
                    await d.multicast(["b"], b"x" * SIZE, timeout=0.2)
            held = b.stats()["held"]
            assert OUTBOX // SIZE < held <= 2 * OUTBOX // SIZE + 2 * SOME
            await a.expel("c")
            await take(b, d.sent)
            await until(lambda: not d.stats()["peers"]["b"]["outbox_frames"])
            await d.multicast(["b"], b"there is room again", timeout=10)
            await take(b, 1)

    run(scenario())


def test_what_a_sender_keeps_in_case_the_coordinator_fails_is_bounded():
    """No outbox for the dead one is full, and its place in the order is before all that follows."""

    async def scenario():
        limits = Limits(outbox=OUTBOX, linger=0.0)
        async with MemoryNetwork().nodes("a", "b", "c", protocol="sequencer", limits=limits) as (a, b, c):
            await c.close()
            await a.multicast(["c"], b"first")
            with pytest.raises(NodeFull, match="until all have it"):
                for _ in range(200):
                    await b.multicast(["a"], b"x" * SIZE, timeout=0.2)
            assert OUTBOX < b.stats()["queued_bytes"] <= OUTBOX + 2 * SIZE
            await take(a, b.sent)
            await a.expel("c")
            await b.multicast(["a"], b"there is room again", timeout=10)
            await take(a, 1)

    run(scenario())


@pytest.mark.parametrize("protocol", ["agreed", "causal-total"])
def test_what_a_message_waits_for_is_not_parked_behind_what_is_not_acknowledged(tmp_path, protocol):
    """Who holds too much acknowledges nothing until it is told the places of what it holds."""

    async def scenario():
        network, names = MemoryNetwork(), ("a", "b", "c")
        limits = Limits(outbox=OUTBOX, held_bytes=OUTBOX // 4, linger=0.2)
        a, b, c = (
            network.node(name, names, protocol=protocol, journal=tmp_path / name, limits=limits, full="park")
            for name in names
        )
        async with a, b, c:
            network.cut("a", "c")
            sent = 0
            with contextlib.suppress(NodeFull):
                while sent < 200:
                    await a.multicast(["b", "c"], bytes(500), timeout=0.2)
                    sent += 1
            network.heal()
            assert sent > OUTBOX // 600 and len(await asyncio.wait_for(take(c, sent), 20)) == sent

    run(scenario())


def is_unicast(protocol):
    return (
        "unicast" in protocols()[protocol].assumes.casts
        and "broadcast" not in protocols()[protocol].assumes.casts
    )


def test_multicasts_to_others_go_on_while_one_peer_is_away(tmp_path):
    async def scenario():
        where = addresses("a", "b", "c")
        a = make("a", where, tmp_path, {"outbox": OUTBOX, "linger": 0.1})
        b = make("b", where, tmp_path)
        await asyncio.gather(a.start(), b.start())
        with pytest.raises(NodeFull, match="not acknowledged by c; nothing was sent"):
            for _ in range(100):
                await a.multicast(["c"], b"x" * SIZE, timeout=0.1)
        before = a.sent
        for number in range(30):  # more than the limit in all
            await a.multicast(["b"], b"%d" % number + b"x" * SIZE)
            await take(b, 1)
        assert a.sent == before + 30
        with pytest.raises(NodeFull, match="not acknowledged by c"):
            a.multicast_nowait(["b", "c"], b"x")
        assert not a.health().is_ready
        await asyncio.gather(a.close(), b.close())

    run(scenario())


def test_bytes_that_are_kept_back_survive_a_restart(tmp_path):
    async def scenario():
        where = addresses("a", "b", "c")
        options = {"outbox": OUTBOX, "linger": 0.0}
        a = make("a", where, tmp_path, options, protocol="causal-total")
        await a.start()
        with pytest.raises(NodeFull):
            for _ in range(100):
                await a.multicast(["b", "c"], b"x" * SIZE, timeout=0.1)
        queued = a.stats()["queued_bytes"]
        assert OUTBOX < queued <= OUTBOX + SIZE and a.stats()["queued"] * SIZE == queued
        await a.close()  # which leaves a snapshot
        a = make("a", where, tmp_path, options, protocol="causal-total")
        await a.start()
        assert a.stats()["queued_bytes"] == queued
        with pytest.raises(NodeFull, match="keeps back"):
            a.multicast_nowait(["b"], b"x")
        await a.close()

    run(scenario())


def test_held_bytes_stop_the_links_that_have_some(tmp_path):
    """c gets what b sent after a's first message, and not that message."""

    async def scenario():
        network = MemoryNetwork(delay=0.0)
        limits = Limits(held_bytes=10 * SIZE, linger=0.0)
        async with network.nodes("a", "b", "c", limits=limits) as (a, b, c):
            network.cut("a", "c")
            await a.multicast(["b", "c"], b"first")
            await take(b, 1)
            for _ in range(100):
                await b.multicast(["c"], b"x" * SIZE)
            await until(lambda: c.stats()["peers"]["b"]["paused"])
            stats = c.stats()
            assert 10 * SIZE < stats["held_bytes"] < 60 * SIZE and stats["held"] < 60
            network.heal()
            assert len(await take(c, 101)) == 101
            await until(lambda: c.stats()["held_bytes"] == 0)

    run(scenario())


def test_destinations_may_be_any_iterable():
    """Whether there is room is asked of the same destinations that the message is sent to."""

    async def scenario():
        async with MemoryNetwork().nodes("a", "b", "c") as (a, b, c):
            name = await a.multicast((each for each in ("b", "c")), b"once")
            assert await take(b, 1) == await take(c, 1) == [name]

    run(scenario())
