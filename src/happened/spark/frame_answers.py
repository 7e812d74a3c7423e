"""Answers about a DataFrame that Spark brings to tasks and takes from them: no task opens a file of its own
but for scratch on its local disk.

In    rows of a trace as a frame (event_columns), with the columns that it has; the questions
Out   Answered: each table as a frame, and the totals
Cost  `lay_down`: one shuffle by computation, sorted, of the columns that exist; what a task held of it is
      kept by Spark (persist) as Arrow bytes and serves all questions asked of the frame. `answer`: one pass
      over those bytes; its tables are kept in the same way. A table's rows become Spark's when it is used

Tasks take the computations of a partition about EVENTS_PER_BATCH events at a time. One that is too large for
that is answered by the task that has it, epoch by epoch, with its local disk for intermediates
(`in_parts` with HERE): memory stays bounded, but only one core works on it. `io="direct"`
spreads a large computation over tasks, which then read and write files themselves.
"""

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..causality.analysis import analyse
from ..causality.written import EVENTS_PER_BATCH, large_computations
from ..core.errors import CausalityError
from ..trace.parts import write_part
from ..trace.schema import DEFAULTS
from ..trace.store import matching
from .event_rows import sort_out_unread
from .in_parts import Asked, answer_splits
from .schemas import spark_schema
from .splits import UNCHECKED, Groups, Split, sort_out
from .storage import read_part
from .tasks import HERE, pack_table, spare_modules, unpack_table

LAID = pa.schema([("kind", pa.string()), ("computation", pa.string()), ("blob", pa.binary())])
ROWS, LARGE, NO_EVENTS = "rows", "large", "no events"
"""Kinds of what is laid down: whole computations; a piece of one that is too large; rows of QUARANTINE."""

PACKED = pa.schema([("table", pa.string()), ("rows", pa.int64()), ("blob", pa.binary())])
TOTALS, FAULT = "", "!"
"""In place of a table's name: the blob is a JSON object of totals; or why the whole analysis is refused."""

BLOB_BYTES = 4 << 20
"""About as large become the blobs of answers: the JVM holds several at a time."""


def lay_down(rows: DataFrame) -> DataFrame:
    """The rows as LAID, persisted: computation by computation."""
    computation = F.coalesce("computation", F.lit("")) if "computation" in rows.columns else F.lit("")
    shuffled = rows.withColumn("computation", computation).repartition("computation")
    ordered = shuffled.sortWithinPartitions("computation")
    return ordered.mapInArrow(_pack, spark_schema(LAID)).persist()


def answer(laid: DataFrame, asked: Asked) -> DataFrame:
    """The answers as PACKED, persisted."""
    return laid.mapInArrow(partial(_answer, asked), spark_schema(PACKED)).persist()


def totals_of(packed: DataFrame, job: str) -> tuple[Counter[str], Counter[str]]:
    """The totals of all tasks, and the rows of each table; this is what makes Spark compute the answers.

    Listeners to the session see the metrics `happened JOB`: rows, bytes and quarantined rows.
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
    """One table of the answers, with its rows as Spark's."""

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for blob in batch["blob"]:
                yield from unpack_table(blob.as_buffer()).cast(schema).to_batches()

    blobs = packed.where(F.col("table") == name).select("blob")
    return blobs.mapInArrow(unpack, spark_schema(schema))


def leave_tables(packed: DataFrame, folder: Path, schemas: dict[str, pa.Schema], most_bytes: int) -> bool:
    """Write tables as Parquet parts on this machine, for a report; whether all of them fitted `most_bytes`.

    Of answers that are larger, each table gets the rows of its first blobs.
    """
    (size,) = packed.agg(F.coalesce(F.sum(F.octet_length("blob")), F.lit(0))).collect()
    whole: bool = size[0] <= most_bytes
    for name, schema in schemas.items():
        blobs = packed.where(F.col("table") == name).select("blob")
        found = (blobs if whole else blobs.limit(max(1, most_bytes // len(schemas) // BLOB_BYTES))).collect()
        tables = [unpack_table(bytes(row["blob"])).cast(schema) for row in found]
        write_part(folder / name, "part", pa.concat_tables([schema.empty_table(), *tables]))
    return whole


# In tasks.


def _pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows in the order of computations as LAID: many computations to a blob, each whole, if it can be."""
    held: list[pa.Table] = []
    large: str | None = None
    for batch in batches:
        events, quarantined = _sorted_out(pa.Table.from_batches([batch]))
        if quarantined.num_rows:
            yield _laid(NO_EVENTS, "", quarantined)
        held.append(events)
        if sum(table.num_rows for table in held) < EVENTS_PER_BATCH:
            continue
        table = pa.concat_tables(held).combine_chunks()
        last = table["computation"][-1].as_py()
        begin = pc.index(table["computation"], last).as_py()
        before, table = table.slice(0, begin), table.slice(begin)
        yield from _laid_whole(before, large)
        held, large = [table], large if large == last else None
        if table.num_rows >= EVENTS_PER_BATCH or large is not None:
            yield _laid(LARGE, last, table)
            held, large = [], last
    if held:
        yield from _laid_whole(pa.concat_tables(held).combine_chunks(), large)
    spare_modules()


def _laid_whole(table: pa.Table, large: str | None) -> Iterator[pa.RecordBatch]:
    """Whole computations, except that the first rows may be the last of a large one."""
    end = 0
    if large is not None:
        end = pc.sum(pc.equal(table["computation"], large)).as_py() or 0
        if end:
            yield _laid(LARGE, large, table.slice(0, end))
    if table.num_rows > end:
        yield _laid(ROWS, "", table.slice(end))


def _sorted_out(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The rows that can be events, with the columns that they came with; the others as rows of QUARANTINE."""
    table, unread = sort_out_unread(table)
    given = [name for name in UNCHECKED.names if name in table.column_names]
    events, quarantined = sort_out(_with_all_columns(table))
    return events.select(given), pa.concat_tables([quarantined, unread])


def _with_all_columns(table: pa.Table) -> pa.Table:
    """The rows by the schema of a trace; columns that they lack are null."""
    columns = [
        table[field.name].cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in UNCHECKED
    ]
    for name, value in DEFAULTS.items():
        place = UNCHECKED.get_field_index(name)
        columns[place] = pc.fill_null(columns[place], value)
    return pa.table(columns, schema=UNCHECKED)


def _laid(kind: str, computation: str, table: pa.Table) -> pa.RecordBatch:
    columns = [pa.array([kind]), pa.array([computation]), pa.array([pack_table(table)], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=LAID)


def _answer(asked: Asked, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    totals: Counter[str] = Counter()
    try:
        yield from _answers(asked, batches, totals)
        yield _row(TOTALS, 0, json.dumps(totals).encode())
    except CausalityError as error:  # running the task again would not mend it
        yield _row(FAULT, 0, str(error).encode())
    spare_modules()


def _answers(
    asked: Asked, batches: Iterator[pa.RecordBatch], totals: Counter[str]
) -> Iterator[pa.RecordBatch]:
    large: _Large | None = None
    for batch in batches:
        for kind, name, blob in zip(*(batch[field] for field in LAID.names), strict=True):
            table = unpack_table(blob.as_buffer())
            if large is not None and (kind.as_py(), name.as_py()) != (LARGE, large.name):
                yield from large.answer(asked, totals)
                large = None
            if kind.as_py() == LARGE:
                large = large or _Large(name.as_py())
                large.add(_with_all_columns(table))
            elif kind.as_py() == NO_EVENTS:
                totals["quarantined"] += table.num_rows
                yield from _packed("quarantine", table)
            else:
                yield from _answer_whole(_with_all_columns(table), asked, totals)
    if large is not None:
        yield from large.answer(asked, totals)


def _answer_whole(table: pa.Table, asked: Asked, totals: Counter[str]) -> Iterator[pa.RecordBatch]:
    writes_vectors = asked.whole(Path()).writes_vectors
    for name in large_computations(table, writes_vectors, asked.whole_events):
        wide = _Large(name)
        mine = pc.equal(table["computation"], name)
        wide.add(table.filter(mine))
        table = table.filter(pc.invert(mine))
        yield from wide.answer(asked, totals)
    analysis = analyse(table, timestamps=asked.timestamps, questions=asked.questions, gaps=asked.gaps)
    totals.update(analysis.totals)
    for name, rows in analysis.filled():
        yield from _packed(name, rows)


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

    def answer(self, asked: Asked, totals: Counter[str]) -> Iterator[pa.RecordBatch]:
        with self._folder as folder:
            out = Path(folder) / "answers"
            totals.update(answer_splits(HERE, self._splits, out, Path(folder) / "work", asked))
            for table in sorted(out.iterdir()) if out.is_dir() else ():
                for part in matching(table, "*.parquet"):
                    yield from _packed(table.name, read_part(part))


def _packed(name: str, table: pa.Table) -> Iterable[pa.RecordBatch]:
    rows = max(1, table.num_rows * BLOB_BYTES // max(table.nbytes, 1))
    for begin in range(0, table.num_rows, rows):
        piece = table.slice(begin, rows)
        yield _row(name, piece.num_rows, pack_table(piece, "lz4"))


def _row(table: str, rows: int, blob: bytes) -> pa.RecordBatch:
    columns = [pa.array([table]), pa.array([rows]), pa.array([blob], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=PACKED)
