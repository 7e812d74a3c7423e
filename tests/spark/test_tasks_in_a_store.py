"""What tasks read from an object store and leave there: the same as on a disk, once, by themselves."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

from causality import traces
from happened.spark.splits import splits_of
from happened.spark.storage import read_arrays, write_arrays, write_part, write_rows
from happened.spark.tasks import on_tasks
from happened.trace import SCHEMA, count, locate, write_jsonl
from happened.trace.store import any_path, arrow_source, files_below


@pytest.fixture
def executors(spark, store, monkeypatch):
    """The session, whose workers have what it takes to reach the store, as spark.executorEnv gives it."""
    for name, value in store.environment.items():
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    return spark


def test_tasks_write_parts_and_arrays_to_a_url(executors, bucket):
    folder = any_path(bucket)

    def work(number):
        write_part(folder / "table", f"{number:03d}", pa.table({"n": [number]}), compression="zstd")
        write_arrays(folder / "arrays" / f"{number}.npz", squares=np.arange(number) ** 2)
        return int(read_arrays(folder / "arrays" / f"{number}.npz")["squares"].sum())

    for _ in range(2):  # a task that runs again leaves the same
        assert on_tasks(executors, 3, work) == [0, 0, 1]
        assert [file.name for file in files_below(folder / "table")] == [
            "000.parquet",
            "001.parquet",
            "002.parquet",
        ]
    parts = [pq.read_table(arrow_source(file)) for file in files_below(folder / "table")]
    assert pa.concat_tables(parts)["n"].to_pylist() == [0, 1, 2]
    assert read_arrays(folder / "arrays" / "2.npz")["squares"].tolist() == [0, 1]


def test_tasks_read_splits_of_files_at_a_url(executors, bucket, dice):
    table = traces.table(traces.busy(dice))
    write_part(any_path(bucket), "part-0", table.drop_columns(["computation"]), row_group_size=5)
    write_part(any_path(bucket), "part-1", table)
    splits = splits_of(locate(bucket), rows=table.num_rows)

    def work(number):
        events, quarantined = splits[number].read()
        assert (events.schema, quarantined.num_rows) == (SCHEMA, 0)
        return events["computation"].to_pylist()

    assert on_tasks(executors, 2, work) == [[""] * table.num_rows, table["computation"].to_pylist()]
    assert count(bucket) == 2 * table.num_rows


def test_splits_of_a_trace_at_a_url_hold_all_its_events(bucket, dice):
    table = traces.table(traces.busy(dice))
    write_part(any_path(bucket) / "t", "part", table, row_group_size=2)
    write_jsonl(table, f"{bucket}/t.jsonl")
    for given in (f"{bucket}/t", f"{bucket}/t.jsonl"):
        splits = splits_of(locate(given), rows=3, size=100)
        events = pa.concat_tables([split.read().events for split in splits])
        assert events["process"].to_pylist() == table["process"].to_pylist()
        assert events["seq"].to_pylist() == table["seq"].to_pylist()


def test_rows_of_spark_become_parts_at_a_url(executors, bucket):
    folder = any_path(bucket)
    rows = executors.range(0, 10, 1, 3).selectExpr("id", "map(string(id), id) AS clock").where("id < 7")
    for _ in range(2):
        write_rows(rows, folder / "table")
    files = files_below(folder)
    assert [file.parent.name for file in files] == ["table"] * len(files)
    written = pa.concat_tables([pq.read_table(arrow_source(file)) for file in files])
    assert sorted(written["id"].to_pylist()) == [*range(7)]
    assert dict(zip(written["id"].to_pylist(), written["clock"].to_pylist(), strict=True))[3] == [("3", 3)]


def test_the_connector_that_the_page_names_is_of_the_hadoop_that_spark_has():
    jars = Path(pyspark.__file__).parent / "jars"
    [hadoop] = [jar.stem.removeprefix("hadoop-client-api-") for jar in jars.glob("hadoop-client-api-*.jar")]
    page = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text()
    assert f"org.apache.hadoop:hadoop-aws:{hadoop} " in page
    assert f"PySpark {pyspark.__version__} Hadoop {hadoop}" in page
