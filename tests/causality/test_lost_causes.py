"""A message that was never delivered where one sent causally after it was (Kshemkalyani & Singhal 1998,
Theorem 4): found by definition and by the kernels, on thousands of random traces."""

from itertools import pairwise
from random import Random

import pytest

from causality.traces import number, table, wild
from effort import samples
from happened import causality
from happened.causality.judgement import Outcome, judge
from oracles.closure import by_computation

pytestmark = pytest.mark.sampled

TRACES = samples(2000)


def lost_causes(closure, order):
    """{(lost, process): the first delivery that shows it}, every pair compared."""
    delivered = closure.delivered_where_sent()
    found = {}
    for lost, x in closure.lost():
        after = [
            (event[1], m)
            for (m, y), event in delivered.items()
            if y == x
            and closure.happened_before(closure.send[lost], closure.send[m])
            and (order == "causal" or closure.send[lost][0] == closure.send[m][0])
        ]
        if after:
            found[lost, x] = min(after)
    return found


@pytest.mark.parametrize("order", ["causal", "fifo"])
def test_lost_causes_by_definition(order, seed):
    """Many computations to a table, so that reading and encoding it is not most of the test."""
    dice = Random(seed)
    shown = 0
    for batch in range(TRACES // 50):
        rows = [row for number in range(50) for row in wild(dice, f"c{number}", steps=30)]
        verdict = causality.check_order(table(rows, chunk=500), order, limit=10**6)
        closures = by_computation(rows)
        expected = {
            (c, lost, x, first)
            for c, closure in closures.items()
            for (lost, x), first in lost_causes(closure, order).items()
        }
        found = {
            (w.computation, w.lost, w.process, (w.delivery.seq, w.delivered)) for w in verdict.lost_witnesses
        }
        assert found == expected, batch
        assert verdict.lost_causes == len(verdict.lost_witnesses) == len(expected), batch
        shown += len(expected)
        for witness in verdict.lost_witnesses:
            closure = closures[witness.computation]
            path = [(event.process, event.seq) for event in witness.path]
            assert (path[0], path[-1]) == (closure.send[witness.lost], closure.send[witness.delivered])
            assert all(closure.is_step(e, f) for e, f in pairwise(path))
    assert shown > TRACES / 4


def send(message, *to):
    return {"kind": "send", "message": message, "to": list(to)}


def deliver(message):
    return {"kind": "deliver", "message": message}


ANSWER_WITHOUT_QUESTION = {
    "alice": [send("question", "bob", "carol")],
    "bob": [deliver("question"), send("answer", "carol")],
    "carol": [deliver("answer")],
}


def test_the_witness_reads_well():
    (witness,) = causality.check_order(table(number(ANSWER_WITHOUT_QUESTION))).lost_witnesses
    assert str(witness).splitlines() == [
        "carol delivered answer and never question, although question was sent to it causally earlier:",
        "  alice#1  send question",
        "  bob#1  deliver question    ← alice#1",
        "  bob#2  send answer",
        "yet at carol:",
        "  carol#1  deliver answer    without question",
    ]


def test_a_complete_trace_violates_and_one_that_may_be_cut_off_is_undecided():
    verdict = causality.check_order(table(number(ANSWER_WITHOUT_QUESTION)))
    complete, cut_off = (judge(verdict, {}, complete=known) for known in (True, False))
    assert (complete.outcome, cut_off.outcome) == (Outcome.VIOLATED, Outcome.UNDECIDED)
    begins = "2 deliveries examined, none of them too early; but 1 message was never delivered"
    assert str(complete).startswith(f"causal order VIOLATED: {begins}")
    assert str(cut_off).startswith(f"causal order undecided: {begins}")
    assert "beyond the end of the trace" in str(cut_off)


def test_a_message_lost_where_nothing_sent_after_it_arrives_is_no_lost_cause():
    chains = ANSWER_WITHOUT_QUESTION | {"carol": []}
    verdict = causality.check_order(table(number(chains)))
    assert (verdict.lost_causes, judge(verdict, {}, complete=True).outcome) == (0, Outcome.HOLDS)


def test_destinations_and_senders_whose_product_exceeds_32_bits():
    """Channels are numbered destination x processes + sender: 50,000 squared is more than 2^31.

    In 32 bits that number wraps, and channels of different destinations fall together or out of order.
    """
    last = [f"p{p}" for p in range(49_990, 50_000)]
    everyone = [f"p{p:05d}" for p in range(50_000)]
    chains = {
        "a": [send("all", *everyone), send("m1", *last), send("m2", *last)],
        **{name: [deliver("m2"), deliver("m1")] for name in last},
    }
    verdict = causality.check_order(table(number(chains)), limit=10**6)
    assert {(w.process, w.early, w.overtaken) for w in verdict.witnesses} == {(p, "m2", "m1") for p in last}
    assert {(w.process, w.lost, w.delivered) for w in verdict.lost_witnesses} == {
        (p, "all", "m2") for p in last
    }
