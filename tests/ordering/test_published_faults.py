"""The protocols as published, or with the shortcut their text invites: each is shown to fail, ours not to."""

from functools import partial

import pytest

from happened.ordering import create
from happened.sim.explore import explore
from oracles.published import (
    CountingRst,
    EagerPruning,
    ForeignConstraintsPruning,
    HastySerializedBroadcasts,
    OwnClockSes,
)


def shortest(result, kind):
    return next(violation for violation in result.violations if violation.kind == kind)


def test_rst_as_published_wedges_on_a_message_to_oneself():
    result = explore(CountingRst, 2, 2, casts="unicast", optimal=False)
    violation = shortest(result, "liveness")
    assert str(violation.program) == "0: {0} {0}"
    assert violation.schedule == (
        "0 sends M(0,1) to {0}",
        "0 receives M(0,1)",
        "0 delivers M(0,1)",
        "0 sends M(0,2) to {0}",
        "0 receives M(0,2)",
    )
    assert result.counts()["safety"] == 0
    assert explore("rst", 2, 2).violations == ()


def test_rst_as_published_is_sound_for_unicasts_to_others():
    result = explore(CountingRst, 3, 3, casts="unicast", self_addressed=False, optimal=False)
    assert result.programs == 14 and result.violations == ()


def test_an_rst_multicast_must_be_counted_for_every_destination():
    result = explore(CountingRst, 3, 2, self_addressed=False, optimal=False)
    assert str(shortest(result, "safety").program) == "0: {1,2}; 1: {2}"


def test_ses_tested_against_its_own_clock_lets_a_message_to_oneself_overtake():
    result = explore(OwnClockSes, 2, 2)
    violation = shortest(result, "safety")
    assert violation.schedule == (
        "0 sends M(0,1) to {0}",
        "0 sends M(0,2) to {0}",
        "0 receives M(0,2)",
        "0 delivers M(0,2)",
    )
    assert explore("ses", 2, 2).violations == ()


def test_ses_against_its_own_clock_goes_unnoticed_where_nobody_writes_to_himself():
    assert explore(OwnClockSes, 3, 2, self_addressed=False).violations == ()


def test_inserting_the_own_entry_before_the_send_leaves_redundant_units():
    result = explore(EagerPruning, 3, 2)
    counts = result.counts()
    assert counts["optimality"] > 0 and counts["safety"] == counts["liveness"] == 0
    assert "unnecessary" in shortest(result, "optimality").reason


def test_leaving_out_constraints_of_the_receiver_itself_breaks_its_order():
    result = explore(ForeignConstraintsPruning, 2, 2, optimal=False)
    assert str(shortest(result, "safety").program) == "0: {0} {0}"


def token_ring(machines):
    """0 broadcasts a; 1, which has not delivered a, is handed the right to send and broadcasts b.

    2 delivers both and broadcasts c. At 1, c arrives before a.
    """
    zero, one, two = machines
    a = {send.to: send.message for send in zero.multicast([1, 2], b"a").effects}
    one.follow(zero.latest)
    b = {send.to: send.message for send in one.multicast([0, 2], b"b").effects}
    two.receive(a[2])
    two.receive(b[2])
    c = {send.to: send.message for send in two.multicast([0, 1], b"c").effects}
    early = [effect.payload for effect in one.receive(c[1])]
    return early, [effect.payload for effect in one.receive(a[1])] if not early else None


def test_a_serialized_broadcast_counted_when_it_is_made_lets_a_reply_overtake():
    assert token_ring([create("serialized-broadcast", p, 3) for p in range(3)]) == ([], [b"a", b"c"])
    assert token_ring([HastySerializedBroadcasts(p, 3) for p in range(3)]) == ([b"c"], None)


@pytest.mark.parametrize("machine", [partial(create, "rst"), partial(create, "ses"), partial(create, "prs")])
def test_ours_order_messages_to_oneself_among_others(machine):
    assert explore(machine, 2, 3).violations == ()
