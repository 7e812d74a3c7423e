"""Bytes altered between a node and the broker, where nodes have a key and no TLS: nothing is lost."""

import asyncio
import contextlib
from urllib.parse import urlsplit

import pytest
from brokers import broker
from test_nats_transport import Books, running
from test_node import until

from happened.net import nats_rereading
from happened.net.nats import NatsTransport
from happened.net.nats_broadcast import NatsBroadcast

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
    monkeypatch.setattr("happened.net.nats.PUBLISH_SECONDS", 2.0)

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
    assert ("bob", "not published: no answer in time") in alice.troubles


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


def test_where_nothing_is_altered_nothing_is_read_again():
    assert NatsTransport(key=KEY)._seal.rereads
    assert not NatsTransport()._seal.rereads  # who could tell?
    assert not NatsTransport("tls://broker:4222", key=KEY)._seal.rereads
    assert not NatsBroadcast("nats://broker:4222", key=KEY, tls=object())._seal.rereads
    assert nats_rereading.is_protected(["tls://one", "tls://two"], {})
    assert not nats_rereading.is_protected(["tls://one", "nats://two"], {})
