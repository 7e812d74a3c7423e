"""Nodes whose peer is away: they wait, refuse, or park what is for it on disk, and lose nothing."""

import asyncio
import os
import signal
import time
import tracemalloc
from random import Random

import pytest
from brokers import broker
from netcluster import QUICK, Cluster, schedule
from test_node import addresses, crash, make, run, take, until

from happened.core.errors import LocalProtocolError
from happened.net import Limits, Node, NodeFull
from happened.net.nats import NatsTransport

SIZE, OUTBOX = 4000, 40_000


def parker(where, tmp_path, **limits):
    return make(
        "a", where, tmp_path, {"outbox": OUTBOX, "linger": 0.1, **limits}, flush=False, full={"b": "park"}
    )


async def send(node, count, to=("b",), size=SIZE):
    for number in range(node.sent, node.sent + count):
        await node.multicast(to, b"%d " % number + b"x" * size, timeout=5)


def parked(node, peer="b"):
    return node.stats()["peers"][peer]["parked_bytes"]


def rows(node):
    return node._journal._db.execute("SELECT count(*) FROM parked").fetchone()[0]


def test_a_peer_that_is_away_longer_than_its_outbox_gets_everything_in_order(tmp_path, dice: Random):
    """Killed while it parks, and while it brings back what it has parked."""

    async def scenario():
        where = addresses("a", "b", "c")
        total = 0
        for _ in range(3):
            a = parker(where, tmp_path)
            await a.start()
            await send(a, count := dice.randint(40, 80))
            total += count
            assert a.stats()["peers"]["b"]["outbox_bytes"] <= OUTBOX + 2 * SIZE
            await crash(a)
        a = parker(where, tmp_path)
        await a.start()
        assert a.sent == total and parked(a) > (total - 15) * SIZE
        assert len(b"".join(a._engine.snapshot_parts())) < 2 * OUTBOX, "parked frames are in no snapshot"
        b = make("b", where, tmp_path, flush=False)
        await b.start()
        names = []
        while len(names) < total:
            names += await take(b, min(dice.randint(10, 40), total - len(names)))
            if dice.random() < 0.5:
                await crash(a)
                a = parker(where, tmp_path)
                await a.start()
            assert a.stats()["peers"]["b"]["outbox_bytes"] <= OUTBOX + 2 * SIZE
        assert names == [f"a:{clock}" for clock in range(1, total + 1)]
        await until(lambda: not parked(a) and not a.stats()["peers"]["b"]["outbox_frames"])
        await a.flush()
        assert rows(a) == 0
        await asyncio.gather(a.close(), b.close())
        assert (tmp_path / "a.journal").stat().st_size < 20 * SIZE, "it gives back what it does not need"

    run(scenario())


def test_memory_stays_within_the_limit_of_an_outbox(tmp_path):
    async def scenario():
        where = addresses("a", "b", "c")
        a = parker(where, tmp_path, compaction=400_000)
        await a.start()
        await send(a, 50)
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        await send(a, 600)  # 2.4 MB, with several snapshots
        after, peak = tracemalloc.get_traced_memory()
        assert parked(a) > 600 * SIZE and after - before < 5 * OUTBOX and peak - before < 10 * OUTBOX
        b = make("b", where, tmp_path, flush=False)
        await b.start()
        tracemalloc.stop()
        for _ in range(650):
            await take(b, 1)
            assert a.stats()["peers"]["b"]["outbox_bytes"] <= OUTBOX + 2 * SIZE
        await asyncio.gather(a.close(), b.close())

    run(scenario())


def test_above_the_limit_on_disk_multicasts_wait_and_go_on_when_the_peer_is_back(tmp_path):
    async def scenario():
        where = addresses("a", "b", "c")
        a = parker(where, tmp_path, parked=100_000)
        await a.start()
        with pytest.raises(NodeFull, match="not acknowledged by b; nothing was sent"):
            for _ in range(100):
                await a.multicast("b", b"x" * SIZE, timeout=0.2)
        sent = a.sent
        assert 100_000 <= parked(a) <= 100_000 + 3 * SIZE
        waiting = asyncio.create_task(send(a, 20))
        b = make("b", where, tmp_path, flush=False)
        await b.start()
        assert await take(b, sent + 20) == [f"a:{clock}" for clock in range(1, sent + 21)]
        await waiting
        await asyncio.gather(a.close(), b.close())

    run(scenario())


def test_what_was_parked_is_sent_after_the_policy_has_changed(tmp_path):
    async def scenario():
        where = addresses("a", "b", "c")
        a = parker(where, tmp_path)
        await a.start()
        await send(a, 40)
        await a.close()
        a = make("a", where, tmp_path, {"outbox": OUTBOX, "linger": 0.1})
        await a.start()
        assert parked(a) > 20 * SIZE
        with pytest.raises(NodeFull, match="not acknowledged by b"):
            a.multicast_nowait("b", b"x")
        b = make("b", where, tmp_path, flush=False)
        await b.start()
        await a.multicast("b", b"behind what is parked", timeout=10)
        assert await take(b, 41) == [f"a:{clock}" for clock in range(1, 42)]
        await asyncio.gather(a.close(), b.close())

    run(scenario())


def test_a_full_outbox_can_refuse_at_once_and_others_are_not_concerned(tmp_path):
    async def scenario():
        where = addresses("a", "b", "c")
        a = make("a", where, tmp_path, {"outbox": OUTBOX, "linger": 0.1}, full={"b": "refuse"})
        c = make("c", where, tmp_path)
        await asyncio.gather(a.start(), c.start())
        with pytest.raises(NodeFull, match="not acknowledged by b, and does not wait"):
            for _ in range(100):
                await a.multicast(["b", "c"], b"x" * SIZE)
        sent = a.sent
        assert sent * SIZE >= OUTBOX
        assert await take(c, sent) == [f"a:{clock}" for clock in range(1, sent + 1)]
        assert await a.multicast(["c"], b"x") == f"a:{sent + 1}"
        with pytest.raises(NodeFull, match="does not wait"):
            await a.broadcast(b"x")
        with pytest.raises(NodeFull, match="not acknowledged by b; nothing"):
            await a.room("b", timeout=0.1)  # whoever asks for room waits for it
        b = make("b", where, tmp_path, flush=False)
        await b.start()
        await a.room("b", timeout=10)
        await a.multicast("b", b"x")
        await asyncio.gather(a.close(), b.close(), c.close())

    run(scenario())


def test_a_coordinator_parks_what_it_passes_on(tmp_path):
    """b is away; a sends through the sequencer s, whose link to b has the frames."""

    async def scenario():
        where = addresses("a", "b", "s")
        limits = {"outbox": OUTBOX, "linger": 0.1}
        more = {"protocol": "sequencer", "options": {"coordinator": "s"}}
        a = make("a", where, tmp_path, limits, **more)
        s = make("s", where, tmp_path, limits, full={"b": "park"}, **more)
        await asyncio.gather(a.start(), s.start())
        await send(a, 60, to=["b", "s"])
        await until(lambda: parked(s) > 30 * SIZE)
        assert not s.stats()["peers"]["a"]["paused"]
        b = make("b", where, tmp_path, **more)
        await b.start()
        assert await take(b, 60) == [f"a:{clock}" for clock in range(1, 61)]
        await asyncio.gather(a.close(), b.close(), s.close())

    run(scenario())


def test_frames_are_parked_while_a_broker_is_away(tmp_path):
    async def scenario():
        with broker(tmp_path / "broker") as servers:

            def member(name, full):
                limits = Limits(**{**QUICK, "outbox": OUTBOX, "linger": 0.1})
                transport = NatsTransport(servers.urls, start_seconds=20)
                journal = tmp_path / f"{name}.journal"
                peers = ["a", "b"]
                return Node(name, peers=peers, transport=transport, journal=journal, limits=limits, full=full)

            a, b = member("a", "park"), member("b", "wait")
            await asyncio.gather(a.start(), b.start())
            await send(a, 3)
            assert await take(b, 3) == ["a:1", "a:2", "a:3"]
            servers.kill(0)
            await send(a, 60)
            assert parked(a) > 40 * SIZE
            servers.start(0)
            await asyncio.to_thread(servers.wait_until_ready)
            assert await take(b, 60) == [f"a:{clock}" for clock in range(4, 64)]
            await until(lambda: not parked(a))
            await asyncio.gather(a.close(), b.close())

    run(scenario())


def test_wrong_policies_are_refused(tmp_path):
    where = addresses("a", "b")
    with pytest.raises(LocalProtocolError, match="parked in the journal: give the node one"):
        make("a", where, full="park")
    with pytest.raises(LocalProtocolError, match="full outbox of 'b' can: wait, refuse, park; not 'drop'"):
        make("a", where, tmp_path, full={"b": "drop"})


@pytest.mark.slow  # the short form is the harness's
def test_five_processes_that_park_are_killed_and_cut(tmp_path, seed):
    """kill -9 of real processes with an outbox of a few messages; judged by the union of their traces."""
    limits = {**QUICK, "outbox": 1500, "compaction": 20_000}
    plan = {"messages": 600, "pace": 0.004, "size": 200, "limits": limits, "full": "park"}
    with Cluster(tmp_path, seed, **plan) as cluster:
        os.kill(cluster.children["bob"].process.pid, signal.SIGSTOP)  # others park for bob meanwhile
        cluster.suffer([each for each in schedule(seed, 1.2, 0.4) if "bob" not in each.who])
        deadline = time.monotonic() + 30
        while sum(bool(child.last.get("parked")) for child in cluster.children.values()) < 3:
            assert time.monotonic() < deadline, "hardly anything is parked"
            time.sleep(0.05)
        os.kill(cluster.children["bob"].process.pid, signal.SIGCONT)
        cluster.suffer(schedule(seed + 1, 0.6, 0.3))
        cluster.wait(60)
    cluster.judge()
    assert cluster.kills


def test_what_was_parked_for_somebody_who_was_expelled_is_dropped(tmp_path):
    """It is refused when it comes back, and told what to do."""

    async def scenario():
        where = addresses("a", "b", "c")
        a, c = parker(where, tmp_path), make("c", where, tmp_path, flush=False)
        b = make("b", where, tmp_path, flush=False)
        await asyncio.gather(a.start(), b.start(), c.start())
        await send(a, 1)
        await take(b, 1)
        await crash(b)
        await send(a, 40)
        assert parked(a) > 20 * SIZE
        await a.expel("b")
        await until(lambda: not a.stats()["peers"]["b"]["outbox_frames"])
        await a.flush()
        assert rows(a) == 0
        await a.close()
        a = parker(where, tmp_path)
        b = make("b", where, tmp_path, flush=False)
        await asyncio.gather(a.start(), b.start())
        a.transport.add_peer("b", where["b"])
        wanted = "it refused us: 'b' was expelled, and 'a' goes on without it: let it join under a new name"
        await until(lambda: wanted in b._connections.troubles_with("a"))
        await asyncio.gather(a.close(), b.close(), c.close())

    run(scenario())
