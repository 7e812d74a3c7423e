"""Larger computations: against networkx, and against the rules read literally, entry by entry."""

import random

import pytest

from happened.tracking import create, protocols, renumbered, vectors
from oracles.literal_tracking import Rules
from tracking.computations import Computation
from tracking.test_rules import NAMED

TRACKERS = [name for name in protocols() if name not in ("direct", "lamport")]
TRACKERS += ["p2:2", "p2:3", "p2-prime:3"]


@pytest.mark.long
@pytest.mark.parametrize("name", TRACKERS)
def test_timestamps_equal_what_networkx_finds(name, dice):
    facts = protocols()[name.partition(":")[0]]
    made = Computation([create(name, me, 5) for me in range(5)]).run(dice, 250, fifo=facts.fifo_links)
    assert len(made.stamps) > 20
    expected = made.vectors()
    if "vector" in facts.tells:
        assert {event: stamp.vector() for event, stamp in made.stamps.items()} == expected
    if "predecessors" in facts.tells:
        found = {event: stamp.predecessors() for event, stamp in made.stamps.items()}
        assert found == made.predecessors()
    if "dependencies" in facts.tells:
        assert vectors(made.stamps.values()) == expected


@pytest.mark.parametrize("b", [1, 2, 3, 5])
@pytest.mark.parametrize("name", ["p2", "p2-prime"])
def test_the_bound_is_never_exceeded_and_null_events_buy_it(name, b, seed):
    made = Computation([create(name, me, 8, b=b) for me in range(8)]).run(random.Random(seed), 800)
    assert max(piggyback.entries for piggyback in made.sent) == b
    null = [stamp for stamp in made.stamps.values() if stamp.null]
    assert len(null) == sum(piggyback.forced is not None for piggyback in made.sent) > 0


def test_renumbering_gives_the_vectors_that_p1_tells_of_the_same_computation(seed):
    bounded, plain = (
        Computation([create(name, me, 6) for me in range(6)]).run(random.Random(seed), 600, relevant=0.1)
        for name in ("p2:1", "p1")
    )
    stamps = bounded.stamps.values()
    assert any(stamp.null for stamp in stamps)
    found = renumbered(stamps, vectors(stamps))
    assert found == {event: stamp.vector() for event, stamp in plain.stamps.items()}


def as_literal(piggyback, primed):
    """The production piggyback in the form of the literal one: process, value, column of M."""
    n = piggyback.n
    width = 64 * (n // 64 + 1)
    carried = []
    for k, value in piggyback.items():
        lacking = piggyback.columns >> width * k & (1 << n) - 1 if primed else None
        column = tuple(1 - (lacking >> row & 1) for row in range(n)) if primed else None
        carried.append((k, value, column))
    return carried


@pytest.mark.long
@pytest.mark.parametrize("n", [2, 5, 63, 64, 70])
@pytest.mark.parametrize("name", NAMED)
def test_packed_columns_do_what_the_rules_say(name, n, seed):
    rules = Rules(**NAMED[name])
    options = {"b": 1} if rules.b else {}
    packed = Computation([create(name.partition(":")[0], me, n, **options) for me in range(n)])
    literal = Computation([rules(me, n) for me in range(n)])
    for computation in (packed, literal):
        computation.run(random.Random(seed), 300, fifo=rules.fifo, relevant=0.15)
    assert packed.stamps == literal.stamps
    for ours, theirs in zip(packed.sent, literal.sent, strict=True):
        expected = [
            (e.process, 2 * e.count - e.immediate if rules.immediate else e.count, e.column)
            for e in theirs.carried
        ]
        assert as_literal(ours, rules.primed) == expected


def test_direct_dependencies_are_exact_where_every_receipt_is_relevant(dice):
    class Eager(Computation):
        def receive(self, number):
            to = next(packet[2] for packet in self.in_flight if packet[0] == number)
            super().receive(number)
            self.relevant(to)

    made = Eager([create("direct", me, 5) for me in range(5)]).run(dice, 300)
    assert vectors(made.stamps.values()) == made.vectors()


def test_lamport_scalars_are_the_lengths_of_chains(dice):
    made = Computation([create("lamport", me, 5) for me in range(5)]).run(dice, 300)
    relation, length = made.relation(), {}
    for event in sorted(made.stamps, key=lambda e: len(list(relation.predecessors(e)))):
        length[event] = 1 + max((length[e] for e in relation.predecessors(event)), default=0)
    assert {event: stamp.scalar for event, stamp in made.stamps.items()} == length


def test_a_matrix_row_never_exceeds_what_its_process_knows(dice):
    made = Computation([create("matrix", me, 4) for me in range(4)]).run(dice, 400)
    known = [tracker.known_by_all() for tracker in made.trackers]
    now = [tracker.relevant().vector() for tracker in made.trackers]
    assert any(any(counts) for counts in known)
    for counts in known:
        for k, count in enumerate(counts):
            assert all(vector[k] - (p == k) >= count for p, vector in enumerate(now))


@pytest.mark.parametrize("name", ["p1", "p1-prime", "p3-reduced", "vector", "p3", "matrix"])
def test_duplicates_and_late_copies_change_nothing(name, seed):
    """Every packet arrives again later, at random; timestamps are those of the run without copies."""

    def run(copies):
        steps, noise = random.Random(seed), random.Random(seed + 1)
        made, arrived = Computation([create(name, me, 4) for me in range(4)]), []
        for _ in range(150):
            made.run(steps, 1)
            arrived += [p for p in made.in_flight if p not in arrived]
            if copies and noise.random() < 0.5:
                gone = [p for p in arrived if p not in made.in_flight]
                for _, sender, to, piggyback in gone[-3:]:
                    made.trackers[to].on_receive(sender, piggyback)
        return {event: (s.vector(), s.predecessors()) for event, s in made.stamps.items()}

    assert run(copies=True) == run(copies=False)
