"""Nodes in one event loop, over real sockets: what an application sees."""

import asyncio
import contextlib
import itertools
import logging
import shutil
import threading
from contextlib import asynccontextmanager

import pytest
from netcluster import QUICK, free_ports

from happened.causality import check_delivery, check_order
from happened.core.errors import LocalProtocolError, RemoteProtocolError
from happened.net import JournalError, Limits, Node, NodeClosed, NodeError, NodeFull, Plaintext
from happened.net.lifecycle import State
from happened.trace import read

TIMEOUT = 90


def run(test):
    """Run a coroutine, for a bounded time."""
    asyncio.run(asyncio.wait_for(test, TIMEOUT))


def addresses(*names):
    return {name: f"127.0.0.1:{port}" for name, port in zip(names, free_ports(len(names)), strict=True)}


def make(name, where, tmp_path=None, limits=None, **more):
    if tmp_path is not None:
        more.setdefault("journal", tmp_path / f"{name}.journal")
    return Node(
        name,
        peers=where,
        listen=where[name],
        guard=Plaintext(),
        limits=Limits(**{**QUICK, "linger": 0.2, **(limits or {})}),
        **more,
    )


@asynccontextmanager
async def nodes(*names, tmp_path=None, **more):
    where = addresses(*names)
    made = [make(name, where, tmp_path, **more) for name in names]
    for node in made:
        await node.start()
    try:
        yield made
    finally:
        await asyncio.gather(*(node.close() for node in made))


async def until(condition, what="it did not happen"):
    deadline = asyncio.get_running_loop().time() + 15
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, what
        await asyncio.sleep(0.005)


async def take(node, count):
    """The names of the next messages, acknowledged."""
    names = []
    while len(names) < count:
        message = await anext(node)
        names.append(message.name)
        await message.ack()
    return names


async def crash(node):
    """Leave everything as kill -9 would: nothing flushed, nothing said."""
    node.life.move(State.FAILED)
    node._commits.stop(node.life.closed_error)
    await node.transport.close()
    node._commits._pool.shutdown(wait=True)
    if node._journal is not None:
        node._journal.close()


@pytest.mark.parametrize("journaled", [False, True], ids=["in memory", "journaled"])
def test_messages_arrive_in_causal_order_and_carry_their_names(tmp_path, journaled):
    async def scenario():
        async with nodes("a", "b", "c", tmp_path=tmp_path if journaled else None) as (a, b, c):
            first = await a.multicast(["b", "c"], b"question")
            assert first == "a:1"
            message = await anext(b)
            assert (message.sender, message.name, message.payload) == ("a", "a:1", b"question")
            await message.ack()
            answer = await b.multicast("c", b"answer")
            assert await take(c, 2) == [first, answer]

    run(scenario())


def test_a_held_message_says_what_it_waits_for(tmp_path):
    async def scenario():
        async with nodes("a", "b", "c") as (a, b, c):
            await until(lambda: all(peer["calling"] for peer in a.stats()["peers"].values()))
            a.transport.remove_peer("c")  # the link from a to c is cut
            await a.multicast(["b", "c"], b"question")
            await (await anext(b)).ack()
            await b.multicast(["c"], b"answer")
            await until(lambda: c.pending())
            (held,) = c.pending()
            assert (held.message, held.waits_for, held.since) == ("b:1", ("a:1",), 1)
            assert c.stats()["held"] == 1
            a.transport.add_peer("c", c.transport.address)
            assert await take(c, 2) == ["a:1", "b:1"]
            assert c.pending() == []

    run(scenario())


def test_what_is_sent_before_a_caller_knows_its_connection_is_not_forgotten(monkeypatch):
    """The peers have said hello before the task that called goes on, as on a busy machine."""
    connect = asyncio.BaseEventLoop.create_connection

    async def slowly(*arguments, **more):
        made = await connect(*arguments, **more)
        await asyncio.sleep(0.3)
        return made

    async def scenario():
        monkeypatch.setattr(asyncio.BaseEventLoop, "create_connection", slowly)
        async with nodes("a", "b") as (a, b):
            await until(lambda: a.stats()["peers"]["b"]["calling"])
            assert a.transport._links["b"].calling is None
            await a.multicast(["b"], b"1")
            assert await asyncio.wait_for(take(b, 1), 10) == ["a:1"]

    run(scenario())


def test_groups_are_destinations_by_name():
    async def scenario():
        async with nodes("a", "b", "c", groups={"team": ["a", "b"]}) as (a, b, c):
            await a.multicast("team", b"1")
            await a.multicast(["team", "c"], b"2")
            assert await take(b, 2) == await take(a, 2) == ["a:1", "a:2"]
            assert await take(c, 1) == ["a:2"]
            with pytest.raises(LocalProtocolError, match="no process named 'zoe'"):
                await a.multicast("zoe", b"")

    run(scenario())


def test_what_was_not_acknowledged_comes_again_after_a_crash_and_the_rest_does_not(tmp_path):
    async def scenario():
        where = addresses("a", "b")
        a, b = (make(name, where, tmp_path) for name in "ab")
        await a.start()
        await b.start()
        for number in range(6):
            await a.multicast(["b"], b"%d" % number)
        messages = [await anext(b) for _ in range(6)]
        for which in (0, 1, 4):
            await messages[which].ack()
        await crash(b)
        b = make("b", where, tmp_path)
        await b.start()
        await a.multicast(["b"], b"6")
        again = [await anext(b) for _ in range(4)]
        assert [message.payload for message in again] == [b"2", b"3", b"5", b"6"]
        assert [message.number for message in again] == [3, 4, 6, 7]
        for message in again:
            message.ack_nowait()
        await b.flush()
        await crash(b)
        b = make("b", where, tmp_path)
        await b.start()
        assert b.receive_nowait() is None and b.delivered == 7
        await asyncio.gather(a.close(), b.close())

    run(scenario())


@pytest.mark.parametrize("clean", [False, True], ids=["a crash", "a clean end"])
def test_a_multicast_that_was_confirmed_is_sent_after(tmp_path, clean):
    async def scenario():
        where = addresses("a", "b")
        a = make("a", where, tmp_path)
        await a.start()  # b is not there
        names = [await a.multicast(["b"], b"%d" % number) for number in range(20)]
        assert a.stats()["peers"]["b"]["outbox_frames"] == 20
        await (a.close() if clean else crash(a))
        a, b = make("a", where, tmp_path), make("b", where, tmp_path)
        await a.start()
        assert a.sent == 20
        await b.start()
        assert await take(b, 20) == names
        await asyncio.gather(a.close(), b.close())

    run(scenario())


def gate(node):
    """Hold back the commits of a node until the event is set."""
    opened, append = threading.Event(), node._journal.append

    def when_opened(*batch):
        opened.wait(TIMEOUT)
        return append(*batch)

    node._journal.append = when_opened
    return opened


def test_nothing_is_seen_of_what_is_not_journaled_yet(tmp_path):
    async def scenario():
        async with nodes("a", "b", tmp_path=tmp_path) as (a, b):
            await until(lambda: a.stats()["peers"]["b"]["calling"])
            await asyncio.gather(a.flush(), b.flush())
            opened = gate(a)
            sending = asyncio.create_task(a.multicast(["a", "b"], b"x"))
            await asyncio.sleep(0.3)
            assert not sending.done() and b.delivered == 0  # neither confirmed nor sent
            assert a.delivered == 1 and a.receive_nowait() is None  # nor delivered to ourselves
            opened.set()
            await sending
            (mine, theirs) = await anext(a), await anext(b)
            assert mine.name == theirs.name == "a:1"

            opened = gate(b)
            acknowledging = asyncio.create_task(theirs.ack())
            await a.multicast(["b"], b"y")
            await until(lambda: b.delivered == 2)
            await asyncio.sleep(0.3)
            assert not acknowledging.done() and b.receive_nowait() is None
            assert a.stats()["peers"]["b"]["acknowledged"] == 1  # it might be lost at b: a keeps it
            opened.set()
            await acknowledging
            assert await take(b, 1) == ["a:2"]
            await until(lambda: a.stats()["peers"]["b"]["acknowledged"] == 2)

    run(scenario())


def test_frames_that_came_before_are_dropped_and_gaps_refused(tmp_path):
    async def scenario():
        where = addresses("a", "b")
        a, b = (make(name, where, tmp_path) for name in "ab")
        await a.start()
        await b.start()
        await until(lambda: a.stats()["peers"]["b"]["calling"])
        a.transport.remove_peer("b")
        for number in range(5):
            await a.multicast(["b"], b"%d" % number)
        frames = a.host.outbox("b").after(0, 1 << 20)
        b.host.arrived("a", frames[:2])
        b.host.arrived("a", frames[:3])  # a connection that began again
        with pytest.raises(RemoteProtocolError, match="frame 5 follows 3"):
            b.host.arrived("a", frames[4:])
        b.host.arrived("a", frames)
        await b.flush()
        assert b.host.expects("a") == 6 and b.host.received("a") == 5
        assert await take(b, 5) == [f"a:{clock}" for clock in range(1, 6)]
        assert b.receive_nowait() is None and b.stats()["frames_duplicate"] == 5
        await asyncio.gather(a.close(), b.close())

    run(scenario())


def test_compaction_loses_nothing_and_bounds_the_journal(tmp_path):
    async def scenario():
        where = addresses("a", "b")
        limits = {"compaction": 20_000}
        a, b = (make(name, where, tmp_path, limits, trace=tmp_path / "trace") for name in "ab")
        await a.start()
        await b.start()
        expected = 0
        for _round in range(8):
            for _ in range(50):
                await a.multicast(["a", "b"], b"x" * 200)
                expected += 1
            assert a.stats()["journal_bytes"] < 100_000
            await take(b, 40)
            await take(a, 50)
            await crash(b)
            b = make("b", where, tmp_path, limits, trace=tmp_path / "trace")
            await b.start()
            await take(b, 10)
        await until(lambda: not a.stats()["peers"]["b"]["outbox_frames"])
        assert (a.sent, b.delivered) == (expected, expected)
        await asyncio.gather(a.close(), b.close())
        trace = read(tmp_path / "trace")
        assert check_order(trace, "causal").holds and check_delivery(trace).lost == 0
        assert check_delivery(trace).deliveries == 2 * expected

    run(scenario())


def test_members_join_and_leave_at_run_time(tmp_path):
    async def scenario():
        where = addresses("a", "b", "c")
        first = {name: where[name] for name in "ab"}
        a, b = (make(name, first, tmp_path, trace=tmp_path / "trace") for name in "ab")
        await a.start()
        await b.start()
        await a.multicast(["b"], b"before")
        with pytest.raises(LocalProtocolError, match="'a' admits new members"):
            await b.join("c", where["c"])
        members = await a.join("c", where["c"])
        c = make("c", where, tmp_path, members=members, trace=tmp_path / "trace")
        await c.start()
        await until(lambda: b.members == ("a", "b", "c"))
        await b.multicast(["a", "c"], b"welcome")
        assert await take(c, 1) == ["b:1"]
        await crash(b)  # it comes back knowing c, which its configuration does not name
        b = make("b", first, tmp_path, trace=tmp_path / "trace")
        await b.start()
        assert b.members == ("a", "b", "c")
        await c.multicast(["a", "b"], b"thanks")
        assert await take(b, 2) == ["a:1", "c:1"]
        await c.leave()
        await c.close()
        await until(lambda: a.members == b.members == ("a", "b"))
        with pytest.raises(LocalProtocolError, match="no process named 'c'"):
            await a.multicast(["c"], b"too late")
        await a.multicast(["b"], b"after")
        assert await take(b, 1) == ["a:2"]
        assert await take(a, 2) == ["b:1", "c:1"]
        await asyncio.gather(a.close(), b.close())
        trace = read(tmp_path / "trace")
        assert check_delivery(trace).lost == 0 and check_order(trace, "causal").holds

    run(scenario())


def test_a_leaving_node_gets_what_was_on_its_way(tmp_path):
    async def scenario():
        async with nodes("a", "b", "c") as (a, b, c):
            for _ in range(200):
                a.multicast_nowait(["b", "c"], b"x")
            await c.leave()
            names = [message.name for message in iter(c.receive_nowait, None)]
            assert names == [f"a:{number}" for number in range(1, 201)]
            await until(lambda: a.members == b.members == ("a", "b"))

    run(scenario())


# Back-pressure.


def test_multicast_waits_for_a_peer_that_is_away(tmp_path):
    async def scenario():
        where = addresses("a", "b")
        a = make("a", where, tmp_path, {"outbox": 50_000})
        await a.start()
        sent = 0
        with pytest.raises(NodeFull):
            for _ in range(10_000):
                a.multicast_nowait(["b"], b"x" * 100)
                sent += 1
        assert 300 < sent < 500
        waiting = asyncio.create_task(a.multicast(["b"], b"last"))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        b = make("b", where, tmp_path)
        await b.start()
        await waiting
        assert len(await take(b, sent + 1)) == sent + 1
        await asyncio.gather(a.close(), b.close())

    run(scenario())


@pytest.mark.parametrize("journaled", [False, True], ids=["in memory", "journaled"])
def test_links_are_not_read_for_an_application_that_does_not_keep_up(tmp_path, journaled):
    async def scenario():
        limits = {"undelivered": 100, "outbox": 10 << 20}
        async with nodes("a", "b", tmp_path=tmp_path if journaled else None, limits=limits) as (a, b):
            total = 20_000
            for number in range(total):
                await a.room()
                a.multicast_nowait(["b"], b"x" * 500)
                if number % 100 == 0:
                    await asyncio.sleep(0)
            await until(lambda: b.stats()["peers"]["a"]["paused"])
            await asyncio.sleep(0.2)
            before = b.delivered
            # What was read already when the limit was passed: one chunk off the socket.
            assert before < 100 + (256 << 10) // 500 * 2
            await asyncio.sleep(0.2)
            assert b.delivered == before
            for number in range(total):
                message = await anext(b)
                assert message.clock == number + 1
                message.ack_nowait()
                assert b.stats()["undelivered"] < 2000

    run(scenario())


def test_too_many_held_messages_stop_only_the_links_that_cannot_release_them():
    async def scenario():
        async with nodes("a", "b", "c", limits={"held": 10}) as (a, b, c):
            await until(lambda: all(peer["calling"] for peer in a.stats()["peers"].values()))
            a.transport.remove_peer("c")
            await a.multicast(["b", "c"], b"x")
            await anext(b)
            total = 5000
            for number in range(total):
                await b.multicast(["c"], b"y" * 500)
                if number % 100 == 0:
                    await asyncio.sleep(0)
            await until(lambda: c.stats()["peers"]["b"]["paused"])
            await asyncio.sleep(0.2)
            assert 10 < c.stats()["held"] < 2000
            assert not c.stats()["peers"]["a"]["paused"]
            a.transport.add_peer("c", c.transport.address)
            assert await take(c, total + 1) == ["a:1", *(f"b:{number}" for number in range(1, total + 1))]

    run(scenario())


# Who may take part.


def test_plaintext_is_never_the_default_and_stays_on_loopback():
    with pytest.raises(LocalProtocolError, match="say how peers are authenticated"):
        Node("a", peers={})

    async def listens(address, **how):
        async with Node("a", peers={}, listen=address, guard=Plaintext(**how)):
            pass

    with pytest.raises(NodeError, match=r"not loopback.*shared key"):
        run(listens("0.0.0.0:0"))
    run(listens("0.0.0.0:0", anywhere=True))

    async def calls():
        async with Node("a", peers={"b": "192.0.2.1:9"}, guard=Plaintext()):
            pass

    with pytest.raises(NodeError, match="calls 'b'"):
        run(calls())


def test_the_second_node_with_a_journal_or_an_address_is_refused(tmp_path):
    async def scenario():
        async with nodes("a", "b", tmp_path=tmp_path) as (a, b):
            where = {"a": a.transport.address, "b": b.transport.address}
            with pytest.raises(JournalError, match="in use by another process"):
                await make("a", where, tmp_path).start()
            with pytest.raises(NodeError, match="is another node of this name running"):
                await make("a", where).start()
            await a.multicast(["b"], b"unharmed")
            assert await take(b, 1) == ["a:1"]

    run(scenario())


def test_an_impostor_with_our_name_is_refused_by_those_who_know_us(tmp_path, caplog):
    async def scenario():
        async with nodes("a", "b", tmp_path=tmp_path) as (a, b):
            await a.multicast(["b"], b"1")
            assert await take(b, 1) == ["a:1"]
            elsewhere = {"a": "127.0.0.1:0", "b": b.transport.address}
            impostor = make("a", elsewhere, journal=tmp_path / "another.journal")
            await impostor.start()
            await impostor.multicast(["b"], b"false")
            await until(lambda: "came back without its journal" in reasons(caplog))
            await a.multicast(["b"], b"2")
            assert await take(b, 1) == ["a:2"]
            assert b.delivered == 2
            await impostor.close()

    with caplog.at_level(logging.WARNING):
        run(scenario())


def reasons(caplog):
    return " ".join(getattr(record, "reason", "") for record in caplog.records)


@pytest.mark.parametrize("lost", ["a", "b"])
def test_a_peer_that_lost_its_journal_is_recognised(tmp_path, caplog, lost):
    async def scenario():
        where = addresses("a", "b")
        a, b = (make(name, where, tmp_path) for name in "ab")
        await a.start()
        await b.start()
        for number in range(10):
            await a.multicast(["b"], b"%d" % number)
        assert len(await take(b, 10)) == 10
        await asyncio.gather(a.close(), b.close())
        for file in tmp_path.glob(f"{lost}.journal*"):
            file.unlink()
        a, b = (make(name, where, tmp_path) for name in "ab")
        await a.start()
        await b.start()
        await a.multicast(["b"], b"again")
        await until(lambda: "came back without its journal" in reasons(caplog))
        await asyncio.sleep(0.2)
        assert b.receive_nowait() is None
        await asyncio.gather(a.close(), b.close())

    with caplog.at_level(logging.WARNING):
        run(scenario())


@pytest.mark.parametrize("stale", ["a", "b"])
def test_an_old_copy_of_a_journal_is_recognised(tmp_path, caplog, stale):
    """What a shortened write-ahead log looks like, too: the node does not know what it has done."""

    async def scenario():
        where = addresses("a", "b")
        for round_ in range(2):
            a, b = (make(name, where, tmp_path) for name in "ab")
            await a.start()
            await b.start()
            for number in range(10):
                await a.multicast(["b"], b"%d" % number)
            assert len(await take(b, 10)) == 10
            await until(lambda a=a: not a.stats()["peers"]["b"]["outbox_frames"])
            await asyncio.gather(a.close(), b.close())
            if round_ == 0:
                shutil.copy(tmp_path / f"{stale}.journal", tmp_path / "copy")
        shutil.copy(tmp_path / "copy", tmp_path / f"{stale}.journal")
        a, b = (make(name, where, tmp_path) for name in "ab")
        await a.start()
        await b.start()
        with contextlib.suppress(NodeClosed):  # it may have met b by now
            await a.multicast(["b"], b"again")
        old = {"a": a, "b": b}[stale]
        await until(lambda: old.failure is not None)
        assert "is an old copy" in str(old.failure)
        assert stale == "b" or b.receive_nowait() is None
        await asyncio.gather(a.close(), b.close())

    with caplog.at_level(logging.WARNING):
        run(scenario())


@pytest.mark.parametrize(
    ("change", "why"),
    [({"protocol": "rst"}, "runs protocol 'rst'"), ({"members": ["b", "a"]}, "in the same order")],
    ids=["another protocol", "other members"],
)
def test_peers_that_cannot_work_together_say_why(caplog, change, why):
    async def scenario():
        where = addresses("a", "b")
        a, b = make("a", where), make("b", where, **change)
        await a.start()
        await b.start()
        await until(lambda: why in reasons(caplog))
        await asyncio.gather(a.close(), b.close())

    with caplog.at_level(logging.WARNING):
        run(scenario())
    assert len([r for r in caplog.records if why in getattr(r, "reason", "")]) <= 4  # once per end and way


def test_garbage_ends_its_connection_and_nothing_else(dice):
    async def scenario():
        async with nodes("a", "b", limits={"strangers": 8}) as (a, b):
            host, port = b.transport.address.split(":")
            for size in (0, 1, 10, 1000, 100_000):
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(dice.randbytes(size))
                writer.write_eof()
                await reader.read()
                writer.close()
            idle = [await asyncio.open_connection(host, int(port)) for _ in range(40)]
            await a.multicast(["b"], b"unharmed")
            assert await take(b, 1) == ["a:1"]
            assert len(b.transport.strangers) <= 8
            for _, writer in idle:
                writer.close()

    run(scenario())


class Proxy:
    """A way to an address that can swallow everything without a word."""

    def __init__(self, target):
        self._host, self._port = target.split(":")
        self.swallows = False
        self._tasks = set()

    async def start(self):
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _pass(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        try:
            far_reader, far_writer = await asyncio.open_connection(self._host, int(self._port))
            await asyncio.gather(self._copy(reader, far_writer), self._copy(far_reader, writer))
        except OSError:
            writer.close()

    async def _copy(self, reader, writer):
        while data := await reader.read(65536):
            if not self.swallows:
                writer.write(data)
        writer.close()

    def stop(self):
        self._server.close()
        for task in self._tasks:
            task.cancel()


def test_a_link_that_falls_silent_is_given_up_and_made_anew(caplog):
    async def scenario():
        where = addresses("a", "b")
        proxy = Proxy(where["b"])
        b = make("b", where, limits={"heartbeat": 0.05})
        a = make("a", where | {"b": await proxy.start()}, limits={"heartbeat": 0.05})
        await a.start()
        await b.start()
        await a.multicast(["b"], b"1")
        assert await take(b, 1) == ["a:1"]
        proxy.swallows = True
        await a.multicast(["b"], b"2")
        await until(lambda: "no sign of life" in reasons(caplog))
        assert b.receive_nowait() is None
        proxy.swallows = False
        assert await take(b, 1) == ["a:2"]
        await asyncio.gather(a.close(), b.close())
        proxy.stop()

    with caplog.at_level(logging.WARNING):
        run(scenario())


# The end.


def test_a_closed_node_says_so_and_ends_its_iteration():
    async def scenario():
        async with nodes("a", "b") as (a, b):
            consumer = asyncio.create_task(collect(b))
            await a.multicast(["b"], b"x")
            await until(lambda: b.delivered)
        assert await consumer == ["a:1"]
        with pytest.raises(NodeClosed):
            await a.multicast(["b"], b"too late")

    async def collect(node):
        return [message.name async for message in node]

    run(scenario())


def test_closing_waits_until_what_was_sent_has_arrived():
    async def scenario():
        where = addresses("a", "b")
        a, b = make("a", where, limits={"linger": 5.0}), make("b", where)
        await a.start()
        await a.multicast(["b"], b"do not lose me")
        closing = asyncio.create_task(a.close())
        await asyncio.sleep(0.1)
        await b.start()
        await closing
        assert await take(b, 1) == ["a:1"]
        await b.close()

    run(scenario())


def test_a_node_closes_while_its_application_acknowledges(tmp_path):
    async def scenario():
        async with nodes("a", "b", tmp_path=tmp_path) as (a, b):
            for _ in range(9000):
                a.multicast_nowait(["b"], b"x")
            await until(lambda: b.stats()["undelivered"] == 9000)
            done = 0

            async def acknowledge():
                nonlocal done
                async for message in b:
                    await asyncio.sleep(0.0001)
                    try:
                        message.ack_nowait()
                    except NodeClosed:
                        return
                    done += 1

            acknowledging = asyncio.create_task(acknowledge())
            await until(lambda: done > 100)
            await asyncio.wait_for(b.close(), 30)
            await acknowledging
            assert b.failure is None and done < 9000
            where = {"a": a.transport.address, "b": "127.0.0.1:0"}
            async with make("b", where, tmp_path) as b:
                assert (await anext(b)).number == done + 1  # each that was acknowledged, and no other

    run(scenario())


@pytest.mark.parametrize("journaled", [False, True], ids=["in memory", "journaled"])
def test_nodes_that_close_at_the_same_time_do_not_wait_for_each_other(tmp_path, journaled):
    async def scenario():
        async with nodes("a", "b", tmp_path=tmp_path if journaled else None, limits={"linger": 20}) as (a, b):
            await until(lambda: a.stats()["peers"]["b"]["calling"] and b.stats()["peers"]["a"]["calling"])
            for _ in range(100):
                a.multicast_nowait(["b"], b"x")
                b.multicast_nowait(["a"], b"y")
            start = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - start < 10

    run(scenario())


def test_a_clock_set_back_disturbs_nothing(tmp_path, monkeypatch):
    ticks = itertools.count(2_000_000_000_000_000_000, -3_600_000_000_000)  # an hour back, each time
    monkeypatch.setattr("time.time_ns", lambda: next(ticks))
    monkeypatch.setattr("time.time", lambda: next(ticks) / 1e9)

    async def scenario():
        async with nodes("a", "b", tmp_path=tmp_path, trace=tmp_path / "trace") as (a, b):
            for _ in range(20):
                await a.multicast(["b"], b"ping")
                await take(b, 1)
                await b.multicast(["a"], b"pong")
                await take(a, 1)

    run(scenario())
    trace = read(tmp_path / "trace")
    assert check_order(trace, "causal").holds and check_delivery(trace).deliveries == 40
    times = [row["time"] for row in trace.to_pylist() if row["process"] == "a"]
    assert times[0] > times[-1]  # recorded as the clock told it, and not trusted


def test_a_peer_that_expels_another_frees_those_who_wait_for_it(tmp_path):
    async def scenario():
        where = addresses("a", "b", "c")
        a, b = (make(name, where, tmp_path, {"outbox": 20_000}) for name in "ab")
        await a.start()
        await b.start()
        with pytest.raises(NodeFull):
            for _ in range(1000):
                a.multicast_nowait(["b", "c"], b"x" * 100)
        await a.expel("c")  # who never came
        await a.multicast(["b"], b"free again")
        await until(lambda: b.members == ("a", "b"))
        await asyncio.gather(a.close(), b.close())

    run(scenario())


def test_an_effect_that_cannot_be_carried_out_stops_the_node_and_not_its_journal(tmp_path, monkeypatch):
    async def scenario():
        where = addresses("a", "b")
        a = make("a", where, tmp_path)
        await a.start()
        await a.multicast(["b"], b"good")
        monkeypatch.setattr("happened.wire.MAX_FRAME", 1000)
        with pytest.raises(NodeError, match=r"a frame of .* exceeds the limit of 1000"):
            await a.multicast(["b"], b"x" * 2000)
        with pytest.raises(NodeClosed, match="has stopped"):
            await a.multicast(["b"], b"more")
        await a.close()
        monkeypatch.undo()
        a = make("a", where, tmp_path)
        await a.start()
        assert a.sent == 1
        await a.close()

    run(scenario())


def test_names_with_strange_characters_leave_a_trace(tmp_path):
    async def scenario():
        where = addresses("a/b", "._[*]@")
        first, second = (make(name, where, trace=tmp_path / "trace") for name in where)
        await first.start()
        await second.start()
        await first.multicast(["._[*]@"], b"x")
        assert await take(second, 1) == ["a/b:1"]
        await asyncio.gather(first.close(), second.close())

    run(scenario())
    assert check_delivery(read(tmp_path / "trace")).deliveries == 1
