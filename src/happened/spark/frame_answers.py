"""Answers about a frame that `laid_frames` has shuffled: Spark brings rows to tasks and takes their answers;
tasks open no files except for scratch on their local disks.

In    rows of SENT; the questions
Out   each table as a frame or as Parquet files, and the totals
Cost  one pass over the shuffled rows. Tasks encode their answers as Parquet, and Spark keeps those bytes
      (persist). They are decoded when a table is used as a frame; as files, Spark writes them unchanged

Tasks answer for about EVENTS_PER_BATCH events of whole computations at a time. For a computation with more
events, its task answers epoch by epoch, with intermediates on the local disk (`in_parts` with HERE): memory
stays bounded, but only one core works on it. `io="direct"` spreads a large computation over tasks, which then
read and write files themselves.
"""

import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..causality.analysis import analyse
from ..causality.written import large_computations
from ..core.errors import CausalityError
from ..trace.parts import parquet_settings, write_part
from ..trace.store import matching
from .in_parts import Asked, answer_splits
from .laid_frames import LARGE, NO_EVENTS, gather
from .splits import Groups, Split, padded
from .storage import spark_schema
from .tasks import HERE, as_binary, spare_modules

PACKED = pa.schema([("table", pa.string()), ("rows", pa.int64()), ("blob", pa.binary())])
TOTALS, FAULT = "", "!"
"""Values of the column `table` for blobs that are not Parquet files of a table: a JSON object of totals, or
the reason why the whole analysis is refused."""

KEPT: dict[str, Any] = {"compression": "lz4", "use_dictionary": False, "write_statistics": False}
"""Parquet settings of tables that Spark keeps: they need 0.4 times the CPU of `parquet_settings`, and 2.7
times the bytes."""

BLOB_BYTES = 16 << 20
"""Bytes of Arrow that are encoded as one blob of a few megabytes; the JVM holds several blobs at a time."""

MAGIC = "PAR1"
"""The last bytes of a Parquet file."""


def answer(laid: DataFrame, asked: Asked, *, as_files: bool = False) -> DataFrame:
    """The answers as rows of PACKED, persisted. as_files: compress them for storage, for `write_files`."""
    return laid.mapInArrow(partial(_answer, asked, as_files), spark_schema(PACKED)).persist()


def totals_of(packed: DataFrame, job: str) -> tuple[Counter[str], Counter[str]]:
    """The totals of all tasks, and how many rows each table has; this call makes Spark compute the answers.

    Listeners of the session see the metrics `happened JOB`: rows, bytes and quarantined rows.
    """
    totals: Counter[str] = Counter()
    rows: Counter[str] = Counter()
    left_out, is_told = F.col("table") == "quarantine", F.col("table").isin(TOTALS, FAULT)
    observed = packed.observe(
        f"happened {job}",
        F.sum("rows").alias("rows"),
        F.sum(F.octet_length("blob")).alias("bytes"),
        F.sum(F.when(left_out, F.col("rows")).otherwise(0)).alias("quarantined"),
    )
    for row in observed.select("table", "rows", F.when(is_told, F.col("blob")).alias("told")).collect():
        rows[row["table"]] += row["rows"]
        if row["table"] == FAULT:
            raise CausalityError(bytes(row["told"]).decode())
        if row["table"] == TOTALS:
            totals.update(json.loads(bytes(row["told"])))
    return totals, rows


def table_of(packed: DataFrame, name: str, schema: pa.Schema) -> DataFrame:
    """One table of the answers, as rows of Spark."""

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for blob in batch["blob"]:
                yield from _decoded(blob.as_buffer(), schema).to_batches()

    blobs = packed.where(F.col("table") == name).select("blob")
    return blobs.mapInArrow(unpack, spark_schema(schema))


def write_files(packed: DataFrame, place: str) -> None:
    """Let Spark write the tables that have rows, as the Parquet files place/table=NAME/part-….txt.

    Spark's writer of text puts the bytes of a row into a file, and a separator after it: here a row is a
    Parquet file without its last bytes, and the separator is these last bytes. So table rows are never
    converted to Spark's rows, and Spark stores the files with its own connectors, committers, credentials and
    metrics.
    """
    is_told = F.col("table").isin(TOTALS, FAULT)
    without_end = F.expr(f"cast(substring(blob, 1, octet_length(blob) - {len(MAGIC)}) as string)")
    files = packed.where(~is_told).select("table", without_end.alias("value"))
    options = {"lineSep": MAGIC, "compression": "none", "maxRecordsPerFile": "1"}
    files.write.options(**options).partitionBy("table").text(place)


def leave_tables(packed: DataFrame, folder: Path, schemas: dict[str, pa.Schema], most_bytes: int) -> bool:
    """Write tables as Parquet parts on this machine, for a report; returns whether all fitted `most_bytes`.

    If the answers are larger, each table gets the rows of its first blobs.
    """
    (size,) = packed.agg(F.coalesce(F.sum(F.octet_length("blob")), F.lit(0))).collect()
    whole: bool = size[0] <= most_bytes
    for name, schema in schemas.items():
        blobs = packed.where(F.col("table") == name).select("blob")
        found = (blobs if whole else blobs.limit(max(1, most_bytes // len(schemas) // BLOB_BYTES))).collect()
        tables = [_decoded(pa.py_buffer(bytes(row["blob"])), schema) for row in found]
        write_part(folder / name, "part", pa.concat_tables([schema.empty_table(), *tables]))
    return whole


def _decoded(blob: pa.Buffer, schema: pa.Schema) -> pa.Table:
    return pq.read_table(pa.BufferReader(blob)).cast(schema)


# The rest of this file runs in tasks.

Answers = Iterator[tuple[str, pa.Table | Path]]
"""Pairs of a table's name and some of its rows, either in memory or as a Parquet file."""


def _answer(asked: Asked, as_files: bool, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    totals: Counter[str] = Counter()
    try:
        for name, rows in _answers(asked, batches, totals):
            yield from _packed(name, rows, as_files)
        yield _row(TOTALS, 0, pa.py_buffer(json.dumps(totals).encode()))
    except CausalityError as error:  # reported as a row, because running the task again would not help
        yield _row(FAULT, 0, pa.py_buffer(str(error).encode()))
    spare_modules()


def _answers(asked: Asked, batches: Iterator[pa.RecordBatch], totals: Counter[str]) -> Answers:
    """Answer for the rows that Spark brings to this task, and add to the totals."""
    large: _Large | None = None
    for kind, name, table in gather(batches):
        if large is not None and (kind, name) != (LARGE, large.name):
            yield from large.answer(asked, totals)
            large = None
        if kind == LARGE:
            large = large or _Large(name)
            large.add(padded(table))
        elif kind == NO_EVENTS:
            totals["quarantined"] += table.num_rows
            yield "quarantine", table
        else:
            yield from _answer_whole(padded(table), asked, totals)
    if large is not None:
        yield from large.answer(asked, totals)


def _answer_whole(table: pa.Table, asked: Asked, totals: Counter[str]) -> Answers:
    writes_vectors = asked.whole(Path()).writes_vectors
    for name in large_computations(table, writes_vectors, asked.whole_events):
        wide = _Large(name)
        mine = pc.equal(table["computation"], name)
        wide.add(table.filter(mine))
        table = table.filter(pc.invert(mine))
        yield from wide.answer(asked, totals)
    analysis = analyse(table, timestamps=asked.timestamps, questions=asked.questions, gaps=asked.gaps)
    totals.update(analysis.totals)
    yield from analysis.filled()


class _Large:
    """A computation that a task answers epoch by epoch, on its local disk."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._folder = tempfile.TemporaryDirectory(prefix="happened-")
        self._splits: list[Split] = []

    def add(self, table: pa.Table) -> None:
        number = f"{len(self._splits):06d}"
        place = Path(self._folder.name) / "trace"
        write_part(place, number, table, compression="lz4")
        self._splits.append(Split((Groups(place / f"{number}.parquet", None, {}),), table.num_rows))

    def answer(self, asked: Asked, totals: Counter[str]) -> Answers:
        with self._folder as folder:
            out = Path(folder) / "answers"
            totals.update(answer_splits(HERE, self._splits, out, Path(folder) / "work", asked))
            for table in sorted(out.iterdir()) if out.is_dir() else ():
                for part in matching(table, "*.parquet"):
                    yield table.name, part


def _packed(name: str, answer: pa.Table | Path, as_files: bool) -> Iterator[pa.RecordBatch]:
    if isinstance(answer, Path):
        yield _row(name, pq.read_metadata(answer).num_rows, pa.py_buffer(answer.read_bytes()))
        return
    rows = max(1, answer.num_rows * BLOB_BYTES // max(answer.nbytes, 1))
    for begin in range(0, answer.num_rows, rows):
        piece = answer.slice(begin, rows)
        sink = pa.BufferOutputStream()
        pq.write_table(piece, sink, **(parquet_settings(piece.schema) if as_files else KEPT))
        yield _row(name, piece.num_rows, sink.getvalue())


def _row(table: str, rows: int, blob: pa.Buffer) -> pa.RecordBatch:
    columns = [pa.array([table]), pa.array([rows]), as_binary(blob)]
    return pa.RecordBatch.from_arrays(columns, schema=PACKED)
