"""The tables of an analysis answer as the trace does, from the rows that are needed."""

from random import Random
from shutil import rmtree

import pyarrow.parquet as pq
import pytest
from brute import Brute

from causality.traces import number, table, wild
from effort import samples
from happened import ask
from happened.ask.history import answered_events
from happened.causality.questions import asked
from happened.causality.written import Whole, conclude
from happened.core.errors import CausalityError


def analysed(rows, folder, timestamps="full"):
    folder.mkdir()
    totals = Whole(folder, timestamps, asked(None)).analyse(table(rows), "part")
    conclude(folder, totals, asked(None))
    return folder


def names(found):
    return {tuple(row.values()) for row in found.select(["computation", "process", "seq"]).to_pylist()}


@pytest.mark.sampled
@pytest.mark.parametrize("timestamps", ["full", "sparse"])
def test_the_tables_answer_as_the_trace_does(tmp_path, seed, timestamps):
    for n in range(samples(56)):
        random = Random(seed * 31 + n)
        rows = [row | {"time": random.randrange(10**6)} for c in "ab" for row in wild(random, c, steps=25)]
        if not rows:
            continue
        brute = Brute(rows)
        answers = analysed(rows, tmp_path / f"{n}", timestamps)
        one, other = (random.choice(list(brute.rows)) for _ in range(2))
        texts = [f"{name[0]}:{name[1]}#{name[2]}" for name in (one, other)]
        assert names(ask.past(answers, texts[0])) == brute.past(one)
        assert names(ask.future(answers, texts[0])) == brute.future(one)
        assert ask.path(answers, *texts).relation == brute.relation(one, other)
        history = ask.load(answers)
        assert all(names(ask.past(history, f"{n[0]}:{n[1]}#{n[2]}")) == brute.past(n) for n in brute.rows)
        here, there = ask.why(table(rows), texts[0], depth=2), ask.why(answers, texts[0], depth=2)
        assert sources(here.causes) == sources(there.causes)
        assert here.event[:3] == there.event[:3]


def sources(causes):
    return frozenset((cause.event[:3], cause.between, sources(cause.causes)) for cause in causes)


SHOP = {
    "web": [
        {"kind": "send", "message": "order", "to": ["bank"], "time": 10},
        {"kind": "internal", "time": 20},
        {"kind": "deliver", "message": "paid", "time": 70},
    ],
    "bank": [
        {"kind": "deliver", "message": "order", "time": 30},
        {"kind": "send", "message": "paid", "to": ["web"], "time": 60},
        {"kind": "internal", "time": 80},
    ],
}
OTHER = {"x": [{"kind": "internal", "time": 1}] * 5}


def test_what_is_read_is_the_past_of_what_is_asked(tmp_path):
    answers = analysed(number(SHOP, "shop") + number(OTHER, "other"), tmp_path / "answers")
    read, partial = answered_events(answers, ["bank#2"], past_only=True)
    assert partial and names(read) == {("shop", "web", 1), ("shop", "bank", 1), ("shop", "bank", 2)}
    read, partial = answered_events(answers, ["paid"])
    assert not partial and {name[0] for name in names(read)} == {"shop"} and read.num_rows == 6
    assert answered_events(answers, [])[0].num_rows == 11


def test_a_recorded_cause_is_in_the_clocks(tmp_path):
    rows = {"p": [{"kind": "internal"}], "q": [{"kind": "internal", "causes": [{"process": "p", "seq": 1}]}]}
    answers = analysed(number(rows, "run"), tmp_path / "answers")
    assert names(ask.past(answers, "q#1")) == {("run", "p", 1)}
    assert [cause.edge for cause in ask.why(answers, "q#1").causes] == ["cause"]


def test_messages_and_times_are_in_the_tables(tmp_path):
    answers = analysed(number(SHOP, "shop"), tmp_path / "answers")
    answer = ask.why(answers, "paid")
    assert (answer.event.id, answer.event.kind, answer.event.message, answer.event.time) == (
        "web#3", "deliver", "paid", 70,
    )  # fmt: skip
    assert [(cause.event.id, cause.edge, cause.last) for cause in answer.causes] == [
        ("web#1", "process", False),
        ("bank#2", "message", True),
    ]
    assert ask.critical_path(answers).took == (70,)


def test_a_question_that_needs_more_than_a_past_refuses_a_part_of_a_history(tmp_path):
    answers = analysed(number(SHOP, "shop"), tmp_path / "answers")
    part = ask.load(answers, ["bank#2"], past_only=True)
    with pytest.raises(CausalityError, match="the past of some events alone"):
        ask.future(part, "bank#2")


def test_stamps_that_are_predecessors_of_some_events_are_refused(tmp_path):
    rows = number(SHOP, "shop")
    every = analysed(rows, tmp_path / "every", "predecessors")
    assert ask.past(every, "web#3") == ask.past(analysed(rows, tmp_path / "full"), "web#3")
    answers = analysed([rows[0] | {"relevant": True}, *rows[1:]], tmp_path / "answers", "predecessors")
    with pytest.raises(CausalityError, match="analyse the trace again with --timestamps full or sparse"):
        ask.past(answers, f"{rows[0]['process']}#{rows[0]['seq']}")


def test_the_answer_to_one_question_is_not_enough(tmp_path):
    answers = analysed(number(SHOP, "shop"), tmp_path / "answers")
    rmtree(answers / "times")
    with pytest.raises(CausalityError, match="has no table times: it is the answer to some questions only"):
        ask.past(answers, "web#3")


def test_labels_are_not_in_the_tables(tmp_path):
    answers = analysed(number(SHOP, "shop"), tmp_path / "answers")
    with pytest.raises(ask.UnknownName, match="an analysis has no labels or spans"):
        ask.past(answers, "checkout")


def test_a_trace_that_is_too_large_is_refused_before_it_is_read(tmp_path, monkeypatch):
    (tmp_path / "trace").mkdir()
    pq.write_table(table(number(SHOP)), tmp_path / "trace" / "part.parquet")
    monkeypatch.setattr("happened.ask.history.MOST_EVENTS", 5)
    with pytest.raises(CausalityError, match="6 events are too many to be read whole; ask it on Spark"):
        ask.past(tmp_path / "trace", "web#1")
