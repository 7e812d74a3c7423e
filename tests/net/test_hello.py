"""What two nodes must have in common before anything is remembered, sent or delivered."""

import asyncio
import contextlib
import json

import pytest
from test_link_security import Attacker, record
from test_node import addresses, make, run, take, until

from happened.core.errors import LocalProtocolError, RemoteProtocolError
from happened.net import Limits, Plaintext, SharedKey, terms
from happened.net.engine import Engine
from happened.net.errors import PeerRefused
from happened.net.node import Node
from happened.net.records import (
    FRAME,
    RECORD_BYTES,
    checked_hello,
    control,
    fit_record,
    frames_out,
    hello_from_json,
    hello_to_json,
    read_control,
    with_check,
)
from happened.net.terms import Terms, digest_of_options
from happened.net.transport import Hello
from happened.ordering import create

KEY = b"k" * 32


def node(name, where, tmp_path, *, folder="", guard=None, **more):
    (tmp_path / folder).mkdir(exist_ok=True)
    return Node(
        name,
        peers=where,
        listen=where[name],
        guard=guard or Plaintext(),
        journal=tmp_path / folder / f"{name}.journal",
        limits=Limits(first_retry=0.02, last_retry=0.2, heartbeat=1.0, linger=0.2),
        **more,
    )


def reasons(one, peer):
    return list(one._connections.troubles_with(peer))


@pytest.mark.parametrize("guard", [Plaintext(), SharedKey(KEY)], ids=["plaintext", "shared key"])
def test_a_misdirected_call_to_another_cluster_is_not_remembered_at_either_end(tmp_path, guard):
    """Somebody wrote the address of staging's b into a's file of production, and then mends it."""

    async def scenario():
        production, staging = addresses("a", "b"), addresses("a", "b")
        wrong = {"a": production["a"], "b": staging["b"]}
        a = node("a", wrong, tmp_path, guard=guard, cluster="production")
        stranger = node("b", staging, tmp_path, folder="staging", guard=guard, cluster="staging")
        await asyncio.gather(a.start(), stranger.start())
        await a.multicast(["b"], b"for b of production")
        await until(lambda: any("cluster" in why for why in reasons(a, "b")))
        told = [why for why in reasons(stranger, "a") if "cluster" in why]
        assert "'a' is of cluster 'production', and this node of 'staging': correct the address" in told[0]
        assert not a.host.hello("b").knows and not stranger.host.hello("a").knows
        await a.close()
        a = node("a", production, tmp_path, guard=guard, cluster="production")
        b = node("b", production, tmp_path, guard=guard, cluster="production")
        genuine = node("a", staging, tmp_path, folder="staging", guard=guard, cluster="staging")
        await asyncio.gather(a.start(), b.start(), genuine.start())
        await genuine.multicast(["b"], b"for b of staging")
        assert await take(b, 1) == ["a:1"] and await take(stranger, 1) == ["a:1"]
        assert a.host.hello("b").knows == b.host.hello("a").incarnation
        await asyncio.gather(*(each.close() for each in (a, b, genuine, stranger)))

    run(scenario())


async def call(where, me, hello):
    """Call `a` as `me`, say hello, and return the connection with what a answered."""
    caller = await Attacker.connect(int(where["a"].split(":")[1]))
    hand = await caller.shake_hands(Plaintext(), me, "a")
    caller.writer.write(record(hand, control(**with_check(hello=hello_to_json(hello)))))
    length = int.from_bytes(await asyncio.wait_for(caller.reader.readexactly(4), 10), "big")
    answer = await asyncio.wait_for(caller.reader.readexactly(length), 10)
    return caller, hand, read_control(answer[FRAME.size :])


@pytest.mark.parametrize("goes_on", [False, True], ids=["it refuses us", "it goes on"])
def test_a_caller_is_remembered_once_it_has_accepted_our_hello(tmp_path, goes_on):
    """It has no feature of the link, such as checksums, and is understood."""

    async def scenario():
        where = addresses("a", "b")
        a = make("a", where, tmp_path)
        await a.start()
        caller, hand, said = await call(where, "b", Hello(b"b" * 8, b"", "ks", ("a", "b")))
        assert "hello" in said and not a.host.hello("b").knows
        rest = control() if goes_on else control(refused="this is not the a that I know")
        caller.writer.write(record(hand, rest))
        if goes_on:
            await until(lambda: a.host.hello("b").knows == b"b" * 8)
        else:
            caller.writer.write_eof()
            await caller.is_refused()
            await until(lambda: any("not the a that I know" in why for why in reasons(a, "b")))
            assert not a.host.hello("b").knows
        caller.writer.close()
        await a.close()

    run(scenario())


def test_a_caller_that_is_refused_hears_nothing_that_it_takes_for_progress(tmp_path):
    """It would forget that it had failed before, and call again at once."""

    async def scenario():
        where = addresses("a", "b")
        a = make("a", where, tmp_path)
        await a.start()
        caller, hand, said = await call(where, "b", Hello(b"b" * 8, b"", "ks", ("a", "b")))
        assert said["have"] == 0
        caller.writer.write(record(hand, control()))
        await until(lambda: a.host.hello("b").knows)
        await a.flush()
        caller.writer.write(record(hand, frames_out([(1, b"no frame")])))
        rest = await caller.is_refused()
        assert b"refused" in rest and b"have" not in rest
        await a.close()

    run(scenario())


def test_members_that_differ_are_refused_before_anything_is_delivered(tmp_path):
    """Each list begins as the other does: only who was there first tells that one is wrong."""

    async def scenario():
        where = addresses("a", "b", "c")
        a = node("a", where, tmp_path)
        b = node("b", {name: where[name] for name in "ab"}, tmp_path)
        await asyncio.gather(a.start(), b.start())
        await b.multicast(["a"], b"x")
        await until(lambda: any("other members" in why for why in reasons(a, "b")))
        assert a.delivered == 0 and not a.host.hello("b").knows
        await asyncio.gather(a.close(), b.close())

    run(scenario())


def test_a_process_that_joins_was_started_with_more_members(tmp_path):
    async def scenario():
        where = addresses("a", "b", "c")
        two = {name: where[name] for name in "ab"}
        a, b = (node(name, two, tmp_path) for name in "ab")
        await asyncio.gather(a.start(), b.start())
        c = node("c", where, tmp_path, members=await a.join("c", where["c"]))
        await c.start()
        await b.multicast(["a"], b"x")
        await take(a, 1)
        await until(lambda: "c" in b.members)
        await b.multicast(["c"], b"y")
        assert await take(c, 1) == ["b:2"]
        await asyncio.gather(*(each.close() for each in (a, b, c)))

    run(scenario())


def test_other_options_are_refused_and_defaults_may_be_written_out(tmp_path):
    async def scenario(options, works):
        where = addresses("a", "b")
        a = node("a", where, tmp_path, folder=str(works), protocol="sequencer")
        b = node("b", where, tmp_path, folder=str(works), protocol="sequencer", options=options)
        await asyncio.gather(a.start(), b.start())
        await b.multicast(["a"], b"x")
        if works:
            await take(a, 1)
        else:
            await until(lambda: any("other options" in why for why in reasons(a, "b")))
            assert a.delivered == 0
        await asyncio.gather(a.close(), b.close())

    run(scenario({"coordinator": "a"}, works=True))
    run(scenario({"coordinator": "b"}, works=False))


def test_every_protocol_can_tell_a_digest_of_its_options():
    from happened.ordering import protocols

    for name in protocols():
        machine = create(name, 0, 3)
        nothing = digest_of_options(create("bss", 1, 3), {})  # so that an option more changes nothing
        assert digest_of_options(machine, {}) == nothing
        for option in protocols()[name].options:
            if option.name not in ("place", protocols()[name].copies.common_frame):
                assert digest_of_options(machine, {option.name: "other"}) != nothing


@pytest.mark.parametrize(
    "ours, theirs, why",
    [
        ({"cluster": "x"}, {"cluster": "y"}, "is of cluster 'y'"),
        ({"lowest": 1, "highest": 2}, {"lowest": 3, "highest": 4}, "speaks versions 3 to 4"),
        ({"lowest": 2, "highest": 3}, {}, "speaks versions 1 to 1 of links, and this node 2 to 3"),
    ],
)
def test_another_system_or_version_is_refused(ours, theirs, why):
    with pytest.raises(PeerRefused, match=why):
        Terms(**ours).check_system("b", Terms(**theirs))


def test_a_cluster_can_be_introduced_node_by_node_and_versions_may_overlap():
    Terms(cluster="x", lowest=1, highest=2).check_system("b", Terms())
    Terms().check_system("b", Terms(cluster="x", lowest=1, highest=3))
    Terms(options="1").check_setup("b", Terms(founders="2"))


def test_terms_are_told_and_read_again_with_room_for_later_ones():
    told = Terms("x", "f", "o", 1000, 1, 2, frozenset({"checksum", "other"}))
    hello = Hello(b"i" * 8, b"", "ks", ("a", "b"), terms=told)
    said = json.loads(json.dumps(hello_to_json(hello)))
    assert hello_from_json(said) == hello
    said["terms"]["later"] = {"what": "ever"}
    assert hello_from_json(said) == hello


@pytest.mark.parametrize(
    "wrong",
    [
        {"cluster": 1}, {"cluster": "x" * 256}, {"frame": -1}, {"frame": True}, {"lowest": "1"},
        {"features": "checksum"}, {"features": [1]}, {"features": [[]]}, {"features": ["f"] * 65}, [], 7,
    ],
)  # fmt: skip
def test_terms_that_are_none_are_refused(wrong):
    said = hello_to_json(Hello(b"i" * 8, b"", "ks", ("a", "b"))) | {"terms": wrong}
    with pytest.raises(RemoteProtocolError, match="not a hello"):
        hello_from_json(said)


def test_a_cluster_must_be_printable():
    with pytest.raises(LocalProtocolError, match="is no name of a cluster"):
        terms.check_cluster("a\nb")


# Damage.


def test_a_flipped_bit_in_a_hello_is_found_wherever_it_is():
    hello = Hello(b"i" * 8, b"", "ks", ("a", "b"), terms=Terms(features=terms.FEATURES))
    body = control(**with_check(hello=hello_to_json(hello), have=3))[FRAME.size :]
    assert checked_hello(read_control(body)) == hello
    for place in range(len(body) * 8):
        damaged = bytearray(body)
        damaged[place // 8] ^= 1 << place % 8
        try:
            said = read_control(bytes(damaged))
            read = checked_hello(said) if "hello" in said else None
        except RemoteProtocolError:
            continue
        # A flipped bit in the name of the checksum, or of the hello, is no damage to what is believed.
        assert read is None or (read == hello and said.get("have") == 3), bytes(damaged)


def test_flipped_bytes_on_a_plaintext_link_end_the_connection_and_poison_nothing(tmp_path, seed):
    """A proxy damages one byte of every hundred thousand or so; everything arrives, as it was sent."""
    from random import Random

    dice, damage = Random(seed), []

    async def forward(reader, writer, first):
        with contextlib.suppress(ConnectionError):
            while data := bytearray(await reader.read(65536)):
                if not first and len(data) > 1000 and dice.random() < 0.3:
                    damage.append(place := dice.randrange(len(data)))
                    data[place] ^= 1 << dice.randrange(8)
                first = False
                writer.write(data)
                await writer.drain()
        writer.close()

    async def scenario():
        where = addresses("a", "b")

        async def between(reader, writer):
            host, port = where["b"].split(":")
            there = await asyncio.open_connection(host, int(port))
            await asyncio.gather(forward(reader, there[1], True), forward(there[0], writer, True))

        proxy = await asyncio.start_server(between, "127.0.0.1", 0)
        seen = dict(where, b=f"127.0.0.1:{proxy.sockets[0].getsockname()[1]}")
        a = make("a", seen, tmp_path)
        b = make("b", where, tmp_path)
        await asyncio.gather(a.start(), b.start())
        payloads = []
        for _ in range(60):
            payloads.append(dice.randbytes(30_000))
            await a.multicast(["b"], payloads[-1])
        for number, sent in enumerate(payloads):
            message = await anext(b)
            assert message.payload == sent, number
            message.ack_nowait()
        assert damage and any("checksum is wrong" in why or "exceeds" in why for why in reasons(b, "a"))
        assert not b.quarantined()
        await asyncio.gather(a.close(), b.close())
        proxy.close()

    run(scenario())


# Frames that the other end does not take.


def test_records_are_cut_where_the_receiver_would_refuse_them():
    short = [(number, b"x") for number in range(1, 100_000)]
    fitting = fit_record(short, 1000)
    assert 0 < len(fitting) < len(short)
    assert len(frames_out(fitting)) <= RECORD_BYTES + 2 * (FRAME.size + 1)
    assert fit_record([(1, b"x" * 10), (2, b"x" * 11), (3, b"x")], 10) == [(1, b"x" * 10)]
    assert fit_record([(1, b"x" * 11)], 10) == []


def test_a_refused_frame_is_set_aside_shown_and_tried_again_alone(tmp_path, monkeypatch):
    """b does not understand a's third frame until it is upgraded; forty longer ones wait behind it."""

    from happened.net import tcp_connections

    taken = 0
    read = tcp_connections.Called.data_received

    def counted(self, data):
        nonlocal taken
        taken += len(data) if self._owner is b.transport else 0
        read(self, data)

    async def scenario():
        nonlocal b
        where = addresses("a", "b")
        a, b = (make(name, where, tmp_path, {"last_retry": 0.4, "linger": 0.1}) for name in "ab")
        await asyncio.gather(a.start(), b.start())
        receive, is_old = Engine.receive, True

        def older(engine, link, frame):
            if engine is b._engine and is_old and b.host.expects("a") == 3:
                raise RemoteProtocolError("frames of kind 99 are not known here")
            receive(engine, link, frame)

        monkeypatch.setattr(Engine, "receive", older)
        for number in range(42):
            await a.multicast(["b"], b"%d" % number * 20_000)
        await until(lambda: b.quarantined() and b.quarantined()[0].times >= 2)
        refused, before = b.stats()["refused"], taken
        await asyncio.sleep(1.5)
        assert 1 <= b.stats()["refused"] - refused <= 9  # every 0.2 to 0.4 seconds
        assert taken - before < 10 * 50_000  # one frame each time
        (there,), (here,) = b.quarantined(), a.quarantined()
        assert (there.peer, there.outgoing, there.number, there.size) == ("a", False, 3, here.size)
        assert (here.peer, here.outgoing, here.number) == ("b", True, 3) and here.size > 20_000
        assert "kind 99" in there.reason and "kind 99" in here.reason and there.since < here.since + 60
        assert any("frame 3 to b is set aside" in why for why in a.health().problems)
        assert a.stats()["quarantined"] == b.stats()["quarantined"] == 1
        is_old = False
        assert await take(b, 42) == [f"a:{clock}" for clock in range(1, 43)]
        await until(lambda: not a.quarantined() and not b.quarantined())
        await asyncio.gather(a.close(), b.close())

    b = None
    monkeypatch.setattr(tcp_connections.Called, "data_received", counted, raising=False)
    run(scenario())


def test_a_frame_that_the_receiver_would_not_take_is_not_sent(tmp_path):
    """a confirmed it before b had told its limit; once b takes more, it goes."""
    small = {"frame": 20_000, "payload": 10_000}

    async def scenario():
        where = addresses("a", "b")
        a, b = make("a", where, tmp_path), make("b", where, tmp_path, small)
        await a.start()
        await a.multicast(["b"], b"x" * 50_000)
        await b.start()
        await until(a.quarantined)
        (aside,) = a.quarantined()
        assert aside.outgoing and aside.number == 1 and "'b' takes 20000: raise limits.frame" in aside.reason
        with pytest.raises(LocalProtocolError, match="takes frames of 20000"):
            await a.multicast(["b"], b"x" * 19_000)
        await a.multicast(["b"], b"y" * 15_000)
        assert b.stats()["refused"] == 0 and "a" in b._connections.called
        await b.close()
        b = make("b", where, tmp_path)
        await b.start()
        assert await take(b, 2) == ["a:1", "a:2"]
        await until(lambda: not a.quarantined())
        await a.multicast(["b"], b"x" * 19_000)
        await asyncio.gather(a.close(), b.close())

    run(scenario())
