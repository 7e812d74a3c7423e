"""Nodes over real JetStream servers, where a multicast is one publication for all its destinations."""

import asyncio
from collections import deque
from contextlib import asynccontextmanager

import nats
import pytest
from brokers import broker
from netcluster import QUICK, Cluster, schedule
from test_nats_transport import Books
from test_node import crash, run, take, until
from test_udp_multicast import judge, medium

from happened.net import Limits, Node
from happened.net.medium import Claims
from happened.net.nats_broadcast import NatsBroadcast, SharedLink, mark
from happened.wire import packets

NAMES = ("alice", "bob", "carol", "dave")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


def make(name, server, stream, **more):
    transport = NatsBroadcast(server.urls, stream=stream)
    peers = dict.fromkeys(NAMES, "")
    return Node(name, peers=peers, transport=transport, limits=Limits(**QUICK), **more)


@asynccontextmanager
async def system(server, stream, *, when_ready=None, **more):
    """Nodes of whom alice can publish for all the others."""
    made = {name: make(name, server, stream, **more) for name in NAMES}
    try:
        for node in made.values():
            await node.start()
        await made["alice"].multicast(NAMES[1:], b"first")  # by the links
        for name in NAMES[1:]:
            assert await take(made[name], 1) == ["alice:1"]
        if when_ready is not None:
            for _ in range(5):
                await made["alice"].multicast(NAMES[1:], b"by the links")
            for name in NAMES[1:]:
                assert len(await take(made[name], 5)) == 5
            when_ready()
        await ready(made["alice"])
        yield made
    finally:
        await asyncio.gather(*(node.close() for node in made.values()))


async def ready(node):
    transport = node.transport
    await until(lambda: all(link.is_ready for link in transport._links.values()))


@asynccontextmanager
async def streams(server, stream):
    """What the broker says of the links' stream and of the common one."""
    client = await nats.connect(server.urls[0])

    async def state():
        jetstream = client.jetstream()
        return [(await jetstream.stream_info(name)).state for name in (stream, f"{stream}-common")]

    try:
        yield state
    finally:
        await client.close()


def test_a_multicast_is_one_publication_and_is_kept_until_all_have_it(server):
    async def test():
        async with system(server, "one") as nodes, streams(server, "one") as state:
            links_before, _ = await state()
            for number in range(20):
                await nodes["alice"].multicast(NAMES[1:], b"x" * 100)
                for name in NAMES[1:]:
                    assert await take(nodes[name], 1) == [f"alice:{number + 2}"]
            counts = medium(nodes["alice"])
            assert (counts["packets"], counts["copies"], counts["repaired"]) == (20, 60, 0)
            links, common = await state()
            assert links.last_seq == links_before.last_seq
            assert common.last_seq == 20

            async def empty():
                while (await state())[1].messages:
                    await asyncio.sleep(0.05)

            await asyncio.wait_for(empty(), 10)

    run(test())


def test_only_destinations_get_a_copy_and_frames_for_one_keep_their_place(server):
    async def test():
        async with system(server, "some") as nodes:
            expected = []
            for number in range(200):
                to = ["bob"] if number % 3 == 1 else ["bob", "carol"]
                expected.append(nodes["alice"].multicast_nowait(to, bytes(900_000 if number == 7 else 10)))
                if number % 7 == 0:
                    await asyncio.sleep(0.001)
            assert await take(nodes["bob"], 200) == expected
            assert medium(nodes["carol"])["received"] > 50
            assert medium(nodes["dave"])["received"] == 0

    run(test())


@pytest.mark.parametrize("victim", ["alice", "bob"])
def test_a_sender_and_a_receiver_die_and_come_back_in_the_middle(server, tmp_path, victim):
    async def test():
        stream = f"die-{victim}"

        def more(name):
            return {"journal": tmp_path / f"{name}.journal", "trace": tmp_path / "trace", "flush": False}

        nodes = {name: make(name, server, stream, **more(name)) for name in NAMES}
        for node in nodes.values():
            await node.start()
        await nodes["alice"].multicast(NAMES[1:], b"first")
        await ready(nodes["alice"])
        for _ in range(50):
            nodes["alice"].multicast_nowait(NAMES[1:], b"x")
        await nodes["alice"].flush()
        await crash(nodes[victim])
        if victim != "alice":
            for _ in range(50):
                nodes["alice"].multicast_nowait(NAMES[1:], b"y")
        nodes[victim] = make(victim, server, stream, **more(victim))
        await nodes[victim].start()
        await ready(nodes["alice"])
        while nodes["alice"].sent < 150:
            await nodes["alice"].multicast(NAMES[1:], b"z")
        for name in NAMES[1:]:
            await until(lambda name=name: nodes[name].delivered == 150)
        assert medium(nodes["alice"])["copies"] > 100
        await asyncio.gather(*(node.close() for node in nodes.values()))

    run(test())
    judge(tmp_path / "trace", 150, 450)


def test_what_was_published_before_its_receivers_were_ever_started_waits_for_them(server, tmp_path):
    async def test():
        alice = make("alice", server, "late", journal=tmp_path / "alice.journal")
        await alice.start()
        await alice.multicast(NAMES[1:], b"first")
        await ready(alice)
        for _ in range(20):
            await alice.multicast(NAMES[1:], b"x")
        await until(lambda: not any(peer["outbox_frames"] for peer in alice.stats()["peers"].values()))
        assert medium(alice)["copies"] == 60
        await alice.close()
        others = [make(name, server, "late") for name in NAMES[1:]]
        for node in others:
            await node.start()
        for node in others:
            assert await take(node, 21) == [f"alice:{number + 1}" for number in range(21)]
        await asyncio.gather(*(node.close() for node in others))

    run(test())


def test_nothing_is_published_for_a_consumer_that_is_not_there_yet(server, monkeypatch):
    gate, prepare = asyncio.Event(), SharedLink._prepare

    async def late(link):
        await gate.wait()
        await prepare(link)

    monkeypatch.setattr(SharedLink, "_prepare", late)

    async def test():
        async with system(server, "gate", when_ready=gate.set) as nodes:
            assert medium(nodes["alice"])["copies"] == 0
            await nodes["alice"].multicast(NAMES[1:], b"x")
            assert await take(nodes["dave"], 1) == ["alice:7"]
            assert medium(nodes["alice"])["copies"] == 3

    run(test())


def test_a_stored_packet_counts_when_the_frames_before_it_are_stored():
    link = SharedLink.__new__(SharedLink)
    link._host, link._peer = Books("alice", ["alice", "bob"]), "bob"
    link.claims, link._shared, link._awake = Claims(), deque(), asyncio.Event()
    box = link._host.outboxes["bob"]
    for _ in range(3):
        box.release(box.put(b"x"))
    link.claims.claim(2)
    link.claims.claim(3)
    link.shared(2, 2)
    assert box.acknowledged == 0
    link._stored(1)
    assert (box.acknowledged, link.claims.first) == (2, 3)
    link.shared(3, 3)
    assert box.acknowledged == 3 and not link.claims
    link.shared(3, 3)  # was left to the link meanwhile
    assert not link._shared


def test_what_is_under_way_when_the_broker_dies_goes_by_the_links(tmp_path):
    async def test(server):
        async with system(server, "dies", trace=tmp_path / "trace") as nodes:
            server.kill(0)
            for _ in range(30):
                nodes["alice"].multicast_nowait(NAMES[1:], b"x")
            await until(lambda: medium(nodes["alice"])["repaired"] > 0)
            server.start(0)
            for name in NAMES[1:]:
                assert await take(nodes[name], 30) == [f"alice:{number + 2}" for number in range(30)]

    with broker(tmp_path / "broker") as server:
        run(test(server))
    judge(tmp_path / "trace", 31, 93)


def test_packets_of_others_of_another_life_and_for_others_are_not_taken(server):
    async def test():
        async with system(server, "false") as nodes:
            alive = nodes["alice"].host.hello("bob").incarnation
            client = await nats.connect(server.urls[0])
            subject = f"false-common.alice.0.{mark('bob')}.0.0.end"
            wrong = [
                b"junk",
                packets.encode("carol", alive, {"bob": 2}, [b"x"]),
                packets.encode("alice", alive, {"carol": 2}, [b"x"]),
                packets.encode("alice", bytes(8), {"bob": 2}, [b"x"]),
            ]
            for each in wrong:
                await client.jetstream().publish(subject, each)
            troubles = nodes["bob"]._connections.troubles_with
            await until(lambda: sum(troubles("alice").values()) >= 4)
            await client.close()
            assert nodes["bob"].stats()["refused"] == 0
            await nodes["alice"].multicast(["bob", "carol"], b"true")
            assert await take(nodes["bob"], 1) == ["alice:2"]

    run(test())


@pytest.mark.slow
def test_five_processes_are_killed_and_cut(tmp_path, seed):
    with broker(tmp_path / "broker") as server:
        more = {"servers": server.urls, "start_seconds": 60, "broadcast": True}
        folder = tmp_path / "run"
        folder.mkdir()
        with Cluster(folder, seed, messages=100, pace=0.008, nats=more) as cluster:
            cluster.suffer(schedule(seed, 1.0, 0.4))
            assert cluster.kills >= 2
            cluster.wait(90)
        cluster.judge()
        assert sum(each["copies"] for each in cluster.last_reports("medium")) > 100
