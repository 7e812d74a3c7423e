"""The explorer finds each mistake of docs/papers.md when it is planted in the literal protocol."""

from functools import partial

import pytest

from happened.ordering import create
from happened.sim.explore import explore
from oracles.literal_ks import LiteralKs


def faulty(fault):
    return partial(LiteralKs, faults=frozenset({fault}))


def shortest(result, kind):
    return next(violation for violation in result.violations if violation.kind == kind)


def test_the_misprint_in_rcv4_is_safe_and_live_but_keeps_stale_units_in_158_programs():
    result = explore(faulty("rcv4-misprint"), 3, 3)
    assert result.counts() == {"safety": 0, "liveness": 0, "optimality": 158, "error": 0}
    assert "unnecessary" in shortest(result, "optimality").reason


def test_lookahead_as_written_is_unsafe():
    """The shortest schedule without self-addressing is the counterexample of docs/papers.md."""
    result = explore(faulty("unsafe-lookahead"), 3, 4, self_addressed=False)
    violation = shortest(result, "safety")
    assert str(violation.program) == "0: {1,2} {1} {1,2}; 1: {2}"
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


def test_hardware_multicast_is_safe_and_live():
    result = explore(partial(create, "ks", hardware_multicast=True), 3, 3, optimal=False)
    assert result.programs == 598 and result.violations == ()


def test_corrected_lookahead_is_safe_and_live_and_no_longer_optimal():
    result = explore(partial(create, "ks", lookahead=True), 3, 3)
    violated = result.counts()
    assert violated.pop("optimality") > 0
    assert violated == {"safety": 0, "liveness": 0, "error": 0}


@pytest.mark.slow
def test_ks_is_safe_live_and_optimal_with_three_processes_and_four_multicasts():
    result = explore("ks", 3, 4, workers=2)
    assert result.programs == 6099
    assert result.states > 10_000_000
    assert result.violations == ()
