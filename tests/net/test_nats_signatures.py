"""Nodes that sign and a real NATS server: a holder of the group's key who speaks for another is refused, on
links, in receipts and on the medium."""

import asyncio
import json

import pytest
from brokers import broker
from keyed_stamps import CLUSTER, Stamps
from test_nats_transport import Books, incarnation, running
from test_node import crash, take, until

from happened.core.errors import RemoteProtocolError
from happened.net import Limits, Node, Signatures, identity
from happened.net.identity import paths
from happened.net.nats import NatsTransport
from happened.net.nats_broadcast import NatsBroadcast, mark
from happened.net.nats_broker import Receipt, Receipts
from happened.net.nats_link import HELLO
from happened.net.nats_security import Seal
from happened.net.records import frames_out, hello_to_json
from happened.net.transport import Hello
from happened.wire import packets

KEY = b"k" * 32
NAMES = ["alice", "bob", "mallory"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with broker(tmp_path_factory.mktemp("nats")) as one:
        yield one


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pki")
    identity.make_authority(folder)
    for name in NAMES:
        identity.issue(folder, name)
    return folder


def signatures(name, pki):
    return Signatures(name, key=paths(pki, name)[2], members=pki, authority=pki / "ca.pem")


def run(scenario):
    asyncio.run(asyncio.wait_for(scenario, 120))


def seals_of_mallory(pki):
    """What somebody who has the key, and a certificate of its own, can make."""
    by_key, by_name = Seal(KEY), Seal(KEY)
    by_name.sign_with(signatures("mallory", pki))
    return by_key, by_name


def test_a_tag_is_the_signature_of_its_speaker():
    seal = Seal(KEY)
    seal.sign_with(Stamps("alice"))
    headers = seal.headers("stream", b"data")
    seal.check("alice", headers, "stream", b"data")
    for speaker, told, parts in (
        ("bob", headers, ("stream", b"data")),
        ("alice", headers, ("stream", b"date")),
        ("alice", Seal(KEY).headers("stream", b"data"), ("stream", b"data")),
        ("alice", {"Happened-Tag": "no digits"}, ("stream", b"data")),
        ("alice", None, ("stream", b"data")),
    ):
        with pytest.raises(RemoteProtocolError, match="has not signed this"):
            seal.check(speaker, told, *parts)


def test_whether_the_broker_is_asked_again_depends_on_what_could_be_noticed():
    for protected in (False, True):
        seal = Seal(None, protected=protected)
        assert not seal.rereads
        seal.sign_with(Stamps("alice"))
        assert seal.rereads is not protected


async def speak_for_alice(transport, stream, seal, number, body=b"forged"):
    """Publish a frame on the subject of alice's link to bob, with the tag that this seal makes."""
    hello = json.dumps(hello_to_json(Hello(incarnation("alice"), b"", "ks", tuple(NAMES))))
    data = frames_out([(number, body)])
    headers = {HELLO: hello} | seal.headers(stream, "bob", "alice", hello, data)
    await transport._client.jetstream().publish(f"{stream}.bob.alice", data, headers=headers)


def test_another_holder_of_the_key_cannot_speak_for_a_node_that_signs(server, pki):
    async def scenario():
        alice, bob = Books("alice", NAMES), Books("bob", NAMES)
        told = {"stream": "held", "key": KEY}
        async with running(bob, server.urls, signer=signatures("bob", pki), **told) as transport:
            for seal in seals_of_mallory(pki):
                for number in (1, 2, 40):
                    await speak_for_alice(transport, "held", seal, number)
            await until(lambda: bob.troubles)
            async with running(alice, server.urls, signer=signatures("alice", pki), **told):
                alice.put("bob", b"1", b"2", b"3")
                await bob.until(lambda books: len(books.taken["alice"]) == 3)
        assert bob.taken["alice"] == [b"1", b"2", b"3"]
        assert any("what 'alice' is said to have sent was altered" in why for _, why in bob.troubles)

    run(scenario())


def test_without_signatures_a_holder_of_the_key_can(server, pki):
    async def scenario():
        bob = Books("bob", NAMES)
        async with running(bob, server.urls, stream="unsigned", key=KEY) as transport:
            await speak_for_alice(transport, "unsigned", seals_of_mallory(pki)[0], 1)
            await bob.until(lambda books: books.taken["alice"] == [b"forged"])

    run(scenario())


def test_nobody_leaves_a_receipt_for_another(server, pki):
    """A false one would make alice drop what bob does not have, or take its own journal for an old copy."""

    async def scenario():
        alice, bob = Books("alice", NAMES), Books("bob", NAMES)
        async with running(Books("x", ["x", "y"]), server.urls, stream="receipts") as transport:
            jetstream = transport._client.jetstream()
            for seal in seals_of_mallory(pki):
                forged = Receipts(jetstream, "receipts-receipts", seal)
                await forged.publish("bob", "alice", Receipt(7, incarnation("bob"), incarnation("alice")))
                async with running(
                    alice, server.urls, stream="receipts", key=KEY, signer=signatures("alice", pki)
                ) as honest:
                    await until(lambda: honest._links["bob"]._is_current.is_set())
                assert any("what 'bob' is said to have sent was altered" in why for _, why in alice.troubles)
                assert alice.outboxes["bob"].acknowledged == 0
                alice.troubles.clear()
        told = {"stream": "receipts", "key": KEY}
        async with (
            running(alice, server.urls, signer=signatures("alice", pki), **told),
            running(bob, server.urls, signer=signatures("bob", pki), **told) as transport,
        ):
            alice.put("bob", b"1")
            await bob.until(lambda books: books.taken["alice"] == [b"1"])
            link = transport._links["alice"]
            await until(lambda: link._receipted == 1)
            receipt = await link._receipts.last("bob", "alice")
            assert receipt is not None and receipt.number == 1

    run(scenario())


def node(kind, server, name, stream, tmp_path, pki):
    return Node(
        name,
        peers=NAMES,
        transport=kind(server.urls, stream=stream, key=KEY),
        journal=tmp_path / f"{name}.journal",
        cluster=CLUSTER,
        signatures=signatures(name, pki),
        limits=Limits(linger=0.5),
    )


def test_nodes_that_sign_are_killed_and_go_on(server, tmp_path, pki):
    async def scenario():
        a, b, m = (node(NatsTransport, server, name, "nodes", tmp_path, pki) for name in NAMES)
        await asyncio.gather(a.start(), b.start(), m.start())
        sent = [await a.multicast(["bob", "mallory"], b"%d" % k) for k in range(5)]
        assert await take(b, 5) == sent
        await crash(a)
        a = node(NatsTransport, server, "alice", "nodes", tmp_path, pki)
        await a.start()
        sent.append(await a.multicast(["bob", "mallory"], b"again"))
        assert await take(b, 1) == sent[-1:] and await take(m, 6) == sent
        await asyncio.gather(a.close(), b.close(), m.close())

    run(scenario())


def test_a_packet_for_all_is_its_senders(server, tmp_path, pki):
    """On a medium that is as good as TLS, where packets are used at all."""

    async def scenario():
        a, b, m = nodes = [node(NatsBroadcast, server, name, "packets", tmp_path, pki) for name in NAMES]
        for each in nodes:
            each.transport.seal._is_protected = True
        await asyncio.gather(*(each.start() for each in nodes))
        sent = [await a.multicast(["bob", "mallory"], b"first")]
        await until(lambda: a.transport._links["bob"].is_ready and a.transport._links["mallory"].is_ready)
        packet = packets.encode("alice", a.host.hello("bob").incarnation, {"bob": 2, "mallory": 2}, [b"lie"])
        marks = ".".join(mark(name) if name != "alice" else "0" for name in a.host.hello("bob").members)
        for seal in seals_of_mallory(pki):
            headers = seal.headers("packets-common", "alice", packet)
            subject = f"packets-common.alice.{marks}.end"
            await m.transport._client.jetstream().publish(subject, packet, headers=headers)
        told = lambda: [why for of in b._connections._troubles.values() for _, why in of]  # noqa: E731
        await until(lambda: any("what 'alice' is said to have sent was altered" in why for why in told()))
        sent.append(await a.multicast(["bob", "mallory"], b"second"))
        assert await take(b, 2) == sent == await take(m, 2)
        assert a.stats()["medium"]["packets"] == 1
        await asyncio.gather(*(each.close() for each in nodes))

    run(scenario())
