"""The JetStream transport's own contract, on real servers: every frame once, in order, whatever is repeated.

The hosts here keep the books of a node (outbox, inbox, what is journaled) and nothing else: so a test can
decide when something becomes durable and can look at what the broker was told.
"""

import asyncio
import contextlib
import hashlib
import json

import pytest
from brokers import broker

from happened.core.errors import LocalProtocolError
from happened.net import Node
from happened.net.errors import NodeError, PeerRefused
from happened.net.link import Inbox, Outbox
from happened.net.nats import NatsTransport
from happened.net.nats_link import IN_HAND
from happened.net.records import frames_out, hello_to_json
from happened.net.transport import Hello


def incarnation(name):
    return hashlib.sha256(name.encode()).digest()[:8]


class Books:
    """What a node knows about its links; it journals at once unless `journaling` is off."""

    def __init__(self, name, members):
        self.name = name
        self.members = members
        self.outboxes = {peer: Outbox() for peer in members if peer != name}
        self.inboxes = {peer: Inbox() for peer in members if peer != name}
        self.taken = {peer: [] for peer in self.inboxes}
        self.journaling = True
        self.transport = None
        self.troubles = []
        self.changed = asyncio.Event()

    def hello(self, peer):
        return Hello(incarnation(self.name), b"", "ks", tuple(self.members))

    def meet(self, peer, hello):
        if hello.protocol != "ks" or hello.incarnation != incarnation(peer):
            raise PeerRefused(f"{peer!r} is not who we knew")

    def confirmed(self, peer, number):
        assert number <= self.inboxes[peer].durable, "a receipt came before its journal"

    def resumes(self, peer, number, life):
        self.outboxes[peer].acknowledge(number)

    def shows(self, peer, number, life):
        assert number <= self.outboxes[peer].released

    def outbox(self, peer):
        return self.outboxes[peer]

    def freed(self, peer, number):
        self.outboxes[peer].acknowledge(number)
        self.changed.set()

    def expects(self, peer):
        return self.inboxes[peer].received_through + 1

    def received(self, peer):
        return self.inboxes[peer].durable

    def numbered_in(self, peer, lives):
        pass

    def arrived(self, peer, frames):
        inbox = self.inboxes[peer]
        for number, frame in frames:
            if inbox.is_new(number):
                self.taken[peer].append(frame)
                inbox.received_through = number
        if self.journaling:
            self.journal(peer)
        self.changed.set()

    def journal(self, peer):
        self.inboxes[peer].durable = self.inboxes[peer].received_through
        self.transport.durable(peer, self.inboxes[peer].durable)

    def connected(self, peer, outgoing):
        pass

    def disconnected(self, peer, outgoing, reason):
        self.troubles.append((peer, reason))

    def put(self, peer, *frames):
        for frame in frames:
            self.outboxes[peer].release(self.outboxes[peer].put(frame))
        self.transport.wake(peer)

    async def until(self, condition):
        async with asyncio.timeout(90):  # in all: a message that is redelivered for ever changes things too
            while not condition(self):
                self.changed.clear()
                await self.changed.wait()


@contextlib.asynccontextmanager
async def running(books, urls, *, signer=None, kind=NatsTransport, **options):
    transport = books.transport = kind(urls, **options)
    if signer is not None:
        transport.sign_with(signer)
    for peer in books.inboxes:
        transport.add_peer(peer, "")
    await transport.start(books)
    try:
        yield transport
    finally:
        await transport.close()


async def becomes_empty(transport, stream):
    """The broker has been told that everything is dealt with."""
    async with asyncio.timeout(90):
        while (await transport._client.jetstream().stream_info(stream)).state.messages:
            await asyncio.sleep(0.05)


@pytest.fixture(scope="module")
def one_server(tmp_path_factory):
    with broker(tmp_path_factory.mktemp("nats")) as server:
        yield server


def test_frames_arrive_once_and_in_order_and_the_broker_keeps_nothing(one_server):
    async def act():
        names = ["alice", "Zoë. *>7"]
        alice, zoe = (Books(name, names) for name in names)
        async with running(alice, one_server.urls, stream="in-order") as transport:
            frames = [b"%d" % i * (i % 50) for i in range(3000)]
            alice.put(names[1], *frames)  # before its receiver exists
            async with running(zoe, one_server.urls, stream="in-order"):
                zoe.put("alice", b"hello")
                await zoe.until(lambda books: len(books.taken["alice"]) >= len(frames))
                await alice.until(lambda books: books.taken[names[1]] == [b"hello"])
                await alice.until(lambda books: len(books.outboxes[names[1]]) == 0)
                await becomes_empty(transport, "in-order")
            assert zoe.taken["alice"] == frames

    asyncio.run(act())


def test_what_was_not_journaled_comes_again_to_a_restarted_node(one_server):
    async def act():
        alice, bob = Books("alice", ["alice", "bob"]), Books("bob", ["alice", "bob"])
        bob.journaling = False
        async with running(alice, one_server.urls, stream="again"):
            alice.put("bob", *[b"%d" % i for i in range(100)])
            async with running(bob, one_server.urls, stream="again"):
                await bob.until(lambda books: len(books.taken["alice"]) == 100)
            restarted = Books("bob", ["alice", "bob"])
            async with running(restarted, one_server.urls, stream="again"):
                await restarted.until(lambda books: len(books.taken["alice"]) == 100)
            assert restarted.taken["alice"] == bob.taken["alice"]

    asyncio.run(act())


def test_a_sender_that_repeats_everything_repeats_nothing(one_server):
    """A sender killed before it heard from the broker publishes again, in other batches."""

    async def act():
        bob = Books("bob", ["alice", "bob"])
        frames = [b"%d" % i for i in range(500)]
        async with running(bob, one_server.urls, stream="repeats"):
            for _ in range(3):
                alice = Books("alice", ["alice", "bob"])
                async with running(alice, one_server.urls, stream="repeats"):
                    alice.put("bob", *frames[:137])
                    await asyncio.sleep(0)
                    alice.put("bob", *frames[137:])
                    await alice.until(lambda books: len(books.outboxes["bob"]) == 0)
            await bob.until(lambda books: len(books.taken["alice"]) >= 500)
            assert bob.taken["alice"] == frames

    asyncio.run(act())


def test_messages_that_overtook_one_another_in_the_stream_are_taken_in_order(one_server, dice):
    """As many as can be ahead of an earlier one, in batches that overlap as a restarted sender's do."""

    async def act():
        alice, bob = Books("alice", ["alice", "bob"]), Books("bob", ["alice", "bob"])
        async with running(alice, one_server.urls, stream="overtaken") as transport:
            link = transport._links["bob"]
            frames = [(number, b"%d" % number) for number in range(1, 41)]
            starts = range(0, len(frames), 3)
            batches = [frames[start : start + dice.randint(3, 6)] for start in starts]
            batches += [frames[start : start + 5] for start in dice.sample(starts, 6)]
            assert len(batches) < IN_HAND
            dice.shuffle(batches)
            for batch in batches:
                await (await link._publish_batch(batch))
            async with running(bob, one_server.urls, stream="overtaken"):
                await bob.until(lambda books: len(books.taken["alice"]) >= len(frames))
            assert bob.taken["alice"] == [frame for _, frame in frames]
            assert not bob.troubles

    asyncio.run(act())


def test_a_paused_link_takes_little_more_and_the_others_go_on(one_server):
    async def act():
        names = ["alice", "bob", "carol"]
        alice, bob, carol = (Books(name, names) for name in names)
        async with (
            running(alice, one_server.urls, stream="paused"),
            running(bob, one_server.urls, stream="paused"),
            running(carol, one_server.urls, stream="paused") as transport,
        ):
            transport.pause("alice")
            await asyncio.sleep(0.2)
            alice.put("carol", *[bytes(1000)] * 20_000)
            await alice.until(lambda books: len(books.outboxes["carol"]) == 0)
            bob.put("carol", b"one")
            await carol.until(lambda books: books.taken["bob"] == [b"one"])
            assert len(carol.taken["alice"]) < 10_000
            transport.resume("alice")
            await carol.until(lambda books: len(books.taken["alice"]) == 20_000)

    asyncio.run(act())


def test_strangers_bytes_on_our_subject_are_refused_and_nothing_else_happens(one_server):
    async def act():
        alice, bob = Books("alice", ["alice", "bob"]), Books("bob", ["alice", "bob"])
        async with running(alice, one_server.urls, stream="strange") as transport:
            jetstream = transport._client.jetstream()
            hello = json.dumps(hello_to_json(alice.hello("bob")))
            for body, headers in (
                (b"junk", None),
                (b"junk", {"Happened-Hello": "[]"}),
                (b"junk", {"Happened-Hello": hello}),
                (frames_out([(1, b"x"), (3, b"y")]), {"Happened-Hello": hello}),
            ):
                await jetstream.publish("strange.bob.alice", body, headers=headers)
            async with running(bob, one_server.urls, stream="strange"):
                alice.put("bob", b"genuine")
                await bob.until(lambda books: books.taken["alice"] == [b"genuine"])
                assert len(bob.troubles) == 4
                await becomes_empty(transport, "strange")

    asyncio.run(act())


def test_a_node_that_takes_nothing_any_more_does_not_keep_its_link_busy(one_server):
    async def act():
        alice, bob = Books("alice", ["alice", "bob"]), Books("bob", ["alice", "bob"])
        bob.arrived = lambda peer, frames: bob.changed.set()
        async with running(alice, one_server.urls, stream="failed"):
            alice.put("bob", b"x")
            async with running(bob, one_server.urls, stream="failed"):
                async with asyncio.timeout(60):
                    await bob.changed.wait()
            del bob.arrived
            async with running(bob, one_server.urls, stream="failed"):
                await bob.until(lambda books: books.taken["alice"] == [b"x"])

    asyncio.run(act())


def test_a_consumer_that_somebody_deleted_is_made_again(one_server):
    async def act():
        alice, bob = Books("alice", ["alice", "bob"]), Books("bob", ["alice", "bob"])
        async with (
            running(alice, one_server.urls, stream="deleted") as transport,
            running(bob, one_server.urls, stream="deleted"),
        ):
            alice.put("bob", b"1")
            await bob.until(lambda books: books.taken["alice"] == [b"1"])
            await transport._client.jetstream().delete_consumer("deleted", "bob-from-alice")
            alice.put("bob", b"2")
            await bob.until(lambda books: books.taken["alice"] == [b"1", b"2"])

    asyncio.run(act())


def test_a_frame_the_broker_does_not_take_stays_and_is_told(one_server):
    async def act():
        names = ["alice", "bob", "carol"]
        alice, bob, carol = (Books(name, names) for name in names)
        async with (
            running(alice, one_server.urls, stream="large"),
            running(bob, one_server.urls, stream="large"),
            running(carol, one_server.urls, stream="large"),
        ):
            alice.put("bob", bytes(2 << 20))
            alice.put("carol", b"small")
            await carol.until(lambda books: books.taken["alice"] == [b"small"])
            async with asyncio.timeout(60):
                while not alice.troubles:
                    await asyncio.sleep(0.02)
            assert {peer for peer, _ in alice.troubles} == {"bob"}
            assert "maximum payload" in alice.troubles[0][1]
            assert len(alice.outboxes["bob"]) == 1

    asyncio.run(act())


def test_a_payload_the_broker_would_not_take_is_refused(one_server):
    """By default a node's limit is the server's, which counts what surrounds the payload, too."""

    async def act():
        peers = {"alice": "", "bob": ""}
        alice, bob = (
            Node(name, peers=peers, transport=NatsTransport(one_server.urls, stream="payload"))
            for name in peers
        )
        async with alice, bob:
            most = (1 << 20) * 15 // 16
            for size in (1 << 20, most + 1):
                with pytest.raises(LocalProtocolError, match=f"{size} bytes exceeds the limit of {most}"):
                    await alice.multicast("bob", bytes(size))
            await alice.multicast("bob", bytes(most))
            async with asyncio.timeout(60):
                assert len((await anext(bob)).payload) == most

    asyncio.run(act())


def test_a_frame_the_broker_has_lost_is_told(one_server, monkeypatch):
    monkeypatch.setattr("happened.net.nats_link.GAP_SECONDS", 0.5)
    monkeypatch.setattr("happened.net.nats_link.REDELIVERY_SECONDS", 0.5)

    async def act():
        alice, bob = Books("alice", ["alice", "bob"]), Books("bob", ["alice", "bob"])
        async with running(alice, one_server.urls, stream="gap") as transport:
            async with running(bob, one_server.urls, stream="gap"):
                alice.put("bob", b"1")
                await bob.until(lambda books: books.taken["alice"] == [b"1"])
                await becomes_empty(transport, "gap")
            alice.put("bob", b"2")
            await alice.until(lambda books: not books.outboxes["bob"])
            await transport._client.jetstream().purge_stream("gap")  # a mistake, or a broker's lost disk
            alice.put("bob", b"3")
            async with running(bob, one_server.urls, stream="gap"), asyncio.timeout(60):
                while not bob.troubles:
                    await asyncio.sleep(0.02)
        assert bob.troubles[0][0] == "alice" and "frame 2 is missing" in bob.troubles[0][1]
        assert bob.taken["alice"] == [b"1"]

    asyncio.run(act())


def test_a_frame_that_was_overtaken_after_a_long_silence_is_not_called_lost(one_server, monkeypatch):
    monkeypatch.setattr("happened.net.nats_link.GAP_SECONDS", 1.0)

    async def act():
        names = ["alice", "bob"]
        bob = Books("bob", names)
        async with running(bob, one_server.urls, stream="silence") as transport:
            jetstream = transport._client.jetstream()
            hello = json.dumps(hello_to_json(Hello(incarnation("alice"), b"", "ks", tuple(names))))

            async def publish(number):
                body = frames_out([(number, b"%d" % number)])
                await jetstream.publish("silence.bob.alice", body, headers={"Happened-Hello": hello})

            await publish(1)
            await bob.until(lambda books: books.taken["alice"] == [b"1"])
            await asyncio.sleep(1.5)
            await publish(3)
            await asyncio.sleep(0.3)
            await publish(2)
            async with asyncio.timeout(60):
                await bob.until(lambda books: books.taken["alice"] == [b"1", b"2", b"3"])
        assert bob.troubles == []

    asyncio.run(act())


def test_no_server_is_a_clear_error():
    async def act():
        with pytest.raises(NodeError, match="no JetStream to be had from nats:"):
            async with running(Books("a", ["a", "b"]), "nats://127.0.0.1:1", start_seconds=1):
                pass

    asyncio.run(act())


def test_a_stream_that_is_something_else_is_a_clear_error(one_server):
    async def act():
        import nats

        client = await nats.connect(one_server.urls[0])
        await client.jetstream().add_stream(name="theirs", subjects=["theirs.*.*"])
        await client.close()
        with pytest.raises(NodeError, match="stream 'theirs' cannot be used"):
            async with running(Books("a", ["a", "b"]), one_server.urls, stream="theirs"):
                pass

    asyncio.run(act())
