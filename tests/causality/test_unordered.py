"""Messages that were sent unordered: no order is judged by them, and each must still arrive once.

The oracles do not know them. One takes them for messages that nobody sent, and has the same verdict on order;
the other for ordered ones, and has the same losses and repetitions.
"""

import pytest

from causality import traces
from happened.causality import check, check_delivery, check_order, encode
from happened.causality.stamps import stamp_computation
from happened.causality.total_order import total_order
from happened.core.errors import TraceFormatError
from happened.trace import validate


def mark(rows, dice, share=0.4):
    """The same rows with some messages sent unordered, and which those are."""
    sent = [row["message"] for row in rows if row["kind"] == "send"]
    chosen = {message for message in sent if dice.random() < share}
    return [
        row | {"kind": "unordered"} if row["kind"] == "send" and row["message"] in chosen else row
        for row in rows
    ], chosen


def without_sends(rows):
    """The oracle of order: who sent an unordered message did something else, and nobody sent it."""
    return [
        {key: value for key, value in row.items() if key not in ("message", "to")} | {"kind": "internal"}
        if row["kind"] == "unordered"
        else row
        for row in rows
    ]


def as_sends(rows):
    return [row | {"kind": "send"} if row["kind"] == "unordered" else row for row in rows]


@pytest.mark.parametrize("order", ["causal", "fifo", "total"])
def test_order_is_that_of_the_other_messages(dice, order):
    differs = judged = 0
    for _ in range(60):
        given = traces.wild(dice)
        rows, chosen = mark(given, dice)
        found = check_order(traces.table(rows), order)
        expected = check_order(traces.table(without_sends(rows)), order)
        assert (found.deliveries, found.violations, found.lost_causes) == (
            expected.deliveries,
            expected.violations,
            expected.lost_causes,
        )
        judged += bool(chosen)
        differs += found.violations != check_order(traces.table(given), order).violations
    assert judged > 20 and differs > 0


def test_losses_and_repetitions_are_those_of_any_message(dice):
    totals = {"lost": 0, "duplicated": 0, "misdelivered": 0}
    for _ in range(60):
        rows, _ = mark(traces.wild(dice), dice)
        found, expected = (check_delivery(traces.table(each)) for each in (rows, as_sends(rows)))
        assert (found.messages, found.deliveries) == (expected.messages, expected.deliveries)
        for name in totals:
            assert getattr(found, name) == getattr(expected, name)
            totals[name] += getattr(found, name)
    assert all(totals.values())


def test_nothing_follows_from_the_arrival_of_an_unordered_message(dice):
    """Stamps are those of a trace in which the message was never sent; a union of computations agrees."""
    for _ in range(30):
        rows, _ = mark(traces.busy(dice), dice)
        (c,), (other,) = encode(traces.table(rows)), encode(traces.table(without_sends(rows)))
        by_name = {(c.process[e], c.seq[e]): tuple(v) for e, v in enumerate(stamp_computation(c))}
        others = stamp_computation(other)
        names = [c.process_names.index(name) for name in other.process_names]
        for e in range(other.events):
            vector = by_name[names[other.process[e]], other.seq[e]]
            assert [vector[p] for p in names] == others[e].tolist()
        assert total_order(c, 0).deliveries == total_order(other, 0).deliveries


def test_an_unordered_message_may_overtake_and_be_overtaken():
    """`late` is sent before `question` and arrives last; `answer` follows from it and arrives first."""
    chains = {
        "p": [
            {"kind": "unordered", "message": "late", "to": ["q", "r"]},
            {"kind": "send", "message": "question", "to": ["r"]},
            {"kind": "unordered", "message": "hint", "to": ["q"]},
        ],
        "q": [
            {"kind": "deliver", "message": "hint"},
            {"kind": "send", "message": "answer", "to": ["r"]},
            {"kind": "deliver", "message": "late"},
        ],
        "r": [
            {"kind": "deliver", "message": "answer"},
            {"kind": "deliver", "message": "question"},
            {"kind": "deliver", "message": "late"},
        ],
    }
    table = traces.table(traces.number(chains))
    judgement = check(table, complete=True)
    assert judgement.holds and judgement.verdict.deliveries == 2
    ordered = traces.table(as_sends(traces.number(chains)))
    assert check(ordered, complete=True).holds is False
    twice = {**chains, "r": [*chains["r"], {"kind": "deliver", "message": "late"}]}
    assert check(traces.table(traces.number(twice))).holds is False


def test_an_unordered_send_says_what_goes_to_whom():
    without = {"p": [{"kind": "unordered", "message": "m"}]}
    with pytest.raises(TraceFormatError, match="a send lists its destinations"):
        validate(traces.table(traces.number(without)))
    again = {
        "p": [
            {"kind": "unordered", "message": "m", "to": ["p"]},
            {"kind": "send", "message": "m", "to": ["p"]},
        ]
    }
    with pytest.raises(TraceFormatError, match="has been sent before"):
        validate(traces.table(traces.number(again)))
