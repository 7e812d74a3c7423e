"""Advice by Spark tasks is the advice of one process."""

import random

import pyarrow.parquet as pq
import pytest

from causality import traces
from happened import trace
from happened.core.errors import TraceFormatError
from happened.experiments.advise import advise, advise_on_spark

NAMES = ("ks", "rst", "sequencer", "acknowledged", "bss-groups")


def written(rows, path):
    table = traces.table(rows)
    pq.write_table(table, path)
    return table


def test_tasks_and_one_process_give_the_same_advice(spark, tmp_path):
    dice = random.Random(4)
    rows = [row for k in range(30) for row in traces.wild(dice, f"c{k}")]
    dice.shuffle(rows)
    written(rows, tmp_path / "trace.parquet")
    said = []
    found = advise_on_spark(
        spark,
        tmp_path / "trace.parquet",
        NAMES,
        tmp_path / "parts",
        events_per_part=200,
        progress=said.append,
    )
    assert found == advise(trace.read(tmp_path / "trace.parquet"), NAMES)
    assert found.optimality.holds and found.optimality.carried > 0
    assert len(list((tmp_path / "parts").glob("*.parquet"))) > 2 and "replays" in said[-1]


def test_what_a_task_finds_wrong_with_the_trace_is_told(spark, tmp_path):
    rows = traces.number({"a": [{"kind": "send", "message": "m", "to": ["b"]}]})
    written([rows[0] | {"seq": 3}], tmp_path / "trace.parquet")
    with pytest.raises(TraceFormatError, match="seq"):
        advise_on_spark(spark, tmp_path / "trace.parquet", ("ks",), tmp_path / "parts")
