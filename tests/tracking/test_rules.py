"""Each rule of Hélary, Melideo & Raynal (2000) is needed: without it, or as misprinted, the explorer finds a
wrong timestamp.

The rules that only save entries are told apart: leaving them out stays exact and costs.
"""

import random

import pytest

import effort
from happened.sim.explore_tracking import explore_tracking
from happened.tracking import create
from oracles.literal_tracking import Rules

P1 = {}
P1_PRIME = {"primed": True}
P2 = {"b": 1}
P2_PRIME = {"b": 1, "primed": True}
P3 = {"immediate": True, "reduced": False}
P3_REDUCED = {"immediate": True}
P3_REDUCED_PRIME = {"immediate": True, "primed": True}
FIFO = {"fifo": True}

NAMED = {
    "p1": P1,
    "p1-prime": P1_PRIME,
    "p1-fifo": P1 | FIFO,
    "p1-prime-fifo": P1_PRIME | FIFO,
    "p2:1": P2,
    "p2-prime:1": P2_PRIME,
    "p2-fifo:1": P2 | FIFO,
    "p2-prime-fifo:1": P2_PRIME | FIFO,
    "p3": P3,
    "p3-reduced": P3_REDUCED,
    "p3-reduced-prime": P3_REDUCED_PRIME,
    "p3-reduced-fifo": P3_REDUCED | FIFO,
    "p3-reduced-prime-fifo": P3_REDUCED_PRIME | FIFO,
}


SMALL = ((2, 4, 4), (3, 4, 3))  # processes, messages, relevant events
# In `make test`, for what is exact. Most of the faults below show here already.
SMALLER = SMALL if effort.THOROUGH else ((2, 4, 4), (3, 3, 3))


def violation(rules, *faults, sizes=SMALL):
    """The first failure found, by the smallest of these sizes that shows one; None: all are exact."""
    literal = Rules(**rules, faults=frozenset(faults))
    for size in sizes:
        result = explore_tracking(literal, *size, fifo=literal.fifo, bound=literal.b)
        if result.violations:
            return result.violations[0]
        assert result.states > 1000
    return None


WRONG = [
    *(("p1", fault) for fault in ("no reset", "adopt nothing", "keep the column", "adopt older")),
    ("p1", "mark on older"),
    ("p1-fifo", "reset once"),
    *(("p1-prime", fault) for fault in ("no reset", "adopt nothing", "adopt older", "row for column")),
    ("p1-prime", "take columns of older"),
    ("p1-prime-fifo", "fifo marks in m"),
    *(("p2:1", fault) for fault in ("no reset", "adopt nothing", "keep the column", "adopt older")),
    *(("p2:1", fault) for fault in ("keep the matrix", "no test", "reset without an event")),
    *(("p2-prime:1", fault) for fault in ("row for column", "take columns of older")),
    ("p2:1", "mark on older"),
    ("p2-prime-fifo:1", "fifo marks in m"),
    *(
        ("p3", fault)
        for fault in ("increment first", "keep ip", "own ip off", "adopt nothing", "adopt older")
    ),
    *(("p3", fault) for fault in ("newer keeps ip", "equal keeps ip", "equal takes the larger ip")),
    ("p3", "ignore own entry"),
    *(("p3-reduced", fault) for fault in ("no reset", "reset once", "adopt nothing", "keep the column")),
    *(("p3-reduced", fault) for fault in ("adopt older", "mark on older", "keep ip", "own ip off")),
    *(("p3-reduced", fault) for fault in ("newer keeps ip", "equal keeps ip", "equal takes the larger ip")),
    *(
        ("p3-reduced", fault)
        for fault in ("ignore own entry", "successors stay secret", "owners always know")
    ),
    *(("p3-reduced-prime", fault) for fault in ("row for column", "take columns of older")),
    ("p3-reduced-prime-fifo", "fifo marks in m"),
]


@pytest.mark.long
@pytest.mark.parametrize(("name", "fault"), WRONG)
def test_without_this_rule_the_explorer_finds_a_failure(name, fault):
    found = violation(NAMED[name], fault)
    assert found is not None
    what = "more than 1 entries" if fault in ("keep the matrix", "no test") else "next event"
    assert what in found.reason


# A rule that only saves entries, and a protocol it saves them for.
SAVINGS = [
    ("p1", "sender not marked"),
    ("p1", "owner not marked"),
    ("p1", "nothing on equal"),
    ("p1-prime", "nothing on equal"),
    ("p1-prime", "overwrite on equal"),
    ("p3-reduced", "sender not marked"),
    ("p3-reduced", "owner not marked"),
    ("p3-reduced", "nothing on equal"),
]


def entries_sent(make, seed, n=6, steps=2500):
    """How many entries a random computation's messages carry, in all."""
    dice = random.Random(seed)
    trackers = [make(me, n) for me in range(n)]
    in_flight, sent = [], 0
    for _ in range(steps):
        chance, p = dice.random(), dice.randrange(n)
        if chance < 0.1:
            trackers[p].relevant()
        elif chance < 0.55 or not in_flight:
            to = dice.choice([q for q in range(n) if q != p])
            piggyback = trackers[p].on_send(to)
            sent += piggyback.entries
            in_flight.append((p, to, piggyback))
        else:
            sender, to, piggyback = in_flight.pop(dice.randrange(len(in_flight)))
            trackers[to].on_receive(sender, piggyback)
    return sent


@pytest.mark.sampled
@pytest.mark.long
@pytest.mark.parametrize(("name", "fault"), SAVINGS)
def test_without_this_rule_messages_carry_more_and_stay_exact(name, fault, seed):
    assert violation(NAMED[name], fault, sizes=SMALLER) is None
    with_rule = entries_sent(Rules(**NAMED[name]), seed)
    assert entries_sent(Rules(**NAMED[name], faults=frozenset({fault})), seed) > with_rule > 0


@pytest.mark.sampled
@pytest.mark.long
@pytest.mark.parametrize("rules", [P1, P1_PRIME, P2], ids=["p1", "p1-prime", "p2"])
def test_footnote_2_is_redundant_without_fifo(rules, seed):
    """The own column stays as the first event left it: nobody tells a process of its own entry."""
    assert violation(rules, "reset once", sizes=SMALLER) is None
    if rules is not P2:
        once = "p1-prime-once" if rules is P1_PRIME else "p1-once"
        name = once.removesuffix("-once")
        assert entries_sent(lambda me, n: create(once, me, n), seed) == entries_sent(
            lambda me, n: create(name, me, n), seed
        )


@pytest.mark.sampled
@pytest.mark.long
def test_our_own_row_may_be_taken_for_it_is_never_asked():
    """R3′ leaves row i alone; taking it too tells others that we lack what we got: no error, but entries."""
    assert violation(P1_PRIME, "take our own row", sizes=SMALLER) is None


@pytest.mark.sampled
@pytest.mark.long
@pytest.mark.parametrize("rules", [P1 | FIFO, P2 | FIFO, P3_REDUCED | FIFO], ids=["p1", "p2", "p3-reduced"])
def test_fifo_marks_may_stay_in_the_matrix_where_no_columns_are_sent(rules):
    assert violation(rules, "fifo marks in m", sizes=SMALLER) is None


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["no test", "keep the matrix"])
def test_a_bound_of_two_takes_four_processes_to_break(fault):
    assert violation({"b": 2}, fault, sizes=[(3, 4, 4)]) is None
    assert violation({"b": 2}, fault, sizes=[(4, 4, 4)]) is not None


def test_footnote_2_with_fifo_never_tells_the_second_event():
    """e, send, e, send: the second event is never told."""
    assert list(violation(P1 | FIFO, "reset once").schedule) == [
        "event at 0",
        "0 sends to 1",
        "event at 0",
        "0 sends to 1",
        "1 receives from 0",
        "1 receives from 0",
    ]


def test_p1_prime_with_fifo_as_printed_takes_what_is_on_its_way_for_known():
    """e0; 0→1 slow; 0→2; 2→1 omits entry 0."""
    assert list(violation(P1_PRIME | FIFO, "fifo marks in m").schedule) == [
        "event at 0",
        "0 sends to 1",
        "0 sends to 2",
        "2 receives from 0",
        "2 sends to 1",
        "1 receives from 2",
    ]


def test_the_naive_port_of_p1_to_immediate_predecessors_fails_where_the_owner_must_be_told():
    """e0, 0→1, e1, 1→0, e0: event (0,1) has a successor at 1, which 0 must hear of."""
    machines = [Rules(**P3_REDUCED, faults=frozenset({"owners always know"}))(me, 2) for me in (0, 1)]
    assert _ping_pong(*machines) == {(0, 1), (1, 1)}
    assert _ping_pong(*(create("p3-reduced", me, 2) for me in (0, 1))) == {(1, 1)}


def _ping_pong(zero, one):
    zero.relevant()
    one.on_receive(0, zero.on_send(1))
    one.relevant()
    zero.on_receive(1, one.on_send(0))
    return zero.relevant().predecessors()
