"""The files that tasks write: Parquet parts and arrays, each complete or absent (see trace.atomic).

A path is a directory, or a URL, that the driver and every executor can reach.
"""

import io
import shutil
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ..trace import SCHEMA
from ..trace.atomic import whole_file
from ..trace.parts import parquet_settings as parquet_settings
from ..trace.parts import write_part as write_part
from ..trace.store import AnyPath, StorePath, arrow_dataset, arrow_source, matching
from .tasks import frame_by_tasks

SPARK, DIRECT = "spark", "direct"
"""Who reads and writes: Spark, with its connectors and credentials; or tasks, with their own credentials."""

IO = (SPARK, DIRECT)


def spark_path(path: AnyPath) -> str:
    """Paths and URLs for Spark's own readers and writers; for a store they need its connector
    (docs/pipeline.md)."""
    return path.hadoop_url if isinstance(path, StorePath) else str(path)


def write_rows(rows: DataFrame, directory: AnyPath, part: str, work: AnyPath) -> None:
    """Let Spark write rows as parts of a table that others write to as well; `work` does not exist yet."""
    if isinstance(directory, StorePath) or isinstance(work, StorePath):
        _write_by_tasks(rows, directory, part)
        return
    rows.write.parquet(str(work))
    directory.mkdir(parents=True, exist_ok=True)
    for number, written in enumerate(sorted(work.glob("*.parquet"))):
        written.rename(directory / f"{part}-{number:05d}.parquet")
    shutil.rmtree(work)


def read_rows(spark: SparkSession, directory: AnyPath, rows: StructType | None = None) -> DataFrame:
    """A table as Spark's rows. Tasks read a table in a store themselves, so that Spark needs no connector.

    rows   their schema, without which the table must have a part
    """
    if not isinstance(directory, StorePath):
        reader = spark.read if rows is None else spark.read.schema(rows)
        return reader.parquet(str(directory))
    files = matching(directory, "*.parquet")
    schema = read_part(files[0]).schema if files else pa.schema([])

    def read(number: int) -> list[pa.RecordBatch]:
        batches: list[pa.RecordBatch] = read_part(files[number]).cast(schema).to_batches()
        return batches

    return frame_by_tasks(spark, len(files), read, rows or from_arrow_schema(schema))


def _write_by_tasks(rows: DataFrame, directory: AnyPath, part: str) -> None:
    """The rows cross to Python, but Spark needs no connector for the store, and nothing is renamed there."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        count = 0
        first = next(batches, None)
        if first is not None:
            path = directory / f"{part}-{context.partitionId():05d}.parquet"
            with whole_file(path) as unfinished, pq.ParquetWriter(unfinished, first.schema) as writer:
                for batch in chain([first], batches):
                    writer.write_batch(batch)
                    count += batch.num_rows
        yield pa.RecordBatch.from_pydict({"rows": [count]})

    directory.mkdir(parents=True, exist_ok=True)
    rows.mapInArrow(write, "rows long").agg(F.sum("rows")).collect()


def write_arrays(path: AnyPath, **arrays: np.ndarray[Any, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as unfinished, unfinished.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def read_parts(directory: AnyPath, schema: pa.Schema | None = None) -> pa.Table:
    """All parts of a table."""
    return arrow_dataset(directory, schema).to_table()


def read_part(path: AnyPath) -> pa.Table:
    with pq.ParquetFile(arrow_source(path), pre_buffer=True) as file:
        return file.read()


def read_arrays(path: AnyPath) -> dict[str, np.ndarray[Any, Any]]:
    # In one request: all of it is needed, and a store answers each request for a range separately.
    with np.load(io.BytesIO(path.read_bytes())) as arrays:
        return {name: arrays[name] for name in arrays.files}


def spark_schema(schema: pa.Schema) -> StructType:
    return from_arrow_schema(schema)


TRACE = spark_schema(SCHEMA)
