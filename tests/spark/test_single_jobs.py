"""One question by itself: exactly its tables, with the rows that `happened analyze` gives to all of them."""

import argparse
import json
import random

import pyarrow.parquet as pq
import pytest

from causality import traces
from happened.causality.analysis import QUESTIONS, TABLES
from happened.causality.written import ALWAYS
from happened.cli.analyzing import questions_of
from happened.spark.pipeline import analyze_path
from spark.test_analyze import wild_rows, write

CUT = {"whole_events": 60, "epoch_events": 40}
"""Most computations of the trace stay whole, one is cut into epochs."""


def mixed(dice):
    """Small computations of every kind, a larger one, logged clocks of which some are wrong, and a circle."""
    rows = wild_rows(dice.randrange(2**32), 30, computation="c", skew=30)
    rows += [
        row | {"computation": "large"} for row in wild_rows(dice.randrange(2**32), 12, prefix="w", skew=200)
    ]
    for row in rows:
        if dice.random() < 0.2:
            row["clock"] = {row["process"]: row["seq"] + dice.randint(0, 1)}
    circle = {"process": "p", "seq": 1}
    return [*rows, {"computation": "circle", "kind": "internal", "causes": [circle], **circle}]


@pytest.fixture(scope="module")
def everything(spark, tmp_path_factory):
    """A trace and what `analyze` says about all of it."""
    folder = tmp_path_factory.mktemp("everything")
    write(mixed(random.Random(7)), folder / "trace")
    summary = analyze_path(spark, folder / "trace", folder / "out", **CUT)
    assert summary["computations"] > 20
    assert max(pq.read_table(folder / "out" / "stamps")["epoch"].to_pylist()) > 1
    assert summary["causal_violations"] > 0
    assert summary["clock_mismatches"] > 0
    assert summary["quarantined"] == 1
    return folder, summary


def test_every_question_can_be_asked_alone_and_every_table_has_a_question():
    for name in QUESTIONS:
        assert questions_of(argparse.Namespace(only=name)) == [name]
    answered = [table for question in QUESTIONS.values() for table in question.tables]
    assert sorted([*answered, "quarantine"]) == sorted(TABLES)


@pytest.mark.parametrize(
    "question",
    [
        name if name in ("epochs", "order") else pytest.param(name, marks=pytest.mark.slow)
        for name in QUESTIONS
    ],
)
def test_one_question_has_its_tables_and_the_same_rows(spark, everything, tmp_path, question):
    folder, everything_said = everything
    said = analyze_path(spark, folder / "trace", tmp_path / "out", questions=[question], **CUT)
    tables = {*QUESTIONS[question].tables, "quarantine"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {*tables, "summary.json"}
    for name in tables:
        found = traces.rows_of(pq.read_table(tmp_path / "out" / name), name)
        assert found == traces.rows_of(pq.read_table(folder / "out" / name), name), name
        assert found or name not in ("stamps", "epochs", "predecessors", "measures", "clocks"), name
    assert said.keys() == {*ALWAYS, *QUESTIONS[question].totals}
    assert said == {name: everything_said[name] for name in said}
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == said


@pytest.mark.parametrize(("name", "code"), [("verify-clocks", 2), ("order", 1)])
def test_the_command_of_a_question(command, everything, tmp_path, capfd, name, code):
    """Nothing is cut here: the trace is small."""
    folder, everything_said = everything
    out = tmp_path / name
    words = ["analyze", str(folder / "trace"), "--only", name, "--out", str(out), "--master", "local[2]"]
    assert command(words) == code
    printed = capfd.readouterr().out
    assert printed.count("tables and summary.json are in") == 1
    assert printed.count("causal order VIOLATED") == (name == "order")
    tables = {*QUESTIONS[name].tables, "quarantine"}
    assert {path.name for path in out.iterdir()} == {*tables, "summary.json"}
    for table in tables:
        found, expected = (pq.read_table(place / table) for place in (out, folder / "out"))
        assert traces.rows_of(found, table) == traces.rows_of(expected, table), (name, table)
    said = json.loads((out / "summary.json").read_text())
    assert said == {total: everything_said[total] for total in said}
