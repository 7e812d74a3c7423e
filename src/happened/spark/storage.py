"""The files that tasks write: Parquet parts and arrays, each complete or absent (see trace.atomic).

A path is a directory, or a URL, that the driver and every executor can reach.
"""

import io
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from ..core.errors import CausalityError
from ..trace import SCHEMA
from ..trace.atomic import whole_file
from ..trace.parts import parquet_settings as parquet_settings
from ..trace.parts import write_part as write_part
from ..trace.reader import open_part
from ..trace.store import AnyPath, StorePath, arrow_dataset, arrow_source, matching
from .tasks import frame_by_tasks

SPARK, DIRECT = "spark", "direct"
"""Values of `io`: Spark reads and writes, with its connectors and credentials; or tasks, with their own."""

IO = (SPARK, DIRECT)


def spark_path(path: AnyPath) -> str:
    """A path in the form of Spark's own readers and writers, which need a connector for an object store."""
    return path.hadoop_url if isinstance(path, StorePath) else str(path)


def stream_part(path: AnyPath, tables: Iterator[pa.Table]) -> int:
    """Write a part table by table, or nothing if there are no tables; returns the number of rows."""
    first = next(tables, None)
    if first is None:
        return 0
    rows = 0
    settings = parquet_settings(first.schema)
    with whole_file(path) as unfinished, pq.ParquetWriter(unfinished, first.schema, **settings) as writer:
        for table in chain([first], tables):
            writer.write_table(table)
            rows += table.num_rows
    return rows


def partition() -> int:
    """The number of the partition that this task works on."""
    context = TaskContext.get()
    assert context is not None
    return context.partitionId()


def write_rows(rows: DataFrame, directory: AnyPath) -> None:
    """Let tasks write rows as parts of a table, at least one; Spark needs no connector for a store then."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables = (pa.Table.from_batches([batch]) for batch in batches)
        written = stream_part(directory / f"part-{partition():05d}.parquet", tables)
        yield pa.RecordBatch.from_pydict({"rows": [written]})

    directory.mkdir(parents=True, exist_ok=True)
    if not any(row["rows"] for row in rows.mapInArrow(write, "rows long").collect()):
        write_part(directory, "part-empty", to_arrow_schema(rows.schema).empty_table())


def read_rows(spark: SparkSession, directory: AnyPath, schema: pa.Schema | None = None) -> DataFrame:
    """A table as Spark's rows. Tasks read a table in a store themselves, so that Spark needs no connector.

    schema   of the table; if it is None, the table must have a part
    """
    if not isinstance(directory, StorePath):
        reader = spark.read if schema is None else spark.read.schema(spark_schema(schema))
        return reader.parquet(str(directory))
    parts = matching(directory, "*.parquet")
    wanted = open_part(parts[0]).schema_arrow if schema is None else schema

    def read(number: int) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(arrow_source(parts[number])) as file:
            for rows in file.iter_batches():
                yield from pa.Table.from_batches([rows]).cast(wanted).to_batches()

    return frame_by_tasks(spark, len(parts), read, spark_schema(wanted))


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
    # Read in one request: np.load would send a store a request for each range that it reads.
    with np.load(io.BytesIO(path.read_bytes())) as arrays:
        return {name: arrays[name] for name in arrays.files}


def spark_schema(schema: pa.Schema) -> StructType:
    return from_arrow_schema(schema)


TRACE = spark_schema(SCHEMA)


class Tables:
    """Tables by name, as frames; each is also an attribute."""

    _tables: Mapping[str, pa.Schema]

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables, which are attributes too."""
        return tuple(self._tables)

    def table(self, name: str) -> DataFrame:
        raise NotImplementedError

    def _refuse_unknown(self, name: str, of: str) -> None:
        if name not in self._tables:
            raise CausalityError(f"{name!r} is no table of this {of}; it has {', '.join(self._tables)}")

    def __getattr__(self, name: str) -> DataFrame:
        if name in self.__dict__.get("_tables", ()):
            return self.table(name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._tables})
