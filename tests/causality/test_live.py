"""A computation that comes in batches is told as one that is looked at whole, whatever the batches are."""

import random
from collections import Counter

import pyarrow as pa
import pytest

from happened.causality.analysis import analyse
from happened.causality.judgement import ASTRAY, Outcome, judge_totals
from happened.causality.live import LiveComputation, Rules
from happened.core.errors import TraceFormatError
from happened.trace.schema import SCHEMA

QUESTIONS = ["stamp", "predecessors", "order"]


def event(process, seq, kind, message=None, **more):
    row = {"computation": "c", "process": process, "seq": seq, "kind": kind, "message": message}
    return row | {"relevant": False} | more


def table(rows):
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def random_rows(dice, processes=4, steps=40, causes=True):
    """A run over a network that loses, repeats and keeps no order."""
    names = [f"p{k}" for k in range(processes)]
    last, rows, flying = Counter(), [], []

    def happens(process, kind, message=None, **more):
        last[process] += 1
        rows.append(event(process, last[process], kind, message, relevant=dice.random() < 0.5, **more))

    for step in range(steps):
        process = dice.choice(names)
        chance = dice.random()
        if chance < 0.35:
            to = dice.sample(names, dice.randint(1, processes))
            happens(process, "send" if dice.random() < 0.8 else "unordered", f"m{step}", to=to)
            flying += [(f"m{step}", other) for other in to]
        elif chance < 0.85 and flying:
            message, to = flying.pop(dice.randrange(len(flying)))
            if dice.random() < 0.05:
                continue  # lost
            happens(to, "deliver", message)
            if dice.random() < 0.1:
                happens(to, "deliver", message)
        elif chance < 0.9:
            happens(process, "deliver", f"never{step}")
        else:
            past = [(row["process"], row["seq"]) for row in rows[-30:]]
            named = dice.sample(past, min(len(past), dice.randint(0, 2))) if causes else []
            happens(process, "internal", causes=[{"process": p, "seq": s} for p, s in named])
    return rows


def with_first_deliveries(rows, dice):
    """Sends alone, each followed by its deliveries or, now and then, overtaken."""
    last, kept, waiting = Counter(), [], []

    def happens(process, kind, message, **more):
        last[process] += 1
        kept.append(event(process, last[process], kind, message, **more))

    for row in (row for row in rows if row["kind"] == "send"):
        happens(row["process"], "send", row["message"], to=row["to"])
        waiting += [(row["message"], to) for to in row["to"]]
        while waiting and dice.random() < 0.9:
            message, to = waiting.pop(dice.choice((0, 0, 0, -1)))
            happens(to, "deliver", message)
    return kept


def in_batches(rows, dice, rules):
    """Everything that is told of rows that come in any order, some twice, in batches of any size."""
    arriving = rows + dice.sample(rows, len(rows) // 5)
    dice.shuffle(arriving)
    if dice.random() < 0.5:  # nearly in order
        place = {(row["process"], row["seq"]): k for k, row in enumerate(rows)}
        arriving.sort(key=lambda row: place[row["process"], row["seq"]] + dice.uniform(0, 12))
    live, told = LiveComputation("c", rules), []
    batch = 0
    while arriving:
        size = dice.randint(0, 12)
        part, arriving = arriving[:size], arriving[size:]
        told.append(live.step(table(part), batch))
        batch += 1
    told.append(live.finish(batch))
    return live, told


def all_rows(told, name):
    return [row for answers in told for part in answers.tables[name] for row in part.to_pylist()]


def stamps(rows, names):
    return {row["event"]: {names[p]: n for p, n in enumerate(row["clock"]) if n} for row in rows}


def pairs(rows):
    return sorted((row["event"], row["cause_event"]) for row in rows)


def early(rows, *names):
    found = [tuple(row[name] for name in ("order_name", "process", *names)) for row in rows]
    found = [each for each in found if each[0] != "total"]
    assert len(found) == len(set(found))
    return set(found)


@pytest.mark.parametrize("relevant_only", [False, True], ids=["all events", "relevant ones"])
def test_batches_tell_what_the_whole_tells(relevant_only, seed):
    dice = random.Random(seed)
    seen = Counter()
    for _ in range(60):
        rows = random_rows(dice, steps=dice.randint(1, 60))
        if relevant_only and not any(row["relevant"] for row in rows):
            continue
        rows = rows if relevant_only else [row | {"relevant": False} for row in rows]
        whole = analyse(table(rows), questions=QUESTIONS)
        live, told = in_batches(rows, dice, Rules(retire=10**6, relevant_only=relevant_only))
        names = {row["p"]: row["process"] for row in whole.table("processes").to_pylist()}
        assert stamps(all_rows(told, "stamps"), live.names) == stamps(
            whole.table("stamps").to_pylist(), names
        )
        assert len(all_rows(told, "stamps")) == len(rows) == live.events
        assert pairs(all_rows(told, "predecessors")) == pairs(whole.table("predecessors").to_pylist())
        violations = all_rows(told, "violations")
        assert early(violations, "early_event") == early(whole.table("violations").to_pylist(), "early_event")
        lost = all_rows(told, "lost_causes")
        assert early(lost, "lost") == early(whole.table("lost_causes").to_pylist(), "lost")
        clocks = stamps(all_rows(told, "stamps"), live.names)
        for row in violations:
            overtaken, first = row["path"]
            assert clocks[f"{first['process']}#{first['seq']}"][overtaken["process"]] >= overtaken["seq"]
            assert row["overtaken_seq"] > row["early_seq"]
        totals = sum((answers.totals for answers in told), Counter())
        assert totals["lost"] == whole.totals["lost"] and totals["messages"] == whole.totals["messages"]
        assert totals["ordered_pairs"] == whole.totals["ordered_pairs"]
        assert live.held == 0
        seen.update(violations=len(violations), lost=len(lost), epochs=live.epochs, runs=1)
    assert seen["violations"] and seen["lost"] and seen["epochs"] > 2 * seen["runs"]


def test_batches_are_judged_as_the_whole_is(seed):
    """The same outcome and the same sentence."""
    dice = random.Random(seed)
    seen = Counter()
    for _ in range(60):
        rows = random_rows(dice, processes=3, steps=dice.randint(1, 25))
        if dice.random() < 0.6:  # without what is astray, the rest decides
            rows = with_first_deliveries(rows, dice)
        whole = analyse(table(rows), questions=["order"]).totals
        _, told = in_batches(rows, dice, Rules(retire=10**6))
        totals = sum((answers.totals for answers in told), Counter())
        names = ("deliveries_judged", "messages", "lost", "lost_causes", "fifo_lost_causes", *ASTRAY)
        assert {name: totals[name] for name in names} == {name: whole[name] for name in names}
        for order in ("causal", "fifo"):
            for complete in (False, True):
                judged, wanted = (
                    judge_totals(Counter(each, complete=complete), order) for each in (totals, whole)
                )
                assert (judged.outcome, judged.sentence) == (wanted.outcome, wanted.sentence)
                seen[judged.outcome] += 1
    assert seen[Outcome.HOLDS] and seen[Outcome.VIOLATED] and seen[Outcome.UNDECIDED]


def test_a_delivery_where_it_was_not_addressed_is_astray_while_the_message_is_in_flight():
    live = LiveComputation("c")
    rows = [event("a", 1, "send", "m", to=["b", "d"]), event("b", 1, "deliver", "m")]
    told = live.step(table([*rows, event("x", 1, "deliver", "m"), event("x", 2, "deliver", "m")]), 0)
    assert (told.totals["misdelivered"], told.totals["duplicated"]) == (2, 0)
    told = live.step(table([event("b", 2, "deliver", "m"), event("d", 1, "deliver", "m")]), 1)
    assert (told.totals["misdelivered"], told.totals["duplicated"]) == (0, 1)
    told = live.step(table([event("x", 3, "deliver", "m")]), 2)  # whom it was for is forgotten
    assert (told.totals["misdelivered"], told.totals["duplicated"]) == (0, 1)


def test_a_message_sent_unordered_holds_its_delivery_until_its_send_is_there_and_causes_nothing():
    live = LiveComputation("c")
    first = live.step(table([event("b", 1, "deliver", "u"), event("b", 2, "internal")]), 0)
    assert not all_rows([first], "stamps") and live.held == 2
    rows = [event("a", 1, "internal"), event("a", 2, "unordered", "u", to=["b"])]
    told = [first, live.step(table(rows), 1), live.finish(2)]
    assert stamps(all_rows(told, "stamps"), live.names)["b#2"] == {"b": 2}
    totals = sum((answers.totals for answers in told), Counter())
    assert not all_rows(told, "quarantine") and totals["messages"] == 1
    assert not totals["lost"] and not totals["deliveries_judged"]


def test_what_stays_away_is_let_go_after_the_stated_batches_and_told_so():
    live = LiveComputation("c", Rules(retire=3))
    rows = [event("a", 1, "deliver", "m"), event("a", 2, "internal"), event("b", 2, "internal")]
    told = [live.step(table(rows), 0)] + [live.step(table([]), batch) for batch in range(1, 5)]
    assert [len(all_rows([each], "stamps")) for each in told] == [0, 0, 0, 0, 2]
    reasons = sorted(row["reason"] for row in all_rows(told, "quarantine"))
    assert "a#1 delivers 'm', whose send has not come" in reasons[0]
    assert "b#2 was held too long: events before it are missing" in reasons[1]
    assert live.held == 0


def test_a_message_in_flight_too_long_is_lost_and_leaves_the_frontier():
    live = LiveComputation("c", Rules(retire=2))
    live.step(table([event("a", 1, "send", "m", to=["b"])]), 0)
    assert live.in_flight == 1
    told = [live.step(table([]), batch) for batch in range(1, 4)]
    assert live.in_flight == 0 and sum(each.totals["lost"] for each in told) == 1


def test_a_cause_that_is_too_old_is_quarantined_by_itself():
    live = LiveComputation("c", Rules(recent=3))
    follows = [{"process": "b", "seq": 1}]
    first = [event("a", k, "internal", causes=follows if k == 1 else None) for k in range(1, 9)]
    live.step(table([*first, event("b", 1, "internal")]), 0)
    causes = [{"process": "a", "seq": 2}, {"process": "a", "seq": 7}]
    told = live.step(table([event("b", 2, "internal", causes=causes)]), 1)
    (reason,) = [row["reason"] for row in all_rows([told], "quarantine")]
    assert reason == "b#2 names the cause a#2, which is forgotten"
    (stamp,) = all_rows([told], "stamps")
    assert dict(zip(live.names, stamp["clock"], strict=True)) == {"a": 7, "b": 2}


def test_a_message_that_is_sent_twice_is_no_computation():
    live = LiveComputation("c")
    live.step(table([event("a", 1, "send", "m", to=["b"])]), 0)
    with pytest.raises(TraceFormatError, match="'m' is sent twice"):
        live.step(table([event("b", 1, "send", "m", to=["a"])]), 1)


def test_state_does_not_grow_with_what_has_passed():
    import pickle

    live, sizes = LiveComputation("c", Rules(remember=50)), []
    for batch in range(60):
        rows = []
        for k in range(20):
            seq = batch * 20 + k + 1
            rows += [event("a", seq, "send", f"m{seq}", to=["b"]), event("b", seq, "deliver", f"m{seq}")]
        live.step(table(rows), batch)
        sizes.append(len(pickle.dumps(live)))
    assert live.events == 2400 and sizes[-1] < 1.2 * sizes[5]
