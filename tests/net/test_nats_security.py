"""Nodes and a real NATS server: who may speak there, and what an old copy of a journal does not survive."""

import asyncio
import datetime
import ipaddress
import json
import shutil

import pytest
from brokers import broker
from test_nats_transport import Books, incarnation, running
from test_node import crash, take, until

from happened.core.errors import LocalProtocolError, RemoteProtocolError
from happened.net import Limits, Node
from happened.net.config import ConfigError, load, make_node
from happened.net.errors import IdentityError, NodeError
from happened.net.nats import NatsTransport
from happened.net.nats_broadcast import NatsBroadcast
from happened.net.nats_broker import Receipt
from happened.net.nats_link import FARTHEST, HELLO, Link
from happened.net.nats_security import TAG, Seal
from happened.net.records import frames_out, hello_to_json
from happened.net.transport import Hello

KEY = b"k" * 32
NAMES = ["alice", "bob"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with broker(tmp_path_factory.mktemp("nats")) as one:
        yield one


def run(scenario):
    asyncio.run(asyncio.wait_for(scenario, 120))


# Who speaks.


def test_a_tag_belongs_to_its_place_and_bytes():
    seal = Seal(KEY)
    headers = seal.headers("stream", "bob", b"data")
    seal.check("alice", headers, "stream", "bob", b"data")
    for parts in (("stream", "carol", b"data"), ("stream", "bob", b"date"), ("streamb", "ob", b"data")):
        with pytest.raises(RemoteProtocolError, match="no tag of the group's key"):
            seal.check("alice", headers, *parts)
    with pytest.raises(RemoteProtocolError):
        seal.check("alice", None, "stream", "bob", b"data")
    with pytest.raises(RemoteProtocolError):
        Seal(b"x" * 32).check("alice", headers, "stream", "bob", b"data")
    Seal(None).check("alice", headers, "anything")
    with pytest.raises(LocalProtocolError, match="at least 32 bytes"):
        Seal(b"short")


async def forge(transport, stream, number, body=b"forged"):
    """Another client of the broker says something on the subject of alice's link to bob."""
    hello = json.dumps(hello_to_json(Hello(incarnation("alice"), b"", "ks", tuple(NAMES))))
    data = frames_out([(number, body)])
    await transport._client.jetstream().publish(f"{stream}.bob.alice", data, headers={HELLO: hello})


def test_another_client_of_the_broker_cannot_speak_for_a_node_with_a_key(server):
    """Nor keep a link busy with messages that are early for ever: there may be 32 of them in hand."""

    async def scenario():
        alice, bob = Books("alice", NAMES), Books("bob", NAMES)
        async with running(bob, server.urls, stream="keyed", key=KEY) as transport:
            await forge(transport, "keyed", 1)
            for number in range(2, 40):
                await forge(transport, "keyed", number + 1)
            await until(lambda: bob.troubles)
            async with running(alice, server.urls, stream="keyed", key=KEY):
                alice.put("bob", b"1", b"2", b"3")
                await bob.until(lambda books: len(books.taken["alice"]) == 3)
        assert bob.taken["alice"] == [b"1", b"2", b"3"]
        assert any("no tag of the group's key" in why for _, why in bob.troubles)

    run(scenario())


def test_another_client_cannot_have_a_message_dropped_by_its_id(server):
    """The broker confirms a message whose id it has seen, on any subject of a stream, and stores nothing."""

    async def scenario():
        alice, bob = Books("alice", NAMES), Books("bob", NAMES)
        async with (
            running(bob, server.urls, stream="ids") as transport,
            running(alice, server.urls, stream="ids"),
        ):
            seen = await transport._client.subscribe("ids.bob.alice")
            alice.put("bob", b"1")
            headers = dict((await seen.next_msg()).headers)
            if told := headers.get("Nats-Msg-Id"):
                headers["Nats-Msg-Id"] = told.replace("1-1", "2-2")
            await transport._client.jetstream().publish("ids.bob.mallory", b"", headers=headers)
            alice.put("bob", b"2")
            await alice.until(lambda books: not len(books.outboxes["bob"]))
            async with asyncio.timeout(10):
                await bob.until(lambda books: books.taken["alice"] == [b"1", b"2"])

    run(scenario())


def test_a_number_far_ahead_is_refused_and_blocks_nothing(server):
    async def scenario():
        alice, bob = Books("alice", NAMES), Books("bob", NAMES)
        async with running(bob, server.urls, stream="ahead") as transport:
            for number in range(40):
                await forge(transport, "ahead", FARTHEST + 2 + number)
            async with running(alice, server.urls, stream="ahead"):
                alice.put("bob", b"1", b"2")
                await bob.until(lambda books: len(books.taken["alice"]) == 2)
        assert bob.taken["alice"] == [b"1", b"2"]
        assert any("farther ahead" in why for _, why in bob.troubles)

    run(scenario())


def test_a_receipt_that_is_none_is_logged_and_stops_nobody(server):
    async def scenario():
        alice, bob = Books("alice", NAMES), Books("bob", NAMES)
        async with running(Books("x", ["x", "y"]), server.urls, stream="forged") as transport:
            for body in (b"no JSON", b'{"number": -1}', b"[]"):
                await transport._client.jetstream().publish("forged-receipts.bob.alice", body)
        async with running(alice, server.urls, stream="forged"), running(bob, server.urls, stream="forged"):
            alice.put("bob", b"1")
            await bob.until(lambda books: books.taken["alice"] == [b"1"])
        assert any("not a receipt" in why for _, why in alice.troubles)

    run(scenario())


# Old copies of journals.


def over(kind, server, name, stream, tmp_path):
    return Node(
        name,
        peers=dict.fromkeys(["a", "b", "c"], "nats"),
        transport=kind(server.urls, stream=stream, key=KEY),
        journal=tmp_path / f"{name}.journal",
        limits=Limits(linger=0.5),
    )


def copy(tmp_path, name, *, back):
    for file in tmp_path.glob(f"copy-{name}.journal*" if back else f"{name}.journal*"):
        stem = file.name.removeprefix("copy-")
        shutil.copy(file, tmp_path / (stem if back else f"copy-{stem}"))


@pytest.mark.parametrize("kind", [NatsTransport, NatsBroadcast], ids=["links", "broadcast"])
@pytest.mark.parametrize("is_there", [True, False], ids=["its peer has them", "the broker has them"])
def test_an_old_copy_of_a_journal_that_sends_stops_the_node(server, tmp_path, kind, is_there):
    stream = f"old-{kind.__name__}-{is_there}"

    async def scenario():
        async def start(name):
            node = over(kind, server, name, stream, tmp_path)
            await node.start()
            return node

        b, c = await start("b"), await start("c")
        for round_, count in enumerate((3, 2)):
            a = await start("a")
            for _ in range(count):
                await a.multicast(["b", "c"], b"%d" % round_)
            await until(lambda a=a: not a.stats()["peers"]["b"]["outbox_frames"])
            if round_ == 0 or is_there:
                await take(b, count)
                await take(c, count)
            if round_ == 0:
                await until(lambda a=a: a.transport._links["b"]._in_hand == {})
                await crash(a)
                copy(tmp_path, "a", back=False)
                if not is_there:
                    await asyncio.gather(b.close(), c.close())
            else:
                await crash(a)
        for file in tmp_path.glob("a.journal*"):
            file.unlink()
        copy(tmp_path, "a", back=True)
        a = await start("a")
        await until(lambda: a.failure is not None)
        assert "has 5 frames of 'a', whose journal knows 3: it is an old copy" in str(a.failure)
        assert a.stats()["peers"]["b"]["sent"] == 3
        await asyncio.gather(a.close(), b.close(), c.close())

    run(scenario())


def test_an_old_copy_that_is_started_again_before_the_broker_answers_stops(server, tmp_path, monkeypatch):
    """At its second start it knows more frames than it has forgotten: the receipt's number shows nothing."""

    async def scenario():
        async def start(name):
            node = over(NatsTransport, server, name, "old-twice", tmp_path)
            await node.start()
            return node

        b = await start("b")
        for round_, count in enumerate((3, 2)):
            a = await start("a")
            for _ in range(count):
                await a.multicast(["b"], b"%d" % round_)
            await take(b, count)
            await until(lambda: b.transport._links["a"]._receipted == b.delivered)
            await crash(a)
            if round_ == 0:
                copy(tmp_path, "a", back=False)
        for file in tmp_path.glob("a.journal*"):
            file.unlink()
        copy(tmp_path, "a", back=True)
        with monkeypatch.context() as patched:
            patched.setattr(Link, "_compare_journal", lambda self: asyncio.Event().wait())
            a = await start("a")
            for _ in range(4):
                await a.multicast(["b"], b"under numbers that were used")
            await crash(a)
        a = await start("a")
        await until(lambda: a.failure is not None)
        assert "'b' has 5 frames of 'a', the last of a life that its journal does not know" in str(a.failure)
        assert b.failure is None and b.delivered == 5
        await asyncio.gather(a.close(), b.close())

    run(scenario())


def test_an_old_copy_of_a_journal_that_receives_stops_the_node(server, tmp_path):
    async def scenario():
        async def start(name):
            node = over(NatsTransport, server, name, "old-receiver", tmp_path)
            await node.start()
            return node

        a = await start("a")
        for round_, count in enumerate((3, 2)):
            b = await start("b")
            for _ in range(count):
                await a.multicast(["b"], b"%d" % round_)
            await take(b, count)
            await until(lambda b=b: b.transport._links["a"]._in_hand == {})
            await crash(b)
            if round_ == 0:
                copy(tmp_path, "b", back=False)
        for file in tmp_path.glob("b.journal*"):
            file.unlink()
        copy(tmp_path, "b", back=True)
        b = await start("b")
        await until(lambda: b.failure is not None)
        assert "'b' had 5 frames of 'a', and its journal knows 3: it is an old copy" in str(b.failure)
        assert a.failure is None
        await asyncio.gather(a.close(), b.close())

    run(scenario())


def test_two_nodes_on_copies_of_one_journal_do_not_both_go_on(server, tmp_path, monkeypatch):
    """Neither copy is old when they start; what one sends is then taken for what the other has sent."""
    monkeypatch.setattr("happened.net.nats_link.COMPARE_SECONDS", 0.1, raising=False)

    async def scenario():
        a, b = (over(NatsTransport, server, name, "twins", tmp_path) for name in "ab")
        await asyncio.gather(a.start(), b.start())
        await a.multicast(["b"], b"before")
        await take(b, 1)
        await until(lambda: a.transport._links["b"]._outbox().acknowledged == 1)
        await a.close()
        (tmp_path / "copy").mkdir()
        shutil.copy(tmp_path / "a.journal", tmp_path / "copy" / "a.journal")
        twins = [
            over(NatsTransport, server, "a", "twins", folder) for folder in (tmp_path, tmp_path / "copy")
        ]
        await asyncio.gather(*(twin.start() for twin in twins))
        await until(lambda: all(twin.transport._links["b"]._is_current.is_set() for twin in twins))
        for twin in twins:
            await twin.multicast(["b"], b"after")
            await until(lambda twin=twin: not twin.stats()["peers"]["b"]["outbox_frames"])
        await until(lambda: twins[1].failure is not None)
        assert "of a life that its journal does not know" in str(twins[1].failure)
        await take(b, 1)
        assert b.delivered == 2 and twins[0].failure is None
        await asyncio.gather(*(twin.close() for twin in twins), b.close())

    run(scenario())


def test_a_node_that_is_killed_and_restarted_is_not_taken_for_an_old_copy(server, tmp_path):
    async def scenario():
        a, sent = over(NatsTransport, server, "a", "kills", tmp_path), 0
        b = over(NatsTransport, server, "b", "kills", tmp_path)
        await asyncio.gather(a.start(), b.start())
        for _ in range(4):
            for _ in range(10):
                a.multicast_nowait(["b"], b"x")
            await a.flush()
            sent += 10
            await crash(a)
            await crash(b)
            a, b = (over(NatsTransport, server, name, "kills", tmp_path) for name in "ab")
            await asyncio.gather(a.start(), b.start())
        await until(lambda: b.delivered == sent)
        assert a.failure is None and b.failure is None
        await asyncio.gather(a.close(), b.close())

    run(scenario())


def test_a_receipt_is_stored_before_its_messages_are_deleted(server):
    async def scenario():
        alice, bob = Books("alice", NAMES), Books("bob", NAMES)
        async with running(bob, server.urls, stream="order", key=KEY) as transport:
            link, acknowledged = transport._links["alice"], []
            publish = link._receipts.publish

            async def noted(to, sender, receipt):
                state = (await transport._client.jetstream().stream_info("order")).state
                acknowledged.append((receipt.number, state.messages))
                await publish(to, sender, receipt)

            link._receipts.publish = noted
            async with running(alice, server.urls, stream="order", key=KEY):
                alice.put("bob", b"1")
                await bob.until(lambda books: books.taken["alice"] == [b"1"])
            await until(lambda: acknowledged and not link._in_hand)
            assert acknowledged == [(1, 1)]
            said = await link._receipts.last("bob", "alice")
            assert said == Receipt(1, incarnation("bob"), b"")

    run(scenario())


# Who we are to the broker.


def config(tmp_path, server, *lines, scheme="nats"):
    file = tmp_path / "a.toml"
    port = server.client_ports[0]
    head = f'name = "a"\n[peers]\nb = "nats"\n[nats]\nservers = ["{scheme}://127.0.0.1:{port}"]\n'
    file.write_text(head + "\n".join(lines))
    return load(file)


async def starts(node):
    node.transport._start_seconds = 2.0
    await node.start()
    assert node.transport._client.is_connected
    await node.close()


def test_a_token_opens_the_broker(tmp_path):
    with broker(tmp_path / "nats", settings='authorization { token: "s3cret" }') as server:
        run(starts(make_node(config(tmp_path, server, 'token = "s3cret"'))))
        with pytest.raises(NodeError, match="no JetStream to be had"):
            run(starts(make_node(config(tmp_path, server, 'token = "wrong"'))))


def test_an_nkey_opens_the_broker(tmp_path):
    import nkeys
    from nacl.signing import SigningKey

    seed = nkeys.encode_seed(bytes(SigningKey.generate()), nkeys.PREFIX_BYTE_USER)
    public = nkeys.from_seed(seed).public_key.decode()
    (tmp_path / "a.nk").write_bytes(bytes(seed))
    with broker(tmp_path / "nats", settings=f"authorization {{ users: [{{ nkey: {public} }}] }}") as server:
        run(starts(make_node(config(tmp_path, server, 'nkey = "a.nk"'))))
        with pytest.raises(NodeError, match="no JetStream to be had"):
            run(starts(make_node(config(tmp_path, server))))


def test_certificates_open_the_broker(tmp_path):
    """The server has one for its address; a node shows the one that `happened node keys` issued."""
    from happened.net import identity

    pki = tmp_path / "pki"
    identity.make_authority(pki)
    identity.issue(pki, "a")
    certificate, key = for_address(pki, "127.0.0.1")
    files = f'cert_file: "{certificate}", key_file: "{key}", ca_file: "{pki}/ca.pem"'
    settings = f"tls {{ {files}, verify: true }}"
    ours = 'tls = {authority = "pki/ca.pem", certificate = "pki/a.pem", private_key = "pki/a.key"}'
    with broker(tmp_path / "nats", settings=settings) as server:
        run(starts(make_node(config(tmp_path, server, ours, scheme="tls"))))
        with pytest.raises(NodeError, match="no JetStream to be had"):
            without = 'tls = {authority = "pki/ca.pem"}'
            run(starts(make_node(config(tmp_path, server, without, scheme="tls"))))


def for_address(pki, address):
    """A server's certificate, by the authority of the nodes."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    issuer = x509.load_pem_x509_certificate((pki / "ca.pem").read_bytes())
    signing = serialization.load_pem_private_key((pki / "ca.key").read_bytes(), None)
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
    aki = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key())
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(names, critical=True)
        .add_extension(aki, critical=False)
        .sign(signing, hashes.SHA256())
    )
    (pki / "server.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    encoded = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (pki / "server.key").write_bytes(key.private_bytes(*encoded))
    return pki / "server.pem", pki / "server.key"


@pytest.mark.parametrize(
    "line, error, why",
    [
        ('credentials = "none.creds"', IdentityError, "none.creds: cannot be read"),
        ('nkey = "none.nk"', IdentityError, "none.nk: cannot be read"),
        ('key = "none.key"', IdentityError, "none.key: cannot be read"),
        ('tls = {authority = "none.pem"}', IdentityError, r"\[nats.tls\] .*none.pem: cannot be used"),
        ('tls = {ca = "none.pem"}', ConfigError, "nats.tls.ca is no setting"),
        ("token = 7", ConfigError, "nats.token is 7, not a string"),
    ],
)
def test_settings_that_cannot_be_used_are_named(server, tmp_path, line, error, why):
    with pytest.raises(error, match=why):
        make_node(config(tmp_path, server, line))


def test_credentials_and_key_reach_the_client(server, tmp_path):
    (tmp_path / "a.creds").write_text("a user's JWT and seed")
    (tmp_path / "g.key").write_text("11" * 32)
    (tmp_path / "g.key").chmod(0o600)
    node = make_node(config(tmp_path, server, 'credentials = "a.creds"', 'key = "g.key"'))
    assert node.transport._options == {"user_credentials": str(tmp_path / "a.creds")}
    assert TAG in node.transport.seal.headers("x")
