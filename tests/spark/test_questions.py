"""A question is an object: one that only this test knows is answered everywhere, whole and cut into epochs.

And what the questions there are say of themselves is what the documentation says of them.
"""

import argparse
import sys
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle

from causality import traces
from happened.causality.analysis import TABLES, analyse
from happened.causality.computation import SEND
from happened.causality.questions import QUESTIONS, Fold, Question, register, withdraw
from happened.causality.questions.question import EVENT
from happened.cli import main
from happened.cli.analyzing import questions_of
from happened.core.errors import CausalityError
from happened.report.page import write_report
from happened.spark.by_epoch.steps import check_answerable
from happened.spark.pipeline import analyze_path

DOCS = Path(__file__).parents[2] / "docs"
REACH = pa.schema([*EVENT, pa.field("destinations", pa.int64(), nullable=False)])


class ReachFold(Fold):
    def step(self, view, answers):
        sends, counts = np.unique(view.addressed[:, :2], axis=0, return_counts=True)
        columns = [*view.event_columns(sends[:, 0], sends[:, 1]), pa.array(counts)]
        answers.add("reach", pa.table(columns, schema=REACH))
        answers.totals["addressed"] += int(counts.sum())


class Reach(Question):
    name = "reach"
    help = "how many destinations each send has"
    tables: ClassVar = {"reach": REACH}
    totals = ("addressed",)

    def whole(self, subject, answers):
        c = subject.computation
        counts = np.diff(c.dest_offsets)
        sends = np.flatnonzero((c.kind == SEND) & (counts[c.message] > 0))
        of = counts[c.message[sends]]
        answers.add("reach", pa.table([*subject.names_of(sends), pa.array(of)], schema=REACH))
        answers.totals["addressed"] += int(of.sum())

    def fold(self, timestamps, processes):
        return ReachFold()


@pytest.fixture
def reach():
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # tasks cannot import this file
    register(Reach())
    yield
    withdraw("reach")
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def rows(dice):
    chains = traces.causal(dice, messages=30)
    return traces.number(chains, "conversation")


def told(table):
    return sorted(tuple(row.values()) for row in table.to_pylist())


def test_a_new_question_is_answered_by_everyone(spark, reach, dice, tmp_path):
    given = rows(dice)
    expected = sorted(
        ("conversation", row["process"], row["seq"], f"{row['process']}#{row['seq']}", len(row["to"]))
        for row in given
        if row["kind"] == "send"
    )
    total = sum(count for *_, count in expected)
    alone = analyse(traces.table(given))
    assert (told(alone.table("reach")), alone.totals["addressed"]) == (expected, total)

    (tmp_path / "trace").mkdir()
    pq.write_table(traces.table(given), tmp_path / "trace" / "part.parquet")
    for way, options in {"whole": {}, "cut": {"whole_events": 1, "epoch_events": 15}}.items():
        out = tmp_path / way
        summary = analyze_path(spark, tmp_path / "trace", out, **options, finish=write_report)
        assert told(pq.read_table(out / "reach")) == expected, way
        assert summary["addressed"] == total, way
        assert Reach.help in (out / "report.html").read_text()
    epochs = pq.read_table(tmp_path / "cut" / "epochs")["epoch"].to_pylist()
    assert max(epochs) > 1


def test_a_new_question_can_be_asked_alone_and_is_explained(reach, capsys):
    assert questions_of(argparse.Namespace(only="reach,order")) == ["reach", "order"]
    assert main(["help", "questions"]) == 0
    assert f"reach {Reach.help} (tables: reach)" in " ".join(capsys.readouterr().out.split())


def test_names_are_given_once():
    with pytest.raises(CausalityError, match="order: there is such"):
        register(type("Again", (Reach,), {"name": "order"})())
    with pytest.raises(CausalityError, match="stamps: there is such"):
        register(type("Again", (Reach,), {"tables": {"stamps": REACH}})())
    assert "reach" not in QUESTIONS.keys() | TABLES.keys()


def test_an_unknown_question_is_refused():
    with pytest.raises(CausalityError, match="'whereabouts' is no question; ask one of dependencies, epochs"):
        analyse(traces.table([]), questions=["whereabouts"])


def test_the_documentation_lists_every_question_with_its_tables_and_totals():
    page = (DOCS / "pipeline.md").read_text()
    for question in QUESTIONS.values():
        tables = ", ".join(f"`{name}`" for name in question.tables)
        assert f"| `{question.name}` | {tables} | {question.help} |" in page
        assert all(total in page for total in question.totals)
    for name, schema in TABLES.items():
        (line,) = (line for line in page.splitlines() if line.startswith(f"| `{name}` | computation"))
        assert all(column in line for column in schema.names), name


def test_a_question_that_would_say_nothing_of_cut_computations_is_refused():
    class WholeOnly(Reach):
        fold = Question.fold

    check_answerable(QUESTIONS.values())
    with pytest.raises(CausalityError, match="'reach' has no answer for computations cut into epochs"):
        check_answerable([WholeOnly()])
