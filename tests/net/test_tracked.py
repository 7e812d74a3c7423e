"""Nodes with a tracker: what they record is exact, survives, and is never taken for another tracker's."""

import asyncio
from random import Random

import pytest
from in_hand import InHand, carry, make_node

from contract.drive import Dice, destinations, options
from happened.causality.analysis import analyse
from happened.core.errors import LocalProtocolError, RemoteProtocolError
from happened.net import Limits, Node, Plaintext
from happened.net.batch import Input, read_entries
from happened.net.config import load
from happened.net.config import make_node as node_of
from happened.net.engine import Engine
from happened.net.errors import EngineFault, JournalError, PeerRefused
from happened.net.trace_recorder import TraceRecorder
from happened.ordering import protocols
from happened.trace import read
from happened.tracking import protocols as trackers
from happened.tracking import reconstruct
from happened.wire import piggybacks

NAMES = ["a", "b", "c", "d"]
FREE = sorted(name for name, facts in protocols().items() if not facts.assumes.serialized)
QUICK = Limits(linger=0.0)
EVERY = ["p2:2" if name == "p2" else name for name in trackers() if name != "direct"]


class Group:
    """Engines that record one trace, and exchange frames over their outboxes."""

    def __init__(self, folder, protocol, tracker, names=NAMES):
        self.folder, self.protocol, self.tracker = folder, protocol, tracker
        self.engines = {name: self.make(name, names) for name in names}

    def make(self, name, members):
        given = options(protocols()[self.protocol], len(members))
        engine = Engine(name, members, self.protocol, given, tracker=self.tracker)
        engine.recorder = TraceRecorder(self.folder, name, engine.members, "")
        return engine

    def step(self, dice, engine):
        act = dice.random()
        present = [each for each in range(len(engine.roster)) if each not in engine.gone]
        if act < 0.3:
            facts = protocols()[self.protocol]
            to = sorted(destinations(facts, Dice(dice.random()), engine.me, present, present))
            engine.multicast(to, dice.randbytes(dice.randrange(20)))
        elif act < 0.5:
            engine.tracking.relevant(f"{engine.name} sees {engine.delivered}")
        else:
            self.take(engine, dice.choice(list(engine.inboxes)), 200)
        self.settle(engine)

    def settle(self, engine):
        if engine.is_dirty:
            engine.release(engine.cut())
            engine.recorder.keep(engine.recorder.cut())

    def take(self, engine, link, most):
        sender = self.engines.get(engine.roster.name(link))
        if sender is None or engine.me not in sender.outboxes:
            return 0
        frames = sender.outboxes[engine.me].after(engine.inboxes[link].received_through, most)
        for _, frame in frames:
            engine.receive(link, frame)
        return len(frames)

    def finish(self):
        moved = True
        while moved:
            moved = False
            for engine in self.engines.values():
                for link in list(engine.inboxes):
                    moved |= self.take(engine, link, 1 << 30) > 0
                self.settle(engine)
        for engine in self.engines.values():
            engine.recorder.flush()

    def judged(self):
        found = analyse(read(self.folder), questions=["verify-trackers", "order"])
        assert found.totals["tracker_faults"] == 0, found.table("trackers").to_pylist()[:5]
        return found.totals["tracker_stamps"]


def play(folder, dice, protocol, tracker, steps=300):
    group = Group(folder, protocol, tracker)
    for _ in range(steps):
        group.step(dice, dice.choice(list(group.engines.values())))
    group.finish()
    for name, engine in group.engines.items():  # what they learnt last
        assert engine.events == engine.machine.events  # so that `pending` names arrivals by their seq
        engine.tracking.relevant(f"{name} ends")
    group.finish()
    return group


@pytest.mark.parametrize("protocol", FREE)
def test_a_tracker_rides_on_every_ordering_protocol(protocol, dice: Random, tmp_path):
    group = play(tmp_path, dice, protocol, "p2:2" if protocol == "agreed" else "p3-reduced")
    assert sum(engine.delivered for engine in group.engines.values()) > 20
    assert group.judged() > 40


@pytest.mark.parametrize("tracker", EVERY)
def test_every_tracker_rides_on_ks(tracker, dice: Random, tmp_path):
    assert play(tmp_path, dice, "ks", tracker).judged() > 40


@pytest.mark.parametrize("tracker", ["p1", "p2:1", "p3-reduced-prime-fifo", "differential", "matrix"])
def test_members_join_and_the_tracker_grows_with_them(tracker, dice: Random, tmp_path):
    group = Group(tmp_path, "ks", tracker, ["a", "b", "c"])
    for newcomer in ("d", "e"):
        for _ in range(120):
            group.step(dice, dice.choice(list(group.engines.values())))
        first = group.engines["a"]
        first.join(newcomer, "there:1")
        members = [first.roster.name(index) for index in range(len(first.roster))]
        group.settle(first)
        group.engines[newcomer] = group.make(newcomer, members)
    for _ in range(200):
        group.step(dice, dice.choice(list(group.engines.values())))
    group.finish()
    last = {name: engine.tracking.relevant("last") for name, engine in group.engines.items()}
    group.finish()
    assert group.judged() > 60
    if tracker == "p1":
        assert last["e"].vector.keys() >= {"a", "b", "c", "e"}


@pytest.mark.parametrize("tracker", ["p1", "p2:1", "p3-reduced", "p1-prime-fifo"])
def test_replaying_the_inputs_gives_the_same_tracker_and_the_same_null_events(tracker, dice: Random):
    engines = {name: Engine(name, NAMES, "ks", tracker=tracker) for name in NAMES}
    copies = {name: Engine(name, NAMES, "ks", tracker=tracker) for name in NAMES}
    for _ in range(250):
        engine = dice.choice(list(engines.values()))
        act = dice.random()
        if act < 0.35:
            engine.multicast(dice.sample([0, 1, 2, 3], dice.randint(1, 4)), b"m")
        elif act < 0.5:
            engine.tracking.relevant("Zoë's")
        else:
            for link, inbox in engine.inboxes.items():
                for _, frame in engines[NAMES[link]].outboxes[engine.me].after(inbox.received_through, 90):
                    engine.receive(link, frame)
        if engine.is_dirty:
            batch = engine.cut()
            engine.release(batch)
            copy = copies[engine.name]
            copy.replay(batch.entries, batch.time)
            assert copy.snapshot() == engine.snapshot() and copy.events == engine.events
            if dice.random() < 0.2:
                copies[engine.name] = restored = Engine(engine.name, NAMES, "ks", tracker=tracker)
                restored.restore(engine.snapshot())


def test_a_multicast_that_is_refused_leaves_the_tracker_as_it_was():
    engine = Engine("a", NAMES, "ks", tracker="p1-fifo")
    engine.tracking.relevant("one")
    engine.leave("b")
    engine.release(engine.cut())
    before, clock = engine.snapshot(), engine.events
    with pytest.raises(LocalProtocolError, match="has left"):
        engine.multicast([1, 2], b"hello")  # marks that it is on its way to c, if nobody takes that back
    assert not engine.is_dirty and engine.snapshot() == before and engine.events == clock


def frame_of(tracker, protocol="ks"):
    engine = Engine("b", NAMES, protocol, tracker=tracker)
    if tracker is not None:
        engine.tracking.relevant("x")
    engine.multicast([0, 2], b"hello")
    engine.release(engine.cut())
    ((_, frame),) = engine.outboxes[0].after(0, 1000)
    return frame


@pytest.mark.parametrize(
    ("mine", "theirs", "why"),
    [
        ("p1", "p3-reduced", "piggybacks of p3-reduced, and this node has p1: all nodes need the same"),
        ("p1", None, "without piggybacks, and this node tracks causality by p1: give its sender"),
        (None, "p1", "piggybacks of p1, and this node has no tracker: give it the same"),
    ],
)
def test_piggybacks_of_another_tracker_are_refused_and_not_misread(mine, theirs, why):
    engine = Engine("a", NAMES, "ks", tracker=mine)
    before = engine.snapshot()
    with pytest.raises(RemoteProtocolError, match=why):
        engine.receive(1, frame_of(theirs))
    assert not engine.is_dirty and engine.snapshot() == before


def test_a_bound_need_not_be_the_same():
    engine = Engine("a", NAMES, "ks", tracker="p2:1")
    engine.receive(1, frame_of("p2:3"))
    assert engine.tracking.relevant("").dependencies == {"a": 1, "b": 1}


def test_piggybacks_that_cannot_be_read_end_the_link_and_nothing_else(dice: Random):
    good = frame_of("p1")
    engine = Engine("a", NAMES, "ks", tracker="p1")
    before = engine.snapshot()
    number, inner = piggybacks.unmark(good)
    bare = frame_of(None)
    for bad, why in (
        (b"", "without piggybacks"),
        (good[:1], "cut off"),
        (piggybacks.mark(200, inner), "tracker number 200, which this happened does not know"),
        (piggybacks.mark(number, bare), "piggyback|announced|not below|ends early"),
        (good + b"!", "follow the end"),
    ):
        with pytest.raises(RemoteProtocolError, match=why):
            engine.receive(1, bad)
        assert engine.snapshot() == before
    for _ in range(2000):  # whatever is damaged: refused, or taken whole
        damaged = bytearray(good)
        for _ in range(dice.randint(1, 3)):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        copy = Engine("a", NAMES, "ks", tracker="p1")
        try:
            copy.receive(1, bytes(damaged))
        except (RemoteProtocolError, EngineFault):
            continue
    engine.receive(1, good)
    assert engine.delivered == 1 and engine.unacknowledged[1].payload == b"hello"


def test_a_peer_that_tells_what_cannot_be_is_refused_when_it_says_so():
    """b has heard of an event of another life of a."""
    other, b = (Engine(name, NAMES, "ks", tracker="vector") for name in "ab")
    other.tracking.relevant("in another life")
    other.multicast([1], b"hello")
    other.release(other.cut())
    b.receive(0, other.outboxes[1].after(0, 1000)[0][1])
    b.tracking.relevant("has heard of it")
    b.multicast([0], b"hello")
    b.release(b.cut())
    a = Engine("a", NAMES, "ks", tracker="vector")
    before = a.snapshot()
    with pytest.raises(RemoteProtocolError, match="an event of ours that we never produced"):
        a.receive(1, b.outboxes[0].after(0, 1000)[-1][1])
    assert not a.is_dirty and a.snapshot() == before


def test_each_copy_has_the_piggyback_it_needs_and_a_relayed_one_has_all():
    for protocol, carried in (("ks", {0}), ("sequencer", {0, 2})):
        _, inner = piggybacks.unmark(frame_of("p1", protocol))
        payload = inner[inner.index(b"hello") - 64 :] if b"hello" in inner[64:] else inner
        found = [start for start in range(len(payload)) if _opens(payload[start:], carried)]
        assert found, protocol


def _opens(data, carried):
    try:
        opened = piggybacks.open_sealed(data)
    except RemoteProtocolError:
        return False
    return opened.payload == b"hello" and set(opened.piggybacks) == carried


def test_a_fifo_tracker_refuses_what_reorders():
    with pytest.raises(
        LocalProtocolError, match="p1-fifo needs FIFO deliveries, which agreed does not promise"
    ):
        make_node("a", NAMES, "agreed", tracker="p1-fifo")

    class Shuffling(InHand):
        keeps_order = False
        acknowledges_for_peers = True

    with pytest.raises(LocalProtocolError, match="differential needs FIFO links, which Shuffling does not"):
        make_node("a", NAMES, tracker="differential", transport=Shuffling())
    make_node("a", NAMES, tracker="p1", transport=Shuffling())
    with pytest.raises(LocalProtocolError, match="no tracking protocol is called 'p9'"):
        make_node("a", NAMES, tracker="p9")


def run(scenario):
    return asyncio.run(asyncio.wait_for(scenario, 30))


def test_nodes_tell_which_events_come_before_which(tmp_path):
    async def scenario():
        nodes = [
            make_node(name, ["a", "b"], tracker="p3-reduced", trace=tmp_path / "t", limits=QUICK)
            for name in "ab"
        ]
        a, b = nodes
        for node in nodes:
            await node.start()
        first, apart = a.relevant("asks"), b.relevant("sleeps")
        a.multicast_nowait("b", b"question")
        await a.flush()
        carry(a, b)
        await b.flush()
        second = b.relevant("answers")
        assert str(second) == "b:2 {a: 1, b: 2} after a:1, b:1"
        assert first.before(second) and first.concurrent(apart)
        for node in nodes:
            await node.close()

    run(scenario())
    rows = [row for row in read(tmp_path / "t").to_pylist() if row["relevant"]]
    assert [row["label"] for row in rows if row["process"] == "b"] == ["sleeps", "answers"]
    assert dict(rows[-1]["attributes"]) == {
        "tracker": "p3-reduced",
        "relevant_seq": "2",
        "vector": "a:1 b:2",
        "predecessors": "a:1 b:1",
    }


def test_a_newcomer_is_tracked_from_its_first_event(tmp_path):
    """After restarts too: a snapshot of a larger system is restored into the tracker of that size."""

    async def scenario():
        def make(name, members):
            more = {"journal": tmp_path / name, "trace": tmp_path / "t", "limits": QUICK}
            return make_node(name, members, tracker="p3-reduced-prime", **more)

        a, b = make("a", ["a", "b"]), make("b", ["a", "b"])
        for node in (a, b):
            await node.start()
        a.relevant("before c")
        await a.multicast("b", b"sent when there were two")
        members = await a.join("c", "in hand")
        c = make("c", list(members))
        await c.start()
        await a.multicast(["b", "c"], b"sent when there were three")
        carry(a, b)
        carry(a, c)
        await asyncio.gather(b.flush(), c.flush())
        first = c.relevant("begins")
        await c.multicast("b", b"hello")
        await b.close()
        b = make("b", ["a", "b"])
        await b.start()
        carry(c, b)
        await b.flush()
        last = b.relevant("has heard of all")
        for node in (a, b, c):
            await node.close()
        return first, last

    first, last = run(scenario())
    assert str(first) == "c:1 {a: 1, c: 1} after a:1"
    assert str(last) == "b:1 {a: 1, b: 1, c: 1} after c:1"
    assert analyse(read(tmp_path / "t"), questions=["verify-trackers"]).totals["tracker_faults"] == 0


def test_without_a_tracker_there_are_no_relevant_events():
    async def scenario():
        async with make_node("a", ["a", "b"]) as node:
            with pytest.raises(LocalProtocolError, match=r"'a' has no tracker: give one, as in Node\("):
                node.relevant("x")
        async with make_node("a", ["a", "b"], tracker="p1") as node:
            with pytest.raises(LocalProtocolError, match="a label is text, not bytes"):
                node.relevant(b"x")
            assert node.relevant().seq == 1

    run(scenario())


def test_peers_with_another_tracker_are_refused_when_they_meet():
    async def scenario():
        a = make_node("a", ["a", "b"], tracker="p1")
        b = make_node("b", ["a", "b"], tracker="p2:4")
        c = make_node("b", ["a", "b"])
        for node in (a, b, c):
            await node.start()
        with pytest.raises(
            PeerRefused, match="'b' tracks causality by p2 and 'a' by p1: give all nodes the same"
        ):
            a.host.meet("b", b.host.hello("a"))
        with pytest.raises(PeerRefused, match="'b' tracks causality by nothing and 'a' by p1"):
            a.host.meet("b", c.host.hello("a"))

    run(scenario())


def test_a_journal_is_of_one_tracker(tmp_path):
    async def start(**more):
        async with make_node("a", ["a", "b"], journal=tmp_path / "j", **more) as node:
            return node.relevant("x").seq if more else None

    assert run(start(tracker="p2:2")) == 1
    assert run(start(tracker="p2:2")) == 2  # goes on where it was
    for other in ({"tracker": "p1"}, {"tracker": "p2:3"}, {}):
        with pytest.raises(JournalError, match='whose tracker is "p2:2"'):
            run(start(**other))


def test_null_events_of_a_node_survive_a_crash(tmp_path):
    """Killed right after a null event was forced: its row is made again, and vectors can be reconstructed."""

    async def scenario():
        members = ["a", "b", "c"]
        journal = {"a": tmp_path / "a", "b": tmp_path / "b", "c": tmp_path / "c"}

        def make(name):
            return make_node(name, members, tracker="p2:1", journal=journal[name], trace=tmp_path / "t")

        a, b, c = map(make, members)
        for node in (a, b, c):
            await node.start()
        a.relevant("1")
        await a.multicast("b", b"m")
        carry(a, b)
        await b.flush()
        b.relevant("2")
        a.relevant("3")
        await a.multicast("b", b"m")
        carry(a, b)
        await b.flush()
        await b.multicast(["a", "c"], b"m")  # two entries are due to c: a null event
        b._commits.close()  # no snapshot, no part of the trace: as kill -9 leaves it
        b = make("b")
        await b.start()
        for node in (a, c):
            carry(b, node)
            await node.flush()
        last = c.relevant("4")
        for node in (a, b, c):
            await node.close()
        return last

    last = run(scenario())
    table = read(tmp_path / "t")
    found = analyse(table, questions=["verify-trackers"])
    assert (found.totals["tracker_stamps"], found.totals["tracker_faults"]) == (5, 0)
    null = [row for row in table.to_pylist() if row["label"] == "null event"]
    assert [(row["process"], row["relevant"]) for row in null] == [("b", False)]
    assert last.dependencies == {"b": 2, "c": 1}


def test_a_label_is_in_the_journal():
    engine = Engine("a", NAMES, "ks", tracker="p1")
    engine.tracking.relevant("Zoë")
    assert list(read_entries(engine.cut().entries)) == [(Input.RELEVANT_EVENT, 0, "Zoë".encode())]


def test_a_file_names_the_tracker(tmp_path):
    file = tmp_path / "node.toml"
    file.write_text(
        'name = "a"\ntracker = "p3-reduced"\n[peers]\nb = "127.0.0.1:1"\n[security]\nplaintext = "loopback"'
    )

    async def scenario():
        async with node_of(load(file)) as node:
            return node.relevant("x")

    assert run(scenario()).predecessors == frozenset()
    file.write_text(file.read_text().replace('"p3-reduced"', "3"))
    with pytest.raises(Exception, match="tracker is 3, not a string"):
        load(file)


def test_dependencies_told_by_nodes_become_vectors():
    async def scenario():
        nodes = [make_node(name, ["a", "b"], tracker="incremental") for name in "ab"]
        for node in nodes:
            await node.start()
        a, b = nodes
        stamps = [a.relevant("1")]
        a.multicast_nowait("b", b"m")
        await a.flush()
        carry(a, b)
        await b.flush()
        stamps.append(b.relevant("2"))
        return reconstruct(stamps)

    assert [stamp.vector for stamp in run(scenario())] == [{"a": 1}, {"a": 1, "b": 1}]


def test_a_node_over_tcp_refuses_a_peer_with_another_tracker():
    async def scenario():
        async with Node("b", peers={"a": "127.0.0.1:1"}, guard=Plaintext(), tracker="p1") as b:
            peers = {"b": b.transport.address}
            quick = Limits(linger=0.0, first_retry=0.02)
            async with Node("a", peers=peers, guard=Plaintext(), tracker="p3", limits=quick) as a:
                a.multicast_nowait("b", b"hello")
                while not any(told in reason for reason in b._connections.troubles_with("a")):
                    await asyncio.sleep(0.01)
            assert b.delivered == 0

    told = "'a' tracks causality by p3 and 'b' by p1: give all nodes the same `tracker`"
    run(scenario())  # which waits for those words: there may be other troubles before
