"""Protocols that send when they receive, and total order: every interleaving of every small program.

Processes are not alike to a coordinator, on an overlay that is not complete, or where names break ties, so
these are explored for every choice of the odd one out, or with all renamings.
"""

from functools import partial
from itertools import combinations

import pytest

import effort
from happened.ordering import create
from happened.sim.explore import explore
from oracles.centralized import AcknowledgedMulticast, PrintedSequencer
from oracles.printed_three_phase import REPAIRS, PrintedThreePhase

ALL_GROUPS = [group for size in (1, 2, 3) for group in combinations(range(3), size)]


def holds(result, programs, states):
    assert result.violations == ()
    assert (result.programs, result.states) == (programs, states)


def test_acknowledged_is_safe_and_live_with_four_messages():
    holds(explore("acknowledged", 3, 4, casts="unicast"), 209, 21352)


def test_acknowledged_with_multicasts_would_break_which_is_why_they_are_refused():
    """The destination reached early tells the other one first."""
    result = explore(AcknowledgedMulticast, 3, 2, self_addressed=False)
    first = result.violations[0]
    assert (first.kind, first.schedule[-1]) == ("safety", "2 delivers M(1,1)")
    assert [line for line in first.schedule if "sends" in line] == [
        "0 sends M(0,1) to {1,2}",
        "1 sends M(1,1) to {2}",
    ]
    assert explore(AcknowledgedMulticast, 3, 3, casts="unicast", self_addressed=False).violations == ()


def test_phased_is_safe_and_live_in_overlapping_groups():
    holds(explore(partial(create, "phased", groups=ALL_GROUPS), 3, 2), 57, 2078)


@pytest.mark.slow
def test_phased_is_safe_and_live_in_overlapping_groups_with_three_messages():
    holds(explore(partial(create, "phased", groups=ALL_GROUPS), 3, 3), 598, 1_006_597)


@pytest.mark.parametrize(
    "overlay, states",
    [("complete", 40730), ([(0, 1), (1, 2)], 869)],
    ids=["complete", "1 in the middle"],
)
def test_flooding_over_fifo_links_is_safe_and_live_whatever_the_names(overlay, states):
    machine = partial(create, "flooding", overlay=overlay)
    holds(explore(machine, 3, 3, fifo=True, casts="broadcast", renamed=True), 10, states)


def test_flooding_needs_its_fifo_links():
    result = explore("flooding", 3, 2, fifo=False, casts="broadcast")
    assert result.counts()["safety"] > 0


@pytest.mark.sampled
@pytest.mark.long
@pytest.mark.parametrize("coordinator", [1, 2])
def test_sequencer_is_safe_live_and_agreed(coordinator, some_programs):
    result = explore(partial(create, "sequencer", coordinator=coordinator), 3, 3, order="causal-total")
    assert result.judged == ("safety", "agreement", "liveness", "error")
    assert (
        result.programs == effort.count(598)
        and result.states > (20_000 if effort.THOROUGH else 10_000)
        and result.violations == ()
    )


def test_the_printed_sequencer_needs_fifo_links():
    """FIFO out of the coordinator for total order; in as well for causal order."""
    assert explore(PrintedSequencer, 3, 2, order="causal-total", fifo=True).violations == ()
    assert explore(PrintedSequencer, 3, 2, order="total").counts()["agreement"] > 0
    assert explore(PrintedSequencer, 3, 2, order="causal").counts()["safety"] > 0


@pytest.mark.sampled
@pytest.mark.long
def test_agreed_is_live_and_agreed_on_two_messages_whatever_the_names(some_programs):
    result = explore("agreed", 3, 2, renamed=True)
    assert result.judged == ("safety", "agreement", "liveness", "error")
    assert (
        result.programs == effort.count(294)
        and result.states > (40_000 if effort.THOROUGH else 8_000)
        and result.violations == ()
    )


def test_agreed_does_not_keep_the_order_of_one_sender():
    """What its contract leaves out: on links that reorder, and with FIFO links across overlapping groups."""
    assert explore("agreed", 2, 2, order="causal", casts="broadcast").counts()["safety"] > 0
    assert explore("agreed", 3, 3, order="causal", fifo=True, stop_at_first=True).counts()["safety"] > 0


@pytest.mark.sampled
@pytest.mark.long
def test_causal_total_is_safe_live_and_agreed_on_two_messages_whatever_the_names(some_programs):
    result = explore("causal-total", 3, 2, renamed=True)
    assert (
        result.programs == effort.count(294)
        and result.states > (30_000 if effort.THOROUGH else 6_000)
        and result.violations == ()
    )


def printed(without):
    return partial(PrintedThreePhase, repairs=REPAIRS - {without} if without else frozenset())


@pytest.mark.parametrize("fifo", [True, False])
@pytest.mark.parametrize("without", [None, *sorted(REPAIRS)])
def test_the_three_phase_algorithm_disagrees_as_printed_and_without_any_one_repair(without, fifo):
    result = explore(printed(without), 2, 2, order="total", casts="broadcast", fifo=fifo)
    violated = result.counts()
    assert violated.pop("agreement") > 0
    assert violated == {"safety": 0, "liveness": 0, "error": 0}
    assert "and 0 before it" in next(v.reason for v in result.violations if v.kind == "agreement")


def test_with_its_three_repairs_the_printed_algorithm_agrees():
    machine = partial(PrintedThreePhase, repairs=REPAIRS)
    result = explore(machine, 2, 2, order="total", casts="broadcast", renamed=True)
    assert result.programs == 3 and result.states > 2000 and result.violations == ()
