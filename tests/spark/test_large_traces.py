"""Questions on Spark: the answers of one process, and which traces are asked there."""

import json
from random import Random

import pyarrow.parquet as pq
import pytest

from ask.worlds import rows_of
from causality.traces import table
from effort import THOROUGH
from happened import ask
from happened.ask import history as ask_history
from happened.cli import main
from happened.core.errors import CausalityError
from happened.spark import large_traces
from happened.spark.large_traces import LargeTrace, asked_on_spark, critical_path
from happened.spark.splits import splits_of
from happened.trace import locate

ROWS_PER_SPLIT = 40


def large(spark, rows, folder):
    """A trace that lies in several splits, and what one process reads of it."""
    random = Random(len(rows))
    random.shuffle(rows)
    events = table(rows)
    (folder / "trace").mkdir(parents=True)
    for number, at in enumerate(range(0, events.num_rows, ROWS_PER_SPLIT)):
        part = events.slice(at, ROWS_PER_SPLIT)
        pq.write_table(part, folder / "trace" / f"part-{number:03d}.parquet")
    splits = splits_of(locate(folder / "trace"), rows=ROWS_PER_SPLIT)
    return LargeTrace(spark, splits, folder / "work"), ask.load(folder / "trace")


def outcome(question, *arguments, **options):
    """The answer, or what kind of refusal."""
    try:
        answer = question(*arguments, **options)
    except CausalityError as error:
        return type(error)
    return answer.to_pylist() if hasattr(answer, "to_pylist") else answer


def why_on_spark(trace, text):
    return ask.why(trace.about(text), text)


def influenced_on_spark(trace, text, direction):
    return ask.influenced(*trace.about_request(text), direction=direction)


def rich_rows(random, across):
    """Of several computations, in several splits, with times and requests."""
    while True:
        rows = rows_of(random, across)
        traced = [row for row in rows if "trace" in dict(row["attributes"]) and "time" in row]
        if len(rows) > 2 * ROWS_PER_SPLIT and len(traced) > ROWS_PER_SPLIT:
            return rows


@pytest.mark.sampled
def test_every_question_is_answered_as_in_one_process(spark, tmp_path, seed, monkeypatch):
    monkeypatch.setattr(large_traces, "EVENTS_PER_BUCKET", 30)
    splits, seen = 0, []
    for number in range(2 if not THOROUGH else 40):
        random = Random(seed * 1009 + number)
        rows = (rich_rows if number < 2 else rows_of)(random, across=number % 2 == 1)
        if not rows:
            continue
        trace, here = large(spark, rows, tmp_path / str(number))
        splits = max(splits, len(trace.splits))
        row, other = random.choice(rows), random.choice(rows)
        event, second = (f"{each['computation']}:{each['process']}#{each['seq']}" for each in (row, other))
        there = trace.about(event, second)
        for question in (ask.why, ask.past, ask.future):
            assert outcome(question, there, event) == outcome(question, here, event)
        assert ask.path(there, event, second) == ask.path(here, event, second)
        text = row.get("message") or event
        assert outcome(why_on_spark, trace, text) == outcome(ask.why, here, text)
        beginning = random.choice(here.requests[1])[:1]
        for name, direction in ((event, "future"), (event, "past"), (beginning, "past")):
            seen.append(outcome(influenced_on_spark, trace, name, direction))
            assert seen[-1] == outcome(ask.influenced, here, name, direction=direction)
        for by in ("service", "process"):
            seen.append(outcome(critical_path, trace, by))
            assert seen[-1] == outcome(ask.critical_path, here, by=by)
    assert splits > 2
    assert any(isinstance(each, ask.Influences) and each.others for each in seen)
    assert any(isinstance(each, ask.CriticalPath) and len(each.took) > 1 for each in seen)
    assert ask.AmbiguousName in seen  # the beginning of the names of several requests


SHOP = """\
{"computation": "a", "process": "web", "seq": 1, "kind": "internal", "time": 1, "label": "POST /order",
 "attributes": {"trace": "t1", "span": "s1", "service": "web"}}
{"computation": "a", "process": "web", "seq": 2, "kind": "internal", "time": 5, "attributes": {"trace": "t1"}}
{"computation": "b", "process": "web", "seq": 1, "kind": "internal", "time": 2, "label": "GET /",
 "attributes": {"trace": "t2", "span": "s1"}}
""".replace(",\n ", ", ")


def test_names_are_looked_for_kind_by_kind(spark, tmp_path):
    (tmp_path / "t.jsonl").write_text(SHOP)
    with asked_on_spark(spark, tmp_path / "t.jsonl", tmp_path / "work") as trace:
        for name, computations in {
            "a:web#1": {"a"},
            "web#2": {"a"},
            "t1:s1": {"a"},
            "s1": {"a", "b"},
            "post /ORDER": {"a"},
            "GET /": {"b"},
        }.items():
            assert {*trace.about(name).union.computation_names} == computations
        with pytest.raises(ask.UnknownName, match="nothing in the trace is called 'web#9'"):
            trace.about("web#9")
        history, name = trace.about_request("t1")
        assert (name, history.requests_in_trace) == ("t1", 2)
        with pytest.raises(CausalityError, match="some alone"):
            ask.influenced(history, name, by_clock=True)
    assert not [*(tmp_path / "work").iterdir()]


def test_what_is_too_much_even_there_is_refused(spark, tmp_path, monkeypatch):
    (tmp_path / "t.jsonl").write_text(SHOP)
    with asked_on_spark(spark, tmp_path / "t.jsonl") as trace:
        monkeypatch.setattr(large_traces, "MOST_GATHERED", 1)
        with pytest.raises(CausalityError, match="needs 2 events, and at most 1 can be held"):
            trace.about("a:web#1")


def test_commands_go_to_spark_by_size_and_as_they_are_told(spark, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(type(spark), "stop", lambda self: None)  # the session is that of all tests
    trace, commands = tmp_path / "trace", (["why", "web#2"], ["critical-path"], ["influenced", "t1"])
    (tmp_path / "t.jsonl").write_text(SHOP)
    main(["export", str(tmp_path / "t.jsonl"), "--to", "trace", "--out", str(trace)])
    capsys.readouterr()
    for name, *words in commands:
        code = main(["ask", name, str(trace), *words, "--json"])
        here = capsys.readouterr()
        assert "Spark" not in here.err
        assert main(["ask", name, str(trace), *words, "--json", "--master", "local[2]"]) == code
        there = capsys.readouterr()
        assert "asking on Spark (local[2])" in there.err and json.loads(there.out) == json.loads(here.out)
    monkeypatch.setattr(ask_history, "MOST_EVENTS", 2)
    assert (
        main(["ask", "why", str(trace), "web#2"]) == 0
        and "asking on Spark (local[*])" in capsys.readouterr().err
    )
    assert (
        main(["ask", "why", str(trace), "web#2", "--local"]) == 0 and "Spark" not in capsys.readouterr().err
    )
    assert main(["ask", "influenced", str(trace), "t1", "--clock-order"]) == 2
    assert "give --local" in capsys.readouterr().err
    with pytest.raises(CausalityError, match="ask it on Spark"):
        ask.why(trace, "web#2")
