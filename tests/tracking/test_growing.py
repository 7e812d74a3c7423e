"""Trackers whose processes join while messages are under way, and messages to several processes at once.

The judge keeps the causal past of every process and message as a set of events, null events included.
"""

from random import Random

import pytest

from happened.core.errors import LocalProtocolError, RemoteProtocolError
from happened.tracking import Timestamp, Tracker, create, protocols, reconstruct, vectors

EVERY = ["p2:2" if name == "p2" else name for name in protocols()]
FIFO = {name: protocols()[name.partition(":")[0]].fifo_links for name in EVERY}


class World:
    """Processes that multicast, receive, produce relevant events and admit others; all at random."""

    def __init__(self, name, dice, n):
        self.name, self.dice = name, dice
        self.trackers = [create(name, me, n) for me in range(n)]
        self.past = [frozenset() for _ in range(n)]
        self.in_flight = []  # sender, to, bytes, how many processes the sender knew, what it knew
        self.stamps = []  # timestamp, its causal past with itself

    def note(self, stamp):
        p = stamp.process
        before = self.past[p]
        self.past[p] = before | {(p, stamp.seq)}
        self.stamps.append((stamp, before))

    def event(self, p):
        self.note(self.trackers[p].relevant())

    def multicast(self, p):
        others = [q for q in range(len(self.trackers)) if q != p]
        to = self.dice.sample(others, self.dice.randint(1, len(others)))
        if self.name == "direct":
            self.event(p)
        carried = self.trackers[p].on_multicast(to)
        for piggyback in carried:
            if piggyback.forced is not None:
                self.note(piggyback.forced)
        for q, piggyback in zip(to, carried, strict=True):
            self.in_flight.append((p, q, piggyback.encode(), self.trackers[p].n, self.past[p]))

    def receive(self):
        if not self.in_flight:
            return
        at = self.dice.randrange(len(self.in_flight))
        if FIFO[self.name]:  # the first one of that channel
            at = next(i for i, each in enumerate(self.in_flight) if each[:2] == self.in_flight[at][:2])
        p, q, data, n, knows = self.in_flight.pop(at)
        tracker = self.trackers[q]
        tracker.on_receive(p, tracker.decode(data, n))
        self.past[q] |= knows

    def join(self):
        index = len(self.trackers)
        for tracker in self.trackers:
            tracker.join(index)
        self.trackers.append(create(self.name, index, index + 1))
        self.past.append(frozenset())

    def run(self, steps, joins):
        at = set(self.dice.sample(range(steps), joins))
        for step in range(steps):
            if step in at:
                self.join()
            act, p = self.dice.random(), self.dice.randrange(len(self.trackers))
            if act < 0.25:
                self.event(p)
            elif act < 0.55:
                self.multicast(p)
            else:
                self.receive()
            if self.dice.random() < 0.05:  # killed, and restored
                old = self.trackers[p]
                self.trackers[p] = create(self.name, p, old.n)
                self.trackers[p].restore(old.snapshot())


def judge(world):
    n = len(world.trackers)
    found = {}
    if world.stamps[0][0].dependencies is not None:
        wide = [
            Timestamp(t.process, t.seq, dependencies=(*t.dependencies, *[0] * (n - len(t.dependencies))))
            for t, _ in world.stamps
        ]
        found = vectors(wide)
    scalars = {}
    for stamp, before in world.stamps:
        event = stamp.process, stamp.seq
        past = before | {event}
        counts = tuple(sum(p == q for p, _ in past) for q in range(n))
        told = found.get(event) or stamp.vector()
        if told is not None:
            assert (*told, *[0] * (n - len(told))) == counts, event
        if stamp.predecessors() is not None:
            pasts = {(t.process, t.seq): b for t, b in world.stamps}
            assert stamp.predecessors() == before - frozenset().union(*(pasts[e] for e in before)), event
        if stamp.scalar is not None:
            assert stamp.scalar == 1 + max((scalars[e] for e in before), default=0)
            scalars[event] = stamp.scalar


@pytest.mark.parametrize("name", EVERY)
def test_timestamps_are_exact_while_processes_join(name, dice: Random):
    for _ in range(6):
        world = World(name, dice, 3)
        world.run(250, 3)
        judge(world)
        assert len(world.trackers) == 6 and len(world.stamps) > 30


@pytest.mark.parametrize("name", ["p1", "p3-reduced-prime", "p2:2", "vector"])
def test_a_lane_grows_beyond_sixty_three_processes(name, dice: Random):
    world = World(name, dice, 61)
    world.run(300, 5)
    judge(world)


def test_every_protocol_has_a_number_of_its_own():
    numbers = [facts.number for facts in protocols().values()]
    assert len(set(numbers)) == len(numbers) and all(0 < number < 256 for number in numbers)
    assert protocols()["p1"].number == 7 and protocols()["p3-reduced"].number == 18  # part of the format


@pytest.mark.parametrize("name", EVERY)
def test_what_is_taken_back_has_not_happened(name):
    tracker, twin = create(name, 0, 4), create(name, 0, 4)
    for each in (tracker, twin):
        each.relevant()
        each.on_multicast([1, 2])
    mark = tracker.mark()
    tracker.relevant()
    tracker.on_multicast([3, 1])
    tracker.rewind(mark)
    assert tracker.snapshot() == twin.snapshot()
    assert tracker.on_multicast([3, 2])[0].encode() == twin.on_multicast([3, 2])[0].encode()


def test_a_null_event_comes_before_every_copy_of_its_message():
    """Two entries are due to 2 and none to 1: without a look at all of them, 1 would not hear of it."""
    at_0, at_1, at_2 = (create("p2", me, 4, b=1) for me in range(3))
    at_1.relevant()
    at_0.on_receive(1, at_1.on_send(0))
    at_0.relevant()
    at_0.on_receive(1, (at_1.relevant(), at_1.on_send(0))[1])
    first, second = at_0.on_multicast([1, 2])
    assert first.forced is not None and first.forced.null and second.forced is None
    for tracker, piggyback in ((at_1, first), (at_2, second)):
        tracker.on_receive(0, piggyback)
        assert tracker.relevant().dependencies[0] == first.forced.seq == 2


def test_a_newcomer_has_the_next_index_and_nobody_is_told_of_it_too_early():
    tracker = create("p1", 0, 2)
    with pytest.raises(LocalProtocolError, match="next process to join has index 2, not 3"):
        tracker.join(3)
    sender = create("p1", 1, 3)
    sender.relevant()
    data = sender.on_send(0).encode()
    with pytest.raises(RemoteProtocolError, match="system of 3 processes, and we know 2: join"):
        tracker.decode(data, 3)
    tracker.join(2)
    tracker.on_receive(1, tracker.decode(data, 3))
    assert tracker.relevant().vector() == (1, 1, 0)


def test_null_events_that_nobody_asked_for_survive_a_crash():
    """Without them `reconstruct` fails for good: their timestamps are nowhere else."""
    names = ["alice", "bob", "carol"]
    alice, bob, carol = (Tracker(name, names, "p2", b=1) for name in names)
    stamps = [alice.relevant()]
    bob.receive("alice", alice.send("bob"))
    stamps.append(bob.relevant())
    stamps.append(alice.relevant())
    bob.receive("alice", alice.send("bob"))
    carried = bob.send("carol")  # alice's second event and bob's own are due: a null event
    crashed, bob = bob.snapshot(), Tracker("bob", names, "p2", b=1)
    bob.restore(crashed)
    carol.receive("bob", carried)
    stamps.append(carol.relevant())
    null_events = bob.null_events()
    assert [stamp.null for stamp in null_events] == [True] and bob.null_events() == []
    vectors_of = {(s.process, s.seq): s.vector for s in reconstruct([*stamps, *null_events])}
    assert vectors_of["carol", 1] == {"alice": 2, "bob": 2, "carol": 1}
