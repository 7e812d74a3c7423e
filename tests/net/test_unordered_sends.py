"""Messages outside of all orders, sent by real engines and nodes of every protocol: each arrives once, at
once, and the order of the others is what it was."""

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from netcluster import Cluster, schedule
from sitecluster import SiteCluster, router_kills
from test_engine_replay import EVERY, NAMES, deliver_all, make, multicast
from test_node import nodes, run, take
from test_routes_kill import inner

from causality import traces
from happened import wire
from happened.causality import check_delivery, check_order
from happened.core.destinations import unpack
from happened.core.errors import LocalProtocolError, RemoteProtocolError
from happened.core.places import Branch, Place
from happened.net.engine import Engine
from happened.ordering import protocols
from happened.wire import membership, piggybacks
from happened.wire import unordered_message as unordered
from happened.wire.unordered_message import UnorderedMessage

DEPARTMENTS = Path(__file__).parents[2] / "examples" / "topologies" / "departments.yaml"


class Rows:
    """Records the events of one engine as rows of a trace."""

    def __init__(self, engine):
        self.name, self.rows = engine.name, []
        engine.recorder = self

    def _add(self, seq, **row):
        self.rows.append({"process": self.name, "seq": seq, **row})

    def sent(self, seq, time, clock, to, messages, frames):
        to = [NAMES[each] for each in unpack(to)]
        self._add(seq, kind="send", message=f"{self.name}:{clock}", to=to)

    def sent_unordered(self, seq, time, clock, to):
        to = [NAMES[each] for each in unpack(to)]
        self._add(seq, kind="unordered", message=f"{self.name}:{clock}", to=to)

    def received(self, seq, time, message, frame):
        self._add(seq, kind="internal")

    def delivered(self, seq, time, sender, clock):
        self._add(seq, kind="deliver", message=f"{NAMES[sender]}:{clock}")


def frames(sender, receiver):
    """What `sender` has for `receiver`, in order."""
    if sender.is_dirty:
        sender.release(sender.cut())
    outbox, inbox = sender.outboxes[receiver.me], receiver.inboxes[sender.me]
    return [
        frame
        for number, frame in outbox.after(outbox.acknowledged, 1 << 20)
        if number > inbox.received_through
    ]


@pytest.mark.parametrize("protocol", EVERY)
def test_each_arrives_once_and_the_order_of_the_others_is_kept(protocol, dice: Random):
    engines = {name: make(name, protocol) for name in NAMES}
    recorders = [Rows(engine) for engine in engines.values()]
    everybody, unordered_sent = list(engines.values()), 0
    for _ in range(150):
        engine = dice.choice(everybody)
        if dice.random() < 0.15:
            engine.unordered.multicast(dice.sample(range(4), dice.randint(1, 4)), b"no order")
            unordered_sent += 1
        elif dice.random() < 0.3:
            multicast(protocol, dice, engine, b"in order")
        else:
            other = dice.choice([each for each in everybody if each is not engine])
            for frame in frames(other, engine)[: dice.randint(1, 4)]:
                before = engine.delivered
                engine.receive(other.me, frame)
                assert frame[0] != unordered.MARK or engine.delivered == before + 1  # it waits for nothing
    deliver_all(engines)
    trace = traces.table([row for each in recorders for row in each.rows])
    fates = check_delivery(trace)
    assert (fates.lost, fates.duplicated, fates.misdelivered, fates.never_sent) == (0, 0, 0, 0)
    assert unordered_sent > 5 and fates.messages > unordered_sent
    for order in protocols()[protocol].order.split("-"):
        verdict = check_order(trace, order)
        assert verdict.holds and not verdict.lost_causes, verdict
    assert all(engine.events == engine.machine.events for engine in everybody)


def test_it_overtakes_what_is_held_and_nothing_waits_for_it():
    a, b, c, _ = (make(name, "ks") for name in NAMES)
    a.multicast([1, 2], b"question")
    for frame in frames(a, b):
        b.receive(0, frame)
    b.unordered.multicast([2], b"hint")
    b.multicast([2], b"answer")
    hint, answer = frames(b, c)
    c.receive(1, hint)
    c.receive(1, answer)
    assert [each.payload for each in c.unacknowledged.values()] == [b"hint"] and c.held_count() == 1
    for frame in frames(a, c):
        c.receive(0, frame)
    assert [each.payload for each in c.unacknowledged.values()] == [b"hint", b"question", b"answer"]


def test_routers_pass_it_on_to_those_behind_them_alone():
    """a - b - c - d; what c gets for nobody behind it, or over a link that no route uses, is refused."""
    ends = [0b1110, 0b1100, 0b1000]
    places = [
        Place(0b0010, (Branch(1, ends[0], 0),)),
        Place(0b0101, (Branch(0, 0b0001, 0), Branch(2, ends[1], 1))),
        Place(0b1010, (Branch(1, 0b0011, 1), Branch(3, ends[2], 2))),
        Place(0b0100, (Branch(2, 0b0111, 2),)),
    ]
    engines = {
        name: Engine(name, NAMES, "topological", {"place": place})
        for name, place in zip(NAMES, places, strict=True)
    }
    engines["a"].unordered.multicast([0, 1, 3], b"far")
    engines["d"].unordered.multicast([2], b"near")
    deliver_all(engines)
    got = {
        name: [each.payload for each in engine.unacknowledged.values()] for name, engine in engines.items()
    }
    assert got == {"a": [b"far"], "b": [b"far"], "c": [b"near"], "d": [b"far"]}
    for link, message, why in (
        (1, UnorderedMessage(4, 0, 7, 0b0010, b""), "not for process 2"),
        (3, UnorderedMessage(4, 0, 7, 0b0100, b""), "route does not use"),
        (1, UnorderedMessage(5, 0, 7, 0b10100, b""), "a system of 5 processes"),
    ):
        before = engines["c"].snapshot()
        with pytest.raises(RemoteProtocolError, match=why):
            engines["c"].receive(link, unordered.encode(message))
        assert engines["c"].snapshot() == before


def test_what_cannot_be_sent_is_refused_and_changes_nothing():
    engine = make("a", "ks")
    for to, payload, why in (
        ([], b"", "at least one destination"),
        ([4], b"", "not among 4"),
        ([1], "text", "bytes, not str"),
        ([1], bytes(wire.MAX_FRAME), "does not fit"),
    ):
        with pytest.raises(LocalProtocolError, match=why):
            engine.unordered.multicast(to, payload)
    engine.leave("b")
    engine.release(engine.cut())
    before = engine.snapshot()
    with pytest.raises(LocalProtocolError, match="has left"):
        engine.unordered.multicast([1], b"")
    assert not engine.is_dirty and engine.snapshot() == before
    with pytest.raises(RemoteProtocolError, match="comes from process 2"):
        engine.receive(2, unordered.encode(UnorderedMessage(4, 3, 1, 1, b"")))


def test_a_node_sends_and_delivers_it_with_a_tracker_too(tmp_path):
    async def test():
        async with nodes("a", "b", "c", tmp_path=tmp_path, tracker="p1") as (a, b, _):
            a.relevant("seen by nobody")
            sent = await a.multicast(["a", "b"], b"hello", ordered=False)
            assert await take(b, 1) == [sent] == await take(a, 1)
            assert b.relevant("after it").vector == {"b": 1}  # the tracker learnt nothing

    run(test())


# Frames.


def test_a_frame_is_written_in_the_same_bytes_and_the_mark_is_nobody_elses():
    message = UnorderedMessage(300, 299, 1000, 1 << 7 | 1 << 299, b"hello")
    data = bytes.fromhex("fd01ac02ab02e807c80207a30268656c6c6f")
    assert unordered.encode(message) == data and unordered.decode(data) == message
    assert unordered.MARK not in (wire.VERSION, membership.MARK, piggybacks.MARK)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "ends early"),
        (b"\xfe\x01", "another byte"),
        (b"\xfd\x02", "upgrade this node"),
        (b"\xfd\x01\x02\x02", "is not below 2"),
        (b"\xfd\x01\x02\x00\x00\x01", "lacks a clock"),
        (b"\xfd\x01\x02\x00\x01", "ends early"),
        (b"\xfd\x01\xff\xff\xff\x7f", "is not below"),
    ],
)
def test_hostile_frames_are_refused(data, why):
    with pytest.raises(RemoteProtocolError, match=why):
        unordered.decode(data)


def test_any_bytes_are_a_message_or_refused(dice: Random):
    good = unordered.encode(UnorderedMessage(9, 3, 70, 0b101, b"payload"))
    outcomes = Counter()
    for _ in range(2000):
        data = bytearray(good)
        data[dice.randrange(1, len(data))] = dice.randrange(256)
        try:
            message = unordered.decode(bytes(data[: dice.randint(2, len(data))]))
            outcomes["read"] += 1
            assert 0 <= message.sender < message.n and not message.dests >> message.n
        except RemoteProtocolError:
            outcomes["refused"] += 1
    assert min(outcomes["read"], outcomes["refused"]) > 100


# Kills.


def judged(cluster):
    """The judge of all messages, and that some were unordered and some were not."""
    kinds = Counter(cluster.judge()["kind"].to_pylist())
    assert kinds["unordered"] > 20 and kinds["send"] > 20, kinds


@pytest.mark.parametrize("protocol", ["ks", pytest.param("agreed", marks=pytest.mark.slow)])
def test_kills_and_partitions_lose_and_repeat_none(tmp_path, seed, protocol):
    with Cluster(tmp_path, seed, protocol=protocol, messages=40, pace=0.008, unordered=0.4) as cluster:
        cluster.suffer(schedule(seed, 1.0, 0.35))
        cluster.wait(60)
    judged(cluster)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["topological", "zoned-ks"])
def test_killed_routers_lose_and_repeat_none(tmp_path, seed, protocol):
    with SiteCluster(
        tmp_path, seed, DEPARTMENTS, protocol=protocol, messages=15, pace=0.04, unordered=0.4
    ) as cluster:
        cluster.until_under_way()
        cluster.suffer(router_kills(seed, inner(DEPARTMENTS), 0.1, 1.0))
        cluster.wait(60)
    judged(cluster)
