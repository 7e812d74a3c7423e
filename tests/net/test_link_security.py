"""Attacks on real listening nodes: refused, logged once, and the other links do not notice.

alice and bob exchange messages all the while, an attacker knocks at alice's port. Each attack is made several
times, and must leave one line in alice's log.
"""

import asyncio
import contextlib
import logging
import os
import ssl
import struct
import sys

import pytest

from happened.net import Limits, Node, Plaintext, identity
from happened.net.handshake import NONCE_SIZE, Handshake, Mode
from happened.net.records import FRAME, LENGTH, control, frames_out, hello_to_json, with_check
from happened.net.transport import Hello

KEY = b"k" * 32
LIMITS = Limits(handshake=0.5, strangers=8, frame=100_000, payload=50_000, linger=1.0, heartbeat=0.5)
TIMES = 3
GUARDS = ["plaintext", "shared-key", "tls"]


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    """alice, bob and mallory are members; another authority has an alice and a bob of its own."""
    folder = tmp_path_factory.mktemp("pki")
    for authority, names in (("ours", ("alice", "bob", "mallory")), ("theirs", ("alice", "bob"))):
        identity.make_authority(folder / authority)
        for name in names:
            identity.issue(folder / authority, name)
    return folder


def certificate(pki, name, authority="ours"):
    folder = pki / authority
    return {
        "authority": folder / "ca.pem",
        "certificate": folder / f"{name}.pem",
        "key": folder / f"{name}.key",
    }


def guard_of(kind, name, pki):
    if kind == "tls":
        return identity.MutualTls(name, **certificate(pki, name))
    return identity.SharedKey(KEY) if kind == "shared-key" else Plaintext()


class Pair:
    """alice and bob, who talk until `end`; `port` is alice's."""

    def __init__(self, alice, bob, port):
        self.alice, self.bob, self.port = alice, bob, port
        self.received = 0
        self._progress = asyncio.Event()

    async def talk(self):
        async def send(node, to):
            while True:
                await node.multicast(to, b"x")
                await asyncio.sleep(0.002)

        async def receive(node):
            async for message in node:
                await message.ack()
                self.received += 1
                self._progress.set()

        async with asyncio.TaskGroup() as group:
            for node, to in ((self.alice, "bob"), (self.bob, "alice")):
                group.create_task(send(node, to))
                group.create_task(receive(node))

    async def goes_on(self, messages=50):
        """The links between the two still carry messages, and have never been interrupted."""
        goal = self.received + messages
        async with asyncio.timeout(60):
            while self.received < goal:
                self._progress.clear()
                await self._progress.wait()


@contextlib.asynccontextmanager
async def talking(kind, pki):
    """`mallory` is known to both as a peer, and is what an attacker may have become."""
    from netcluster import free_ports

    ports = dict(zip(("alice", "bob", "mallory"), free_ports(3), strict=True))
    addresses = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    nodes = [
        Node(name, peers=addresses, listen=addresses[name], guard=guard_of(kind, name, pki), limits=LIMITS)
        for name in ("alice", "bob")
    ]
    async with nodes[0], nodes[1]:
        pair = Pair(*nodes, ports["alice"])
        conversation = asyncio.create_task(pair.talk())
        try:
            await pair.goes_on()
            yield pair
            await pair.goes_on()
        finally:
            conversation.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await conversation


class Attacker:
    """A connection to alice, with whatever credentials."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, port, context=None):
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=context))

    async def shake_hands(self, guard, me, wanted="alice"):
        """As an honest node would; returns the handshake."""
        hand = guard.handshake(me, wanted, self.writer.get_extra_info("ssl_object"))
        self.writer.write(hand.begin())
        while hand.peer is None:
            data = await asyncio.wait_for(self.reader.read(4096), 30)
            if not data:
                raise ConnectionError("alice hung up")
            self.writer.write(hand.receive(data))
        return hand

    async def is_refused(self, within=30.0):
        """Alice hangs up; what she said before is returned."""
        try:
            return await asyncio.wait_for(self.reader.read(), within)
        except (ConnectionError, ssl.SSLError):
            return b""
        finally:
            self.writer.close()


def record(hand, body):
    sealed = hand.channel.seal(body)
    return LENGTH.pack(len(sealed)) + sealed


def reasons(caplog, word):
    """Why alice refused somebody, from her log, line by line."""
    told = [
        entry.reason
        for entry in caplog.records
        if entry.levelno >= logging.WARNING
        and getattr(entry, "node", "") == "alice"
        and hasattr(entry, "reason")
    ]
    return [reason for reason in told if word in reason]


def logged_once(caplog, word):
    found = reasons(caplog, word)
    assert len(found) == 1, [entry.__dict__ for entry in caplog.records if entry.levelno >= logging.WARNING]


def never_interrupted(pair):
    """Neither of the honest two has had to connect again: each called the other once."""
    for node, peer in ((pair.alice, "bob"), (pair.bob, "alice")):
        assert node.failure is None
        assert node.stats()["peers"][peer]["calling"] and node.stats()["peers"][peer]["called"]


def attack(kind, pki, caplog, act):
    """Run `act(pair)` TIMES times against a talking pair."""
    caplog.set_level(logging.INFO)

    async def run():
        async with talking(kind, pki) as pair:
            before = connections(caplog)
            for _ in range(TIMES):
                await act(pair)
            await pair.goes_on()
            never_interrupted(pair)
            assert connections(caplog) == before, "an honest link was interrupted"

    asyncio.run(run())


def connections(caplog):
    """How often the honest two have connected to one another."""
    return sum(
        getattr(entry, "event", "") == "connected"
        and entry.peer in ("alice", "bob")
        and entry.node in ("alice", "bob")
        for entry in caplog.records
    )


# Who one is


@pytest.mark.parametrize(
    ("word", "context"),
    [
        pytest.param(
            "CERTIFICATE_VERIFY_FAILED", lambda pki: stranger(pki, "theirs"), id="of another authority"
        ),
        pytest.param("PEER_DID_NOT_RETURN_A_CERTIFICATE", lambda pki: stranger(pki, None), id="none at all"),
    ],
)
def test_a_wrong_certificate(pki, caplog, word, context):
    async def act(pair):
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            attacker = await Attacker.connect(pair.port, context(pki))
            attacker.writer.write(b"x")
            await attacker.is_refused()

    attack("tls", pki, caplog, act)
    logged_once(caplog, word)


def stranger(pki, authority):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if authority:
        context.load_cert_chain(pki / authority / "bob.pem", pki / authority / "bob.key")
    return context


def test_a_right_certificate_with_anothers_name(pki, caplog):
    """mallory is certified, and says that she is bob."""
    mallory = identity.MutualTls("mallory", **certificate(pki, "mallory"))

    async def act(pair):
        attacker = await Attacker.connect(pair.port, mallory.tls(server=False))
        lie = Handshake("bob", Mode.TLS, nonce=bytes(NONCE_SIZE), wanted="alice", certified="alice")
        attacker.writer.write(lie.begin())
        await attacker.is_refused()

    attack("tls", pki, caplog, act)
    logged_once(caplog, "its certificate names 'mallory', and it says 'bob'")


def test_a_right_certificate_and_messages_of_another(pki, caplog):
    """mallory is herself on the link, and sends a message that claims to be bob's."""
    mallory = identity.MutualTls("mallory", **certificate(pki, "mallory"))

    async def act(pair):
        attacker = await Attacker.connect(pair.port, mallory.tls(server=False))
        hand = await attacker.shake_hands(mallory, "mallory")
        attacker.writer.write(
            record(hand, said_hello(pair)) + record(hand, frames_out([(1, frame_of("bob"))]))
        )
        await attacker.is_refused()

    attack("tls", pki, caplog, act)
    logged_once(caplog, "a message of process")


def said_hello(pair):
    hello = Hello(b"m" * 8, pair.alice.host.hello("mallory").incarnation, "ks", ("alice", "bob", "mallory"))
    return control(**with_check(hello=hello_to_json(hello)))


def frame_of(sender):
    from happened.ordering import create
    from happened.wire import encode

    members = ("alice", "bob", "mallory")
    machine = create("ks", members.index(sender), 3)
    return encode(machine.multicast([0], b"forged").effects[0].message)


def test_the_wrong_shared_key(pki, caplog):
    async def act(pair):
        attacker = await Attacker.connect(pair.port)
        wrong = Handshake("bob", Mode.SHARED_KEY, nonce=bytes(NONCE_SIZE), wanted="alice", key=b"w" * 32)
        attacker.writer.write(wrong.begin())
        await asyncio.wait_for(attacker.reader.read(4096), 30)
        attacker.writer.write(b"\0" * 32)  # a proof, made without the key
        await attacker.is_refused()

    attack("shared-key", pki, caplog, act)
    logged_once(caplog, "does not have our shared key")


@pytest.mark.parametrize("kind", GUARDS)
def test_an_unknown_name(pki, caplog, kind, tmp_path):
    if kind == "tls":
        with contextlib.suppress(identity.IdentityError):
            identity.issue(pki / "ours", "nobody")
    guard = guard_of(kind, "nobody", pki)

    async def act(pair):
        attacker = await Attacker.connect(pair.port, guard.tls(server=False))
        with contextlib.suppress(ConnectionError):
            await attacker.shake_hands(guard, "nobody")
        await attacker.is_refused()

    attack(kind, pki, caplog, act)
    logged_once(caplog, "'nobody' is not a peer of 'alice'")


# What one says


def test_replayed_bytes_of_a_whole_session(pki, caplog):
    """Everything a member once said, recorded on the wire and said again."""
    guard = identity.SharedKey(KEY)
    recorded = []

    async def act(pair):
        if not recorded:
            genuine = await Attacker.connect(pair.port)
            write, said = genuine.writer.write, bytearray()
            genuine.writer.write = lambda data: (said.extend(data), write(data))
            hand = await genuine.shake_hands(guard, "mallory")
            genuine.writer.write(record(hand, said_hello(pair)))
            await asyncio.wait_for(genuine.reader.read(4096), 30)
            genuine.writer.close()
            recorded.append(bytes(said))
        attacker = await Attacker.connect(pair.port)
        attacker.writer.write(recorded[0])
        await attacker.is_refused()

    attack("shared-key", pki, caplog, act)
    logged_once(caplog, "'mallory' does not have our shared key")


def test_a_replayed_frame_within_a_session(pki, caplog):
    guard = identity.SharedKey(KEY)

    async def act(pair):
        attacker = await Attacker.connect(pair.port)
        hand = await attacker.shake_hands(guard, "mallory")
        hello = record(hand, said_hello(pair))
        attacker.writer.write(hello + hello)
        await attacker.is_refused()

    attack("shared-key", pki, caplog, act)
    logged_once(caplog, "repeated or out of its place")


@pytest.mark.parametrize("kind", GUARDS)
@pytest.mark.parametrize(
    ("word", "body"),
    [
        pytest.param("exceeds the limit", None, id="a record of 4 GB is announced"),
        pytest.param("the limit is 100000", FRAME.pack(200_000, 1) + bytes(200_000), id="an oversized frame"),
        pytest.param("ends within", b"\0\0\0", id="half a head"),
        pytest.param("is announced", FRAME.pack(50, 1) + b"short", id="a frame cut short"),
        pytest.param("before a hello", FRAME.pack(1, 1) + b"x", id="frames before a hello"),
        pytest.param("not a control frame", FRAME.pack(4, 0) + b"[[[[", id="no JSON"),
        pytest.param("not a hello", control(hello={"members": 7}), id="a hello that is none"),
    ],
)
def test_oversized_and_malformed(pki, caplog, kind, word, body):
    guard = guard_of(kind, "mallory", pki)

    async def act(pair):
        attacker = await Attacker.connect(pair.port, guard.tls(server=False))
        hand = await attacker.shake_hands(guard, "mallory")
        attacker.writer.write(struct.pack(">I", 0xFFFFFFFF) if body is None else record(hand, body))
        await attacker.is_refused()

    attack(kind, pki, caplog, act)
    logged_once(caplog, word)


def test_a_malformed_message_after_a_good_hello(pki, caplog):
    guard = guard_of("shared-key", "mallory", pki)

    async def act(pair):
        attacker = await Attacker.connect(pair.port)
        hand = await attacker.shake_hands(guard, "mallory")
        attacker.writer.write(record(hand, said_hello(pair)) + record(hand, frames_out([(1, b"\x07" * 30)])))
        await attacker.is_refused()
        assert pair.alice.host.expects("mallory") == 1

    attack("shared-key", pki, caplog, act)


@pytest.mark.parametrize("kind", GUARDS)
def test_bytes_of_another_protocol(pki, caplog, kind):
    async def act(pair):
        attacker = await Attacker.connect(pair.port)
        attacker.writer.write(b"GET / HTTP/1.1\r\nHost: alice\r\n\r\n")
        await attacker.is_refused()

    attack(kind, pki, caplog, act)
    logged_once(caplog, "HTTP_REQUEST" if kind == "tls" else "does not speak this protocol")


# How fast and how often


@pytest.mark.parametrize("kind", GUARDS)
def test_slow_loris(pki, caplog, kind):
    """One byte now and then does not buy time: the deadline is for the whole handshake."""

    async def act(pair):
        attacker = await Attacker.connect(pair.port)
        mode = Mode.PLAINTEXT if kind == "plaintext" else Mode.SHARED_KEY
        hello = Handshake("mallory", mode, nonce=bytes(NONCE_SIZE), wanted="alice", key=KEY).begin()
        slow = hello if kind != "tls" else b"\x16\x03\x01\x02\x00\x01"
        start = asyncio.get_running_loop().time()

        async def drip():
            for byte in slow * 10:
                attacker.writer.write(bytes((byte,)))
                await asyncio.sleep(0.2)

        dripping = asyncio.create_task(drip())
        await attacker.is_refused()
        dripping.cancel()
        assert asyncio.get_running_loop().time() - start < 4 * LIMITS.handshake

    attack(kind, pki, caplog, act)
    found = reasons(caplog, "in time") + reasons(caplog, "taking longer")
    assert len(found) == 1, reasons(caplog, "")


@pytest.mark.parametrize("kind", GUARDS)
def test_a_flood_of_connections(pki, caplog, kind):
    """Many more than are allowed, all silent: the oldest are closed at once, and honest newcomers get in."""
    guard = guard_of(kind, "mallory", pki)

    async def act(pair):
        flood = [await Attacker.connect(pair.port) for _ in range(10 * LIMITS.strangers)]
        open_before = len(flood)
        async with asyncio.timeout(LIMITS.handshake * 0.9):
            await asyncio.gather(*(each.is_refused() for each in flood[: -LIMITS.strangers - 1]))
        assert open_before > LIMITS.strangers
        newcomer = await Attacker.connect(pair.port, guard.tls(server=False))
        await newcomer.shake_hands(guard, "mallory")
        newcomer.writer.close()
        for each in flood:
            each.writer.close()

    attack(kind, pki, caplog, act)
    logged_once(caplog, "too many connections")


FLOOD = """
import socket, sys, time
kept, end = [], time.monotonic() + float(sys.argv[2])
while time.monotonic() < end and len(kept) < 3000:
    each = socket.socket()
    each.setblocking(False)
    each.connect_ex(("127.0.0.1", int(sys.argv[1])))
    kept.append(each)
    if len(kept) > 800:
        kept.pop(0).close()
print(len(kept), flush=True)
"""


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind == "tls" else pytest.mark.slow) for kind in GUARDS]
)
def test_a_burst_from_outside_holds_few_descriptors_and_newcomers_get_in(pki, caplog, kind):
    """Another process connects as fast as it can: thousands were accepted before any was refused, once."""
    guard = guard_of(kind, "mallory", pki)

    async def act(pair):
        before, most = len(os.listdir("/proc/self/fd")), 0
        flood = await asyncio.create_subprocess_exec(
            sys.executable, "-c", FLOOD, str(pair.port), "1.5", stdout=asyncio.subprocess.PIPE
        )
        ended = asyncio.create_task(flood.communicate())
        got_in = 0
        while not ended.done():
            with contextlib.suppress(OSError, TimeoutError, AssertionError):
                async with asyncio.timeout(1.0):
                    newcomer = await Attacker.connect(pair.port, guard.tls(server=False))
                    await newcomer.shake_hands(guard, "mallory")
                    got_in += 1
                    newcomer.writer.close()
            most = max(most, len(os.listdir("/proc/self/fd")))
        assert most <= before + 2 * LIMITS.strangers + 20, (before, most)
        assert got_in > 0

    attack(kind, pki, caplog, act)
