"""Tasks that write the operator's output as parts of tables.

It imports nothing of `causality`: the workers that write are others than those that compute, and need not
load the kernels.
"""

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark import TaskContext

from ...trace.parts import write_part
from ...trace.store import AnyPath
from ..tasks import spare_modules, unpack_table

WRITTEN = "part string, name string, count long"
"""What a writing task reports: the name of a part, its table and its rows; or, without a part, a total and
its count."""


def write_parts(out: AnyPath, batch: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Write the rows of a task as a part of each table; report the parts, and the totals."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found: dict[str, list[pa.Table]] = {}
        for each in batches:
            for name, blob in zip(each["table"].to_pylist(), each["rows"], strict=True):
                found.setdefault(name, []).append(unpack_table(blob.as_buffer()))
        context = TaskContext.get()
        assert context is not None
        part = f"batch-{batch:09d}-{context.partitionId():05d}"
        rows: list[tuple[str | None, str, int]] = []
        for name, tables in found.items():
            if name == "totals":
                rows += [(None, row["name"], row["count"]) for table in tables for row in table.to_pylist()]
                continue
            table = pa.concat_tables(tables)
            write_part(out / name, part, table)
            rows.append((f"{name}/{part}.parquet", name, table.num_rows))
        if rows:
            columns = [pa.array(column) for column in zip(*rows, strict=True)]
            spare_modules()
            yield pa.RecordBatch.from_arrays(
                [columns[0].cast(pa.string()), columns[1], columns[2]], names=["part", "name", "count"]
            )

    return write
