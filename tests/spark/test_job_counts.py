"""How often Spark is asked to work: by what is done, not by how much there is of it."""

import json
import random
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from causality import traces
from happened.spark.pipeline import analyze_path
from happened.trace import SCHEMA
from spark.test_analyze import wild_rows, write


@contextmanager
def counted(spark, group):
    """A list that has the number of jobs when the block is over."""
    found = []
    spark.sparkContext.setJobGroup(group, group)
    try:
        yield found
    finally:
        found.append(len(spark.sparkContext.statusTracker().getJobIdsForGroup(group)))
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.parquet", "parts"])
def test_a_trace_that_fits_a_task_is_one_job(spark, tmp_path, seed, name):
    rows = wild_rows(seed, 20, computation="c", skew=10)
    if name == "parts":
        write(rows, tmp_path / name)
    elif name == "trace.parquet":
        table = [{"computation": "", "relevant": False} | row for row in rows]
        pq.write_table(pa.Table.from_pylist(table, schema=SCHEMA), tmp_path / name)
    else:
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    with counted(spark, name) as jobs:
        analyze_path(spark, tmp_path / name, tmp_path / "out")
    assert jobs == [1]


def jobs_of(spark, tmp_path, count):
    """Of an analysis of so many computations that are all cut."""
    rows = []
    for number in range(count):
        chains = traces.causal(random.Random(number), messages=6)
        rows += traces.number(chains, f"c{number}")
    write(rows, tmp_path / f"trace{count}")
    with counted(spark, f"{count} large") as jobs:
        summary = analyze_path(
            spark, tmp_path / f"trace{count}", tmp_path / f"out{count}", whole_events=1, epoch_events=20
        )
    assert summary["computations"] == count
    return jobs[0]


def test_large_computations_take_few_jobs(spark, tmp_path):
    assert jobs_of(spark, tmp_path, 2) < 27


@pytest.mark.slow
def test_several_large_computations_take_no_more_jobs_than_one(spark, tmp_path):
    """Five above the limit go through every phase together."""
    one, five = jobs_of(spark, tmp_path, 1), jobs_of(spark, tmp_path, 5)
    assert one <= five <= one + 2, (one, five)  # a round more for cuts that are hard to place
    assert one < 25, one
