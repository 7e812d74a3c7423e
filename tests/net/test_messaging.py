"""Broadcasts, requests, acknowledgements with a multicast, messages given back, and who takes what."""

import asyncio
import subprocess
import sys

import pytest

from happened.core.errors import LocalProtocolError
from happened.net import JSON, Limits, NodeClosed, NodeError, NodeFull, was_sent
from happened.net.journal import Journal
from happened.testing import MemoryNetwork

NAMES = ("a", "b", "c")


QUICK = Limits(linger=0.1)


def run(scenario):
    return asyncio.run(asyncio.wait_for(scenario, 60))


async def take(taker, count=1):
    async with asyncio.timeout(20):
        return [await anext(taker) for _ in range(count)]


async def names(taker, count=1):
    return [message.name for message in await take(taker, count)]


async def until(condition):
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.002)


@pytest.fixture(params=[False, True], ids=["memory", "journal"])
def journals(request, tmp_path):
    """The options of a node's journal."""
    return (lambda name: {"journal": tmp_path / name}) if request.param else (lambda name: {})


# Broadcast, requests and replies.


def test_a_broadcast_goes_to_all_others_who_are_present(tmp_path):
    async def scenario():
        async with MemoryNetwork().nodes(*NAMES, limits=QUICK, codec=JSON) as (a, b, c):
            assert a.others == ("b", "c")
            name = await a.broadcast({"x": 1})
            assert [message.value for message in await take(b) + await take(c)] == [{"x": 1}] * 2
            assert a.receive_nowait() is None and name == "a:1"
            await a.expel("c")
            await a.broadcast(2)
            assert (await take(b))[0].value == 2 and c.receive_nowait() is None
            await a.expel("b")
            with pytest.raises(LocalProtocolError, match="at least one destination"):
                await a.broadcast(3)

    run(scenario())


def test_a_request_gets_its_reply_past_what_waits_and_both_are_acknowledged(journals):
    async def scenario():
        network = MemoryNetwork()
        a, b = (
            network.node(name, ("a", "b"), limits=QUICK, codec=JSON, headers=True, **journals(name))
            for name in "ab"
        )
        async with a, b:

            async def serve():
                async for message in b:
                    if message.is_request:
                        await b.multicast("a", "first")
                        await message.reply(message.value + 1)

            serving = asyncio.create_task(serve())
            replies = await asyncio.gather(*(a.request("b", number, timeout=20) for number in range(5)))
            assert [each.value for each in replies] == [1, 2, 3, 4, 5]
            assert [each.reply_to for each in replies] == [f"a:{k}" for k in range(1, 6)]
            await until(lambda: b.acknowledged == 5)
            for reply in replies:
                await reply.ack()
            assert [(each.value, each.reply_to) for each in await take(a, 5)] == [("first", None)] * 5
            serving.cancel()

    run(scenario())


def test_a_reply_that_comes_too_late_is_a_message_and_nothing_is_lost(journals):
    async def scenario():
        network = MemoryNetwork()
        a, b = (
            network.node(name, ("a", "b"), limits=QUICK, codec=JSON, headers=True, **journals(name))
            for name in "ab"
        )
        async with a, b:
            with pytest.raises(TimeoutError, match=r"'b' has not replied to a:1 within 0.05 s") as caught:
                await a.request("b", "?", timeout=0.05)
            assert was_sent(caught.value) == "a:1"
            (asked,) = await take(b)
            await asked.reply("late")
            (late,) = await take(a)
            assert (late.value, late.reply_to, late.is_request) == ("late", "a:1", False)
            asking = asyncio.create_task(a.request("b", "again"))
            await take(b)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError) as cancelled:
                await asking
            assert was_sent(cancelled.value) == "a:2"
            asking = asyncio.create_task(a.request("b", "?"))
            await take(b)
            await a.close()
            with pytest.raises(NodeClosed):
                await asking

    run(scenario())


def test_requests_and_replies_need_headers_and_some_names_are_taken():
    async def scenario():
        async with MemoryNetwork().nodes("a", "b", limits=QUICK) as (a, b):
            with pytest.raises(LocalProtocolError, match=r"requests need Node\(headers=True\)"):
                await a.request("b", b"?")
            await a.multicast("b", b"!")
            with pytest.raises(LocalProtocolError, match=r"replies need Node\(headers=True\)"):
                await (await take(b))[0].reply(b"")
        async with MemoryNetwork().nodes("a", "b", limits=QUICK, headers=True) as (a, b):
            for headers, why in (({"happened-re": "x"}, "are taken"), ({"n": 1}, "are text")):
                with pytest.raises(LocalProtocolError, match=why):
                    await a.multicast("b", b"", headers=headers)
            await a.multicast("b", b"!", headers={"kind": "greeting"})
            (message,) = await take(b)
            assert (message.headers, message.payload, message.is_request) == (
                {"kind": "greeting"},
                b"!",
                False,
            )

    run(scenario())


# Acknowledging and sending in one commit.


@pytest.mark.parametrize("written", [False, True], ids=["before the commit", "after it"])
def test_a_crash_does_both_the_acknowledgement_and_the_multicast_or_neither(tmp_path, monkeypatch, written):
    async def scenario():
        network, both = MemoryNetwork(), ("a", "b")
        append = Journal.append
        b = network.node("b", both, journal=tmp_path / "b")
        async with network.node("a", both, journal=tmp_path / "a") as a:
            await b.start()
            await a.multicast("b", b"order")
            (message,) = await take(b)

            def crash(self, *batch):
                if self.path == tmp_path / "b":
                    if written:
                        append(self, *batch)
                    raise NodeError("unplugged")
                return append(self, *batch)

            monkeypatch.setattr(Journal, "append", crash)
            with pytest.raises(NodeClosed):
                await message.ack_and_multicast("a", b"done")
            await b.close()
            monkeypatch.setattr(Journal, "append", append)
            async with network.node("b", both, journal=tmp_path / "b") as b:
                again = b.receive_nowait()
                assert (b.sent, b.acknowledged) == ((1, 1) if written else (0, 0))
                if written:
                    assert again is None
                else:
                    assert again.name == "a:1"
                    assert await again.ack_and_multicast("a", b"done") == "b:1"
                assert (await take(a))[0].payload == b"done"

    run(scenario())


def test_what_refuses_the_multicast_acknowledges_nothing_and_an_acknowledged_one_sends_nothing(tmp_path):
    async def scenario():
        network, both = MemoryNetwork(), ("a", "b")
        async with network.node("a", both) as a, network.node("b", both, journal=tmp_path / "b") as b:
            await a.multicast("b", b"order")
            (message,) = await take(b)
            for to, value in (("nobody", b""), ("a", "text"), ("a", bytes(2 << 20))):
                with pytest.raises(LocalProtocolError):
                    await message.ack_and_multicast(to, value)
            assert (b.acknowledged, b.sent) == (0, 0)
            await message.ack_and_multicast(["a"], b"done")
            await message.ack()  # which says nothing new
            assert (b.acknowledged, b.sent) == (1, 1)
            with pytest.raises(LocalProtocolError, match="acknowledged already"):
                await message.ack_and_multicast(["a"], b"done")
            with pytest.raises(LocalProtocolError, match="acknowledged already"):
                message.nack()
            assert b.sent == 1

    run(scenario())


# Giving back.


def test_a_message_that_is_given_back_comes_again_after_the_delay(journals):
    async def scenario():
        network = MemoryNetwork()
        a, b = (network.node(name, ("a", "b"), limits=QUICK, **journals(name)) for name in "ab")
        async with a, b:
            await a.multicast("b", b"1")
            await a.multicast("b", b"2")
            await until(lambda: b.delivered == 2)
            (first,) = await take(b)
            loop = asyncio.get_running_loop()
            since = loop.time()
            first.nack(delay=0.1)
            for forbidden in (first.nack, first.ack_nowait):
                with pytest.raises(LocalProtocolError, match="given back"):
                    forbidden()
            second, again = await take(b, 2)
            assert loop.time() - since >= 0.09
            assert (second.payload, second.attempt) == (b"2", 1)
            assert (again.name, again.number, again.attempt) == ("a:1", 1, 2)
            again.nack()
            (third,) = await take(b)
            assert (third.name, third.attempt) == ("a:1", 3)
            await third.ack()
            await second.ack()
            assert b.acknowledged == 2 and b.stats()["unacknowledged"] == 0

    run(scenario())


def test_messages_given_back_count_and_come_again_after_a_restart(tmp_path):
    async def scenario():
        network, both = MemoryNetwork(), ("a", "b")
        async with network.node("a", both, journal=tmp_path / "a") as a:
            async with network.node("b", both, journal=tmp_path / "b") as b:
                await a.multicast("b", b"1")
                (message,) = await take(b)
                message.nack(delay=3600)
            async with network.node("b", both, journal=tmp_path / "b") as b:
                assert await names(b) == ["a:1"]
        limits = Limits(undelivered=3, linger=0.1)
        async with MemoryNetwork().nodes("a", "b", limits=limits) as (a, b):
            for _ in range(4):
                await a.multicast("b", b"")
                (await take(b))[0].nack(delay=3600)
            assert b.stats()["unacknowledged"] == 4 and b.stats()["peers"]["a"]["paused"]

    run(scenario())


# Who takes what.


def test_iterating_can_be_left_and_entered_again_and_shared(journals):
    async def scenario():
        network = MemoryNetwork()
        a, b = (network.node(name, ("a", "b"), limits=QUICK, **journals(name)) for name in "ab")
        async with a, b:
            for number in range(60):
                await a.multicast("b", b"%d" % number)
            got = []
            for stop in (2, 5):
                async for message in b:
                    got.append(message.clock)
                    if len(got) == stop:
                        break

            async def share(taken):
                async for message in b:
                    taken.append(message.clock)
                    await asyncio.sleep(0)

            shares = [], []
            takers = [asyncio.create_task(share(each)) for each in shares]
            await until(lambda: len(got) + sum(map(len, shares)) == 60)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await anext(b)
            await a.multicast("b", b"last")
            await until(lambda: len(got) + sum(map(len, shares)) == 61)
            assert sorted(got + shares[0] + shares[1]) == list(range(1, 62)) and all(shares)
            for taker in takers:
                taker.cancel()

    run(scenario())


def test_subscriptions_get_a_copy_each_and_all_of_them_acknowledge(journals):
    async def scenario():
        network = MemoryNetwork()
        a, b = (network.node(name, ("a", "b"), limits=QUICK, **journals(name)) for name in "ab")
        async with a, b:
            await a.multicast("b", b"1")
            await until(lambda: b.delivered == 1)
            waiting = asyncio.create_task(anext(a))
            with b.subscribe() as one, b.subscribe() as two:
                await a.multicast("b", b"2")
                assert await names(one, 2) == ["a:1", "a:2"]
                if b.is_journaled:
                    assert b.acknowledged == 0
                mine = await take(two, 2)
                assert [message.name for message in mine] == ["a:1", "a:2"]
                with pytest.raises(LocalProtocolError, match="iterate over one"):
                    await anext(b)
                for message in mine:
                    await message.ack()
                    await message.ack()  # twice by one is not once by both
                assert b.acknowledged == (0 if b.is_journaled else 2)
                a.subscribe()
                with pytest.raises(LocalProtocolError, match="iterate over one"):
                    await waiting

    run(scenario())


def test_a_copy_counts_until_its_consumer_has_acknowledged_it_or_left_it_behind(tmp_path):
    async def scenario():
        network, both = MemoryNetwork(), ("a", "b")
        a, b = (network.node(name, both, journal=tmp_path / name) for name in both)
        async with a, b:
            one, two = b.subscribe(), b.subscribe()
            for number in range(3):
                await a.multicast("b", b"%d" % number)
            first = await take(one, 3)
            (second,) = await take(two)
            for message in first:
                await message.ack()
            assert b.acknowledged == 0
            assert second.clock == 1
            two.close()  # what it has not taken, one has acknowledged; what it took, comes again
            assert b.acknowledged == 0 and sorted(b._engine.unacknowledged) == [1]
            with pytest.raises(StopAsyncIteration):
                await anext(two)
            await a.multicast("b", b"3")
            await until(lambda: b.delivered == 4)
            assert await names(one) == ["a:4"]
            three = b.subscribe()
            await a.multicast("b", b"4")
            assert await names(three) == ["a:5"]
            three.close()
            assert await names(one) == ["a:5"]
            for number in (6, 7):
                await a.multicast("b", b"%d" % number)
            await until(lambda: b.delivered == 7)
            await b.flush()  # so that both can be taken
            (sixth,) = await take(one)
            sixth.nack(delay=0.01)
            one.close()
            assert await names(b, 2) == ["a:7", "a:6"]  # nobody else had them

    run(scenario())


# Sending that is cancelled.


def test_a_cancelled_multicast_says_whether_it_was_sent(tmp_path):
    async def scenario():
        network, both = MemoryNetwork(), ("a", "b")
        limits = Limits(outbox=1000, linger=0.2)
        async with network.node("a", both, journal=tmp_path / "a", limits=limits) as a:
            errors = []
            for cancel in ("task", "timeout", "wait_for"):
                try:
                    if cancel == "task":
                        task = asyncio.create_task(a.multicast("b", b"x"))
                        await asyncio.sleep(0)
                        task.cancel()
                        await task
                    elif cancel == "timeout":
                        async with asyncio.timeout(1e-6):
                            await a.multicast("b", b"x")
                    else:
                        await asyncio.wait_for(a.multicast("b", b"x"), 1e-6)
                except (asyncio.CancelledError, TimeoutError) as error:
                    errors.append(was_sent(error))
            assert errors == ["a:1", "a:2", "a:3"] and a.sent == 3
            await a.multicast("b", bytes(1000))
            with pytest.raises(TimeoutError) as caught:
                async with asyncio.timeout(0.02):
                    await a.multicast("b", b"x")
            with pytest.raises(NodeFull) as full:
                await a.multicast("b", b"x", timeout=0.01)
            assert was_sent(caught.value) is None is was_sent(full.value) and a.sent == 4
            async with network.node("b", both) as b:
                assert await names(b, 4) == ["a:1", "a:2", "a:3", "a:4"]

    run(scenario())


# What is public.


def test_everything_public_is_in_one_place_and_needs_no_broker():
    code = (
        "import sys, happened.net as net\n"
        "for each in net.__all__:\n"
        "    if not each.startswith(('Nats', 'Signatures')): getattr(net, each)\n"
        "assert not {'nats', 'msgpack', 'pydantic', 'cryptography', 'pyarrow'} & set(sys.modules)\n"
        "from happened.net import Node, MutualTls, NatsTransport, NatsBroadcast\n"
        "assert 'nats' in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_peers_are_names_alone_where_addresses_mean_nothing():
    from happened.net import NatsTransport, Node, Plaintext

    async def scenario():
        network = MemoryNetwork()
        a, b = (
            Node(name, peers=["a", "b"], transport=network.transport(name), limits=QUICK) for name in "ab"
        )
        async with a, b:
            await a.broadcast(b"hello")
            assert await names(b) == ["a:1"]

    run(scenario())
    assert Node("a", peers=["b"], transport=NatsTransport("nats://127.0.0.1:1"))._initial.members == (
        "a",
        "b",
    )
    with pytest.raises(LocalProtocolError, match="give an address for 'b'"):
        Node("a", peers=["b"], guard=Plaintext())
