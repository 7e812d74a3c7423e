"""A trace rebuilt from the tables of an analysis has the same order, messages and times."""

from random import Random

import pyarrow.parquet as pq
import pytest

from causality.traces import busy, table
from effort import samples
from happened.causality import check
from happened.causality.analysis import TABLES, analyse
from happened.core.errors import LocalProtocolError
from happened.view import viewed
from happened.view.pages import are_answers, events_of_answers
from oracles.closure import by_computation


def write(folder, whole, timestamps="full"):
    analysis = analyse(whole, timestamps=timestamps)
    for name in TABLES:
        (folder / name).mkdir(parents=True)
        pq.write_table(analysis.table(name), folder / name / "part.parquet")
    (folder / "summary.json").write_text("{}")
    return folder


def pasts(rows):
    return {
        (name, e): closure.past[e] for name, closure in by_computation(rows).items() for e in closure.event
    }


@pytest.mark.sampled
@pytest.mark.parametrize("timestamps", ["full", "sparse", "predecessors"])
def test_the_order_is_that_of_the_trace(tmp_path, seed, timestamps):
    for k in range(samples(80)):
        dice = Random(seed + k)
        rows = [row | {"time": dice.randrange(10**9)} for c in range(2) for row in busy(dice, f"c{c}")]
        folder = write(tmp_path / str(k), table(rows), timestamps)
        assert are_answers(folder)
        back = events_of_answers(folder).to_pylist(maps_as_pydicts="strict")
        assert pasts(back) == pasts(rows)
        times = {(row["computation"], row["process"], row["seq"]): row["time"] for row in rows}
        assert {(row["computation"], row["process"], row["seq"]): row["time"] for row in back} == times


def test_a_view_of_answers_has_the_verdict_of_the_trace(tmp_path, seed):
    rows = busy(Random(seed))
    seen = viewed(write(tmp_path / "answers", table(rows)))
    assert seen.checked.judgement.verdict.violations == check(table(rows)).verdict.violations
    assert sum(each.c.events for each in seen.computations) == len(rows)


def test_answers_without_what_is_needed_are_refused(tmp_path, seed):
    folder = write(tmp_path / "answers", table(busy(Random(seed))))
    (folder / "messages" / "part.parquet").unlink()
    with pytest.raises(LocalProtocolError, match="has no table 'messages'"):
        viewed(folder)
