"""What the operator gives out: tables as bytes, or the names of the parts that its tasks wrote."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from ...trace.parts import write_part
from ...trace.store import AnyPath
from ..tasks import pack_table

BATCH = "streaming.sql.batchId"
"""The property of a task by which Spark says which batch it is of."""


class AsBytes:
    """Rows of tables as Arrow's IPC stream; `rows` has those of a bucket in a batch, `totals` among them."""

    schema = "table string, rows binary"

    def rows(self, bucket: str, tables: Iterable[tuple[str, pa.Table]]) -> list[tuple[Any, ...]]:
        return [(name, pack_table(table)) for name, table in tables]


class AsParts:
    """Parts of tables in a directory, written by the task that computed them: for each part its name, its
    table and its rows. Totals are not written: for each, no part, its name and its count.

    A task that runs again has the same rows, and writes the same parts again.
    """

    schema = "part string, name string, count long"

    def __init__(self, out: AnyPath) -> None:
        self._out = out

    def rows(self, bucket: str, tables: Iterable[tuple[str, pa.Table]]) -> list[tuple[Any, ...]]:
        context = TaskContext.get()
        assert context is not None
        part = f"batch-{int(context.getLocalProperty(BATCH) or 0):09d}-{bucket}"
        rows: list[tuple[Any, ...]] = []
        for name, table in tables:
            if name == "totals":
                rows += [(None, row["name"], row["count"]) for row in table.to_pylist()]
            else:
                write_part(self._out / name, part, table)
                rows.append((f"{name}/{part}.parquet", name, table.num_rows))
        return rows


Outlet = AsBytes | AsParts
