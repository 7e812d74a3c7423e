"""The explorer finds each mistake of docs/papers.md when it is planted in the literal protocol."""

from functools import partial

import pytest

from happened.core.orders import Order
from happened.ordering import create
from happened.sim.explore import Explorer, explore
from happened.sim.programs import programs
from oracles.literal_ks import LiteralKs


def faulty(fault):
    return partial(LiteralKs, faults=frozenset({fault}))


def shortest(result, kind):
    return next(violation for violation in result.violations if violation.kind == kind)


TO_OTHERS, TO_ANYBODY = 48, 598
"""Programs of three multicasts by three processes, without and with messages to oneself."""

sizes = pytest.mark.parametrize("count", [TO_OTHERS, pytest.param(TO_ANYBODY, marks=pytest.mark.slow)])


def explore_three(factory, count, **options):
    result = explore(factory, 3, 3, self_addressed=count == TO_ANYBODY, **options)
    assert result.programs == count
    return result


@sizes
def test_the_misprint_in_rcv4_is_safe_and_live_but_keeps_stale_units(count):
    result = explore_three(faulty("rcv4-misprint"), count)
    stale = {TO_OTHERS: 1, TO_ANYBODY: 158}[count]
    assert result.counts() == {"safety": 0, "liveness": 0, "optimality": stale, "error": 0}
    assert "unnecessary" in shortest(result, "optimality").reason


UNSAFE_LOOKAHEAD = "0: {1,2} {1} {1,2}; 1: {2}"


def test_lookahead_as_written_is_unsafe():
    """In the counterexample of docs/papers.md."""
    (program,) = (each for each in programs(3, 4, self_addressed=False) if str(each) == UNSAFE_LOOKAHEAD)
    explorer = Explorer(faulty("unsafe-lookahead"), 3, order=Order.CAUSAL, fifo=False, optimal=None)
    violation = shortest(explorer.explore(program), "safety")
    assert violation.schedule[-1] == "2 delivers M(1,1)"
    assert "before M(0,1)" in violation.reason


@pytest.mark.slow
def test_no_shorter_schedule_shows_that_lookahead_as_written_is_unsafe():
    """Without self-addressing."""
    result = explore(faulty("unsafe-lookahead"), 3, 4, self_addressed=False)
    violation = shortest(result, "safety")
    assert str(violation.program) == UNSAFE_LOOKAHEAD
    assert violation.schedule[-1] == "2 delivers M(1,1)"
    assert "before M(0,1)" in violation.reason


@pytest.mark.parametrize("fifo", [False, True])
def test_omitting_what_a_channel_already_carried_is_unsafe_even_with_fifo_links(fifo):
    result = explore(faulty("omit-duplicates"), 3, 4, fifo=fifo, casts="unicast", self_addressed=False)
    violation = shortest(result, "safety")
    assert [line for line in violation.schedule if "sends" in line] == [
        "0 sends M(0,1) to {2}",
        "0 sends M(0,2) to {1}",
        "0 sends M(0,3) to {1}",
        "1 sends M(1,1) to {2}",
    ]
    assert violation.schedule[-1] == "2 delivers M(1,1)"


@pytest.mark.parametrize("fifo", [False, True])
def test_leaving_out_own_entries_is_unsafe_even_with_fifo_links(fifo):
    result = explore(faulty("omit-own-entries"), 3, 3, fifo=fifo, self_addressed=False)
    assert result.counts()["safety"] > 0


@pytest.mark.parametrize("fifo", [False, True])
def test_the_literal_protocol_without_a_fault_has_none(fifo):
    result = explore(LiteralKs, 3, 2, fifo=fifo)
    assert result.programs == 57
    assert "optimality" in result.judged and result.violations == ()


@sizes
def test_hardware_multicast_is_safe_and_live(count):
    result = explore_three(partial(create, "ks", hardware_multicast=True), count, optimal=False)
    assert result.violations == ()


@sizes
def test_corrected_lookahead_is_safe_and_live_and_no_longer_optimal(count):
    violated = explore_three(partial(create, "ks", lookahead=True), count).counts()
    assert violated.pop("optimality") > 0
    assert violated == {"safety": 0, "liveness": 0, "error": 0}


@pytest.mark.slow
def test_ks_is_safe_live_and_optimal_with_three_processes_and_four_multicasts():
    result = explore("ks", 3, 4, workers=2)
    assert result.programs == 6099
    assert result.states > 10_000_000
    assert result.violations == ()
