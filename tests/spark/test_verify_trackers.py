"""What trackers recorded is verified on Spark: whole computations, and those that are cut into epochs."""

from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from happened import trace
from happened.causality.analysis import analyse
from happened.sim.run import Parameters, simulate
from happened.sim.workload import Workload
from happened.spark.pipeline import analyze_path


def recorded(folder, seed, dice):
    """Runs under three trackers, in each of which one tracker was wrong about some of its events."""
    tables = []
    for tracker in ("p1", "p2:2", "p3-reduced"):
        settings = {"processes": 5, "messages": 120, "workload": Workload("multicast"), "relevant": 0.3}
        simulate(Parameters(seed=seed, tracker=tracker, **settings), folder / tracker)
        rows = trace.read(folder / tracker / "trace").to_pylist()
        numbered = [row for row in rows if "relevant_seq" in dict(row["attributes"] or ())]
        for row in dice.sample(numbered, 3):
            told = dict(row["attributes"])
            name = next(name for name in ("vector", "dependencies") if name in told)
            row["attributes"] = list((told | {name: f"{row['process']}:99"}).items())
        for row in rows:
            row["computation"] = tracker
        tables.append(pa.Table.from_pylist(rows, schema=trace.SCHEMA))
    table = pa.concat_tables(tables)
    (folder / "all").mkdir()
    pq.write_table(table, folder / "all" / "part.parquet")
    return table


@pytest.mark.parametrize("whole_events", [100_000, 1], ids=["whole", "by epochs"])
def test_faults_are_named_on_spark(spark, tmp_path, seed, dice: Random, whole_events):
    table = recorded(tmp_path, seed, dice)
    expected = analyse(table, questions=["verify-trackers"])
    assert expected.totals["tracker_faults"] == 9 and expected.totals["tracker_stamps"] > 200
    summary = analyze_path(
        spark,
        tmp_path / "all",
        tmp_path / "out",
        questions=["verify-trackers"],
        whole_events=whole_events,
        epoch_events=200,
    )
    for name in ("tracker_stamps", "tracker_faults"):
        assert summary[name] == expected.totals[name]
    found = pq.read_table(tmp_path / "out" / "trackers")
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, expected.table("trackers").to_pylist()))
