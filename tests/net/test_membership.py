"""Who joins, leaves and is expelled: what is refused, and what a restart remembers of it."""

import asyncio

import pytest
from netcluster import QUICK
from test_node import addresses, crash, make, nodes, run, take, until

from happened.core.errors import LocalProtocolError, RemoteProtocolError
from happened.net import Limits, Node, NodeError, Plaintext
from happened.net.engine import Engine
from happened.wire.membership import MARK

AWAY = "192.0.2.1:9"  # nobody's, and not loopback


async def end(node, clean):
    await (node.close() if clean else crash(node))


both_ends = pytest.mark.parametrize("clean", [False, True], ids=["after a crash", "after a clean end"])


@both_ends
def test_a_member_at_no_address_is_refused_before_anybody_is_told(tmp_path, clean):
    async def scenario():
        where = addresses("a", "b")
        a, b = (make(name, where, tmp_path) for name in "ab")
        await a.start()
        await b.start()
        for address, why in (("nonsense", "is no address"), (AWAY, "not loopback")):
            with pytest.raises(NodeError, match=why):
                await a.join("d", address)
        assert a.members == ("a", "b")
        await a.multicast(["b"], b"x")
        assert await take(b, 1) == ["a:1"]
        assert b.members == ("a", "b")
        for node in (a, b):
            await end(node, clean)
        for name in "ab":
            async with make(name, where, tmp_path) as node:
                assert node.members == ("a", "b")

    run(scenario())


@both_ends
def test_an_address_that_another_admitted_stops_nobody(tmp_path, caplog, clean):
    """a may call anybody, b only this machine; then a, too, is started with less."""

    async def scenario():
        where = addresses("a", "b")
        limits = Limits(**{**QUICK, "linger": 0.2})
        journal = tmp_path / "a.journal"
        anywhere = Plaintext(anywhere=True)
        a = Node("a", peers=where, listen=where["a"], guard=anywhere, limits=limits, journal=journal)
        b = make("b", where, tmp_path)
        await a.start()
        await b.start()
        await a.join("d", AWAY)
        await until(lambda: b.members == ("a", "b", "d"))
        told = [record for record in caplog.records if getattr(record, "event", "") == "cannot call"]
        assert [record.peer for record in told] == ["d"]
        await b.flush()
        for node in (a, b):
            await end(node, clean)
        a, b = (make(name, where, tmp_path) for name in "ab")
        await a.start()
        await b.start()
        assert a.members == b.members == ("a", "b", "d")
        await a.multicast(["b"], b"they still talk")
        assert await take(b, 1) == ["a:1"]
        await asyncio.gather(a.close(), b.close())

    run(scenario())


@both_ends
def test_a_name_that_was_a_members_is_not_admitted_again(tmp_path, clean):
    async def scenario():
        where = addresses("a", "b", "d")
        first = {name: where[name] for name in "ab"}
        a = make("a", first, tmp_path)
        await a.start()
        assert await a.join("d", where["d"]) == ("a", "b", "d")
        with pytest.raises(LocalProtocolError, match="'d' is or was a member"):
            await a.join("d", where["d"])
        await a.expel("d")
        with pytest.raises(LocalProtocolError, match="'d' is or was a member"):
            await a.join("d", where["d"])
        await end(a, clean)
        async with make("a", first, tmp_path) as a:
            assert a.members == ("a", "b")
            with pytest.raises(LocalProtocolError, match="'d' is or was a member"):
                await a.join("d", where["d"])

    run(scenario())


def test_a_peer_cannot_bring_a_name_back_either():
    registrar, engine = Engine("a", ["a", "b", "c"], "ks"), Engine("b", ["a", "b", "c"], "ks")

    def hand_over():
        registrar.release(registrar.cut())
        outbox = registrar.outboxes[1]
        for number, frame in outbox.after(outbox.acknowledged, 1 << 20):
            outbox.acknowledge(number)
            engine.receive(0, frame)

    registrar.join("d", AWAY)
    registrar.leave("d")
    hand_over()
    registrar.members.join(4, "d", AWAY)  # as a registrar that does not check would
    with pytest.raises(RemoteProtocolError, match="we disagree"):
        hand_over()


@both_ends
def test_the_last_member_leaves_and_ends(tmp_path, clean):
    async def scenario():
        where = addresses("a", "b")
        a = make("a", where, tmp_path)
        await a.start()
        await a.expel("b")
        await a.leave(timeout=30)
        await a.leave(timeout=30)  # nothing more
        await asyncio.wait_for(a.flush(), 30)
        await asyncio.wait_for(end(a, clean), 30)
        async with make("a", where, tmp_path) as a:
            with pytest.raises(LocalProtocolError, match="has left the others"):
                await a.multicast(["a"], b"to nobody")
            await a.leave(timeout=30)

    run(scenario())


@both_ends
def test_who_has_left_sends_nothing_more(tmp_path, clean):
    async def scenario():
        async with nodes("a", "b", "c", tmp_path=tmp_path) as (a, b, c):
            where = {node.name: node.transport.address for node in (a, b, c)}
            await a.multicast(["b", "c"], b"1")
            await a.leave()
            with pytest.raises(LocalProtocolError, match="'a' has left the others"):
                await a.multicast(["b", "c"], b"2")
            await until(lambda: b.members == c.members == ("b", "c"))
            await end(a, clean)
            async with make("a", where, tmp_path) as again:
                with pytest.raises(LocalProtocolError, match="'a' has left the others"):
                    await again.multicast(["b", "c"], b"2")
            await b.multicast(["c"], b"3")
            assert await take(c, 2) == ["a:1", "b:1"]

    run(scenario())


@both_ends
def test_what_was_sent_before_leaving_arrives_although_others_spread_the_news(tmp_path, clean):
    """c hears from b that a has left while the link from a to c is cut, and says farewell when it has all."""

    async def scenario():
        async with nodes("a", "b", "c", tmp_path=tmp_path) as (a, b, c):
            await until(lambda: all(peer["calling"] for peer in a.stats()["peers"].values()))
            link = a.transport._links["c"]
            link._task.cancel()
            link.calling.end("")
            await until(lambda: not c.stats()["peers"]["a"]["called"])
            await a.multicast(["b", "c"], b"1")
            assert await take(b, 1) == ["a:1"]
            await b.multicast(["c"], b"2")
            leaving = asyncio.create_task(a.leave())
            await until(lambda: c.members == ("b", "c"))
            await asyncio.sleep(0.5)  # c would have parted with a by now
            assert a.host.received("c") == 0 and not leaving.done() and c.stats()["held"] == 1
            link._task = asyncio.create_task(link._call())
            await leaving
            await end(a, clean)
            assert await take(c, 2) == ["a:1", "b:1"]

    run(scenario())


@both_ends
def test_who_was_expelled_learns_it_and_sends_nothing_more(tmp_path, clean):
    async def scenario():
        where = addresses("a", "b")
        a, b = (make(name, where, tmp_path) for name in "ab")
        await a.start()
        await b.start()
        await a.multicast(["b"], b"1")
        assert await take(b, 1) == ["a:1"]
        await crash(b)
        await a.expel("b")
        await end(a, clean)
        a, b = (make(name, where, tmp_path) for name in "ab")
        await a.start()
        await b.start()
        await until(lambda: b.host.received("a") == 2)  # the message, and the farewell
        with pytest.raises(LocalProtocolError, match="they have expelled it"):
            await b.multicast(["a"], b"I live")
        await end(b, clean)
        async with make("b", where, tmp_path) as b:
            with pytest.raises(LocalProtocolError, match="they have expelled it"):
                await b.multicast(["a"], b"I live")
        assert a.members == ("a",) and a.receive_nowait() is None
        await a.close()

    run(scenario())


def test_a_change_of_members_that_is_nested_too_deep_is_refused():
    engine = Engine("b", ["a", "b", "c"], "ks")
    before = engine.snapshot()
    with pytest.raises(RemoteProtocolError, match="not a change of members"):
        engine.receive(0, bytes((MARK,)) + b"[" * 100_000)
    assert not engine.is_dirty and engine.snapshot() == before


def test_who_leaves_keeps_its_own_multicasts_back(tmp_path):
    """In `causal-total` an application that never stops sending would never have sent it all."""

    async def scenario():
        async with nodes("a", "b", "c", tmp_path=tmp_path, protocol="causal-total") as (a, b, c):
            refused = None

            async def send():
                nonlocal refused
                with pytest.raises(LocalProtocolError, match="'c' has left the others") as refused:
                    while True:
                        await c.multicast(["a", "b"], b"more")

            sending = [asyncio.create_task(send()) for _ in range(4)]
            await until(lambda: c.sent > 10)
            await c.leave(timeout=20)
            await asyncio.gather(*sending)
            await until(lambda: a.members == b.members == ("a", "b"))
            assert await take(a, c.sent) == await take(b, c.sent)

    run(scenario())


def test_who_comes_back_after_it_has_left_is_told_why_it_is_refused(tmp_path, caplog):
    async def scenario():
        where = addresses("a", "b", "c")
        a, b, c = (make(name, where, tmp_path) for name in "abc")
        for node in (a, b, c):
            await node.start()
        await b.leave()
        await b.close()
        await until(lambda: a.members == ("a", "c"))
        # A journal from before the departure would say more; one that is lost says nothing.
        (tmp_path / "b.journal").unlink()
        b = make("b", where, tmp_path)
        await b.start()
        told = "no link to a: it refused us: 'b' is no longer a peer of 'a'; it has left or was expelled"
        await until(lambda: told in caplog.text, caplog.text)
        for node in (a, b, c):
            await node.close()

    run(scenario())
