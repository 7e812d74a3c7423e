"""Bytes altered between a node and the broker, where nodes have a key and no TLS: nothing is lost."""

import asyncio
import contextlib
from urllib.parse import urlsplit

import pytest
from brokers import broker
from test_nats_transport import Books, becomes_empty, incarnation, running
from test_node import until

from happened.net import nats_security
from happened.net.nats import NatsTransport
from happened.net.nats_broadcast import NatsBroadcast
from happened.net.nats_link import Link

KEY = b"k" * 32
NAMES = ["alice", "bob"]
FRAMES = [b"precious %d" % number for number in range(6)]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with broker(tmp_path_factory.mktemp("nats")) as one:
        yield one


class Wire:
    """A way to the broker that alters the next `up` publications, or `down` messages that come from there."""

    def __init__(self, server, *, up=0, down=0):
        self._server = urlsplit(server.urls[0])
        self.left = {"up": up, "down": down}

    @contextlib.asynccontextmanager
    async def laid(self):
        listener = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        async with listener:
            yield f"nats://127.0.0.1:{listener.sockets[0].getsockname()[1]}"

    async def _connected(self, reader, writer):
        there = await asyncio.open_connection(self._server.hostname, self._server.port)
        with contextlib.suppress(OSError):
            await asyncio.gather(self._carry(reader, there[1], "up"), self._carry(there[0], writer, "down"))

    async def _carry(self, reader, writer, way):
        while data := await reader.read(1 << 16):
            if self.left[way] and b"precious" in data:
                self.left[way] -= 1
                data = data.replace(b"precious", b"pernicio")
            writer.write(data)
            await writer.drain()
        writer.close()


def exchange(server, stream, alices, bobs, frames=FRAMES, transport=NatsTransport):
    """Send them one by one from alice to bob, over these wires."""

    async def scenario():
        alice, bob = Books("alice", NAMES), Books("bob", NAMES)
        async with (
            alices.laid() as alices_url,
            bobs.laid() as bobs_url,
            running(bob, bobs_url, kind=transport, stream=stream, key=KEY),
            running(alice, alices_url, kind=transport, stream=stream, key=KEY),
        ):
            for frame in frames:
                alice.put("bob", frame)
                await alice.until(lambda books: not len(books.outboxes["bob"]))
            await bob.until(lambda books: len(books.taken["alice"]) >= len(frames))
        assert alices.left == bobs.left == {"up": 0, "down": 0}
        assert bob.taken["alice"] == frames
        return alice, bob

    return asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_publication_that_was_altered_is_published_again(server):
    alice, _ = exchange(server, "up", Wire(server, up=2), Wire(server))
    assert sum("was altered on its way to the broker" in why for _, why in alice.troubles) == 2


def test_a_message_that_was_altered_on_its_way_from_the_broker_is_read_again(server):
    alice, bob = exchange(server, "down", Wire(server), Wire(server, down=2))
    assert sum("no tag of the group's key" in why for _, why in bob.troubles) == 2
    assert not alice.troubles


def test_both_ways_at_once(server):
    exchange(server, "both", Wire(server, up=2), Wire(server, down=2))


@pytest.mark.long
def test_a_connection_whose_client_waits_for_bytes_that_nobody_sent_is_made_anew(server, monkeypatch):
    """The size of a message is altered: all that follows is taken for a part of it, signs of life too."""
    monkeypatch.setattr("happened.net.nats.PING_SECONDS", 0.2)

    class Sizes(Wire):
        async def _carry(self, reader, writer, way):
            while data := await reader.read(1 << 16):
                if self.left[way] and b"precious" in data:
                    self.left[way] -= 1
                    line, _, rest = data.partition(b"\r\n")  # ends with the size
                    data = line + b"00000\r\n" + rest
                writer.write(data)
                await writer.drain()
            writer.close()

    exchange(server, "sizes", Wire(server), Sizes(server, down=1))


@pytest.mark.parametrize("transport", [NatsTransport, NatsBroadcast])
def test_a_client_that_has_closed_for_good_is_replaced(server, transport):
    """As the client does whenever the broker tells it of an error: here, of bytes that are no command."""

    class Commands(Wire):
        async def _carry(self, reader, writer, way):
            while data := await reader.read(1 << 16):
                if self.left[way] and b"precious" in data:
                    self.left[way] -= 1
                    data = b"DO IT\r\n" + data
                writer.write(data)
                await writer.drain()
            writer.close()

    stream = f"closed-{transport.__name__}"
    alice, _ = exchange(server, stream, Commands(server, up=1), Wire(server), transport=transport)
    assert ("the broker", "nats: unknown protocol operation") in alice.troubles


@pytest.mark.slow
def test_who_gets_no_answers_says_so_and_connects_anew(server, monkeypatch):
    """What is left out has the subscription that answers to publications go to: signs of life still come."""
    monkeypatch.setattr("happened.net.nats_broker.PUBLISH_SECONDS", 2.0)

    class Hole(Wire):
        async def _carry(self, reader, writer, way):
            while data := await reader.read(1 << 16):
                if self.left[way] and b"precious" in data:
                    self.left[way] -= 1
                    continue
                writer.write(data)
                await writer.drain()
            writer.close()

    alice, _ = exchange(server, "hole", Hole(server, up=1), Wire(server))
    assert ("bob", "not published: the broker does not answer in time") in alice.troubles


def test_without_reading_again_a_frame_is_lost(server, monkeypatch):
    monkeypatch.setattr("happened.net.nats.is_protected", lambda *_: True)

    async def scenario():
        alice, bob = Books("alice", NAMES), Books("bob", NAMES)
        async with (
            Wire(server, up=1).laid() as url,
            running(bob, server.urls, stream="lost", key=KEY),
            running(alice, url, stream="lost", key=KEY),
        ):
            alice.put("bob", b"precious")
            await alice.until(lambda books: not len(books.outboxes["bob"]))
            await until(lambda: bob.troubles)
        assert bob.taken["alice"] == [] and not alice.troubles

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_the_longest_frame_can_be_read_again(server):
    exchange(server, "long", Wire(server), Wire(server), [b"x" * 900_000])


class SpoiltWire(Wire):
    """Once it is spoilt, what comes up first has no meaning for the broker."""

    is_spoilt = False

    async def _carry(self, reader, writer, way):
        while data := await reader.read(1 << 16):
            if way == "up" and self.is_spoilt:
                self.is_spoilt, data = False, b"PRECIOUS\r\n" + data
            writer.write(data)
            await writer.drain()
        writer.close()


@pytest.mark.parametrize("kind", [NatsTransport, NatsBroadcast], ids=["links", "broadcast"])
def test_a_client_that_the_broker_tells_of_an_error_is_replaced(server, kind):
    """It closes for good then."""

    async def scenario():
        alice, bob = Books("alice", NAMES), Books("bob", NAMES)
        wire, stream = SpoiltWire(server), f"spoilt-{kind.__name__}"
        async with (
            wire.laid() as url,
            running(bob, server.urls, stream=stream, kind=kind),
            running(alice, url, stream=stream, kind=kind) as transport,
        ):
            alice.put("bob", b"1")
            bob.put("alice", b"2")
            await bob.until(lambda books: books.taken["alice"] == [b"1"])
            client, wire.is_spoilt = transport._client, True
            alice.put("bob", b"3")
            await until(lambda: client.is_closed)
            alice.put("bob", b"4")
            bob.put("alice", b"5")
            await bob.until(lambda books: books.taken["alice"] == [b"1", b"3", b"4"])
            await alice.until(lambda books: books.taken["bob"] == [b"2", b"5"])

    asyncio.run(asyncio.wait_for(scenario(), 60))


class DeafWire(Wire):
    """While it is deaf, subscriptions over it are to something else; but for the first on each connection, to
    which the answers come by which a client is set up."""

    is_deaf = True

    async def _carry(self, reader, writer, way):
        told, subscription = 0, b"SUB _INBOX."
        while data := await reader.read(1 << 16):
            if way == "up" and self.is_deaf:
                before, first, after = data.partition(subscription) if not told else (b"", b"", data)
                told += bool(first)
                data = before + first + after.replace(subscription, b"SUB _XINBO.")
            writer.write(data)
            await writer.drain()
        writer.close()


def test_a_client_that_gets_no_answers_is_replaced(server, monkeypatch):
    """As when the subscription to them was altered on its way, on a connection that is good otherwise."""
    monkeypatch.setattr("happened.net.nats_broker.PUBLISH_SECONDS", 0.3)
    monkeypatch.setattr("happened.net.nats_link.PULL_SECONDS", 0.3)

    async def scenario():
        alice, bob = Books("alice", NAMES), Books("bob", NAMES)
        wire = DeafWire(server)
        async with (
            wire.laid() as url,
            running(bob, server.urls, stream="deaf"),
            running(alice, url, stream="deaf") as transport,
        ):
            client = transport._client
            alice.put("bob", b"1")
            bob.put("alice", b"2")
            await until(lambda: client.is_lost.is_set())
            wire.is_deaf = False
            await bob.until(lambda books: books.taken["alice"] == [b"1"])
            await alice.until(lambda books: books.taken["bob"] == [b"2"])

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_receipt_that_was_altered_is_left_again(server, monkeypatch):
    """Its sender has nothing else by which it knows that what it published was not altered."""
    check_stored, stream, spoilt = Link._check_stored, "receipt", []

    async def check_late(link, confirmation, batch):
        await becomes_empty(bob.transport, stream)
        if not spoilt:
            spoilt.append(await link._jetstream.publish(f"{stream}-receipts.bob.alice", b"altered"))
        await check_stored(link, confirmation, batch)

    class Met(Books):
        def hello(self, peer):
            return super().hello(peer)._replace(knows=incarnation(peer))

    alice, bob = Met("alice", NAMES), Met("bob", NAMES)
    monkeypatch.setattr(Link, "_check_stored", check_late)

    async def scenario():
        async with (
            running(bob, server.urls, stream=stream, key=KEY),
            running(alice, server.urls, stream=stream, key=KEY),
        ):
            alice.put("bob", b"1")
            await alice.until(lambda books: not len(books.outboxes["bob"]))
            assert bob.taken["alice"] == [b"1"] and spoilt

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_where_nothing_is_altered_nothing_is_read_again():
    assert NatsTransport(key=KEY).seal.rereads
    assert not NatsTransport().seal.rereads  # who could tell?
    assert not NatsTransport("tls://broker:4222", key=KEY).seal.rereads
    assert not NatsBroadcast("nats://broker:4222", key=KEY, tls=object()).seal.rereads
    assert nats_security.is_protected(["tls://one", "tls://two"], {})
    assert not nats_security.is_protected(["tls://one", "nats://two"], {})
