"""A frame of events, shuffled by computation as Arrow bytes.

In    rows of a trace as a frame (event_rows)
Out   rows of SENT, by slot and computation; `gather` turns them into tables with whole computations
Cost  one scan, and one shuffle of bytes: a task packs EVENTS_PER_BATCH rows at a time into a blob for each
      slot, a slot being a hash of the computation. Spark sorts and spills blobs, not rows. A task that
      gathers holds one slot at a time: 1 / slots of all rows, and 1 / 200 if many tasks send a few rows of
      the same large computation
"""

from collections.abc import Generator, Iterator, Sequence
from itertools import chain, groupby
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..causality.written import EVENTS_PER_BATCH, whole_computations
from .event_rows import sort_out_unread
from .splits import UNCHECKED, padded, sort_out
from .storage import spark_schema
from .tasks import as_binary, packed_buffer, spare_modules, together, unpack_table

ROWS, LARGE, NO_EVENTS = "rows", "large", "no events"
"""Kinds of tables: whole computations; a piece of a computation that is too large; rows of QUARANTINE."""

Laid = tuple[str, str, pa.Table]
"""The kind of a table, the computation that a piece belongs to, and the rows."""

SENT = pa.schema([("slot", pa.int32()), ("computation", pa.string()), ("blob", pa.binary())])
"""A blob on its way to the task of its slot. `computation` is set if all rows of the blob belong to that
computation."""

SLOT = "_slot"
UNUSABLE = -1
"""The slot of rows of QUARANTINE."""

SLOTS_PER_PARTITION, FEWEST_SLOTS, MOST_SLOTS = 4, 64, 1 << 15
NAMED_ROWS = EVENTS_PER_BATCH // 200
"""A computation gets blobs of its own if it has at least this many of the rows that a task packs together."""


def lay_down(rows: DataFrame) -> DataFrame:
    """The rows as blobs (SENT); all blobs of a slot follow each other in one partition."""
    computation = F.coalesce("computation", F.lit("")) if "computation" in rows.columns else F.lit("")
    partitions = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions", "200") or 200)
    slots = min(max(SLOTS_PER_PARTITION * partitions, FEWEST_SLOTS), MOST_SLOTS)
    slot = F.pmod(F.xxhash64("computation"), F.lit(slots)).cast("int")
    sent = rows.withColumn("computation", computation).withColumn(SLOT, slot)
    sent = sent.mapInArrow(_send, spark_schema(SENT))
    return sent.repartition("slot").sortWithinPartitions("slot", "computation")


# This part runs in the tasks that send.


def _send(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for table in together(batches, EVENTS_PER_BATCH):
        yield from _by_slot(table)
    spare_modules()


def _by_slot(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Pack the rows into blobs (SENT) by slot."""
    table, unread = sort_out_unread(table)
    given = [name for name in UNCHECKED.names if name in table.column_names]
    events, quarantined = sort_out(padded(table).append_column(SLOT, table[SLOT]))
    quarantined = pa.concat_tables([quarantined, unread])
    if quarantined.num_rows:
        yield _sent(UNUSABLE, None, quarantined)
    slots = events[SLOT].to_numpy()
    events = events.select(given)
    if not slots.size or (slots == slots[0]).all():
        begins = np.zeros(min(slots.size, 1), np.int64)
    else:
        order = np.argsort(slots.astype(np.int16), kind="stable")
        slots, events = slots[order], events.combine_chunks().take(pa.array(order))
        begins = np.flatnonzero(np.diff(slots, prepend=-1))
    for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), slots.size], strict=False):
        yield from _sent_by_name(int(slots[begin]), events.slice(begin, end - begin))


def _sent_by_name(slot: int, rows: pa.Table) -> Iterator[pa.RecordBatch]:
    if rows.num_rows >= NAMED_ROWS:
        counted = pc.value_counts(rows["computation"])
        is_named = pc.greater_equal(counted.field("counts"), NAMED_ROWS)
        for name in counted.field("values").filter(is_named).to_pylist():
            is_mine = pc.equal(rows["computation"], name)
            yield _sent(slot, name, rows.filter(is_mine))
            rows = rows.filter(pc.invert(is_mine))
    if rows.num_rows:
        yield _sent(slot, None, rows)


def _sent(slot: int, computation: str | None, table: pa.Table) -> pa.RecordBatch:
    columns = [pa.array([slot], pa.int32()), pa.array([computation], pa.string())]
    return pa.RecordBatch.from_arrays([*columns, as_binary(packed_buffer(table))], schema=SENT)


# This part runs in the tasks that take slots.


def gather(batches: Iterator[pa.RecordBatch]) -> Iterator[Laid]:
    """The tables that `lay_down` sent to this task; small slots are combined into one table."""
    sent = (
        row
        for batch in batches
        for row in zip(
            batch["slot"].to_pylist(), batch["computation"].to_pylist(), batch["blob"], strict=True
        )
    )
    held: list[pa.Table] = []
    rows = 0
    for slot, of_slot in groupby(sent, key=itemgetter(0)):
        if slot == UNUSABLE:
            for _, _, blob in of_slot:
                yield NO_EVENTS, "", _unpacked(blob)
            continue
        whole: list[pa.Table] = []
        for name, of_name in groupby(of_slot, key=itemgetter(1)):
            blobs = (blob for _, _, blob in of_name)
            if name is None:  # nulls come first
                whole = [pa.concat_tables(map(_unpacked, blobs))]
            else:
                whole = yield from _gather_named(name, blobs, whole)
        size = sum(table.num_rows for table in whole)
        if rows and rows + size > EVENTS_PER_BATCH:
            yield from _whole(held)
            held, rows = [], 0
        held += whole
        rows += size
    yield from _whole(held)


def _gather_named(
    name: str, blobs: Iterator[pa.BinaryScalar], whole: Sequence[pa.Table]
) -> Generator[Laid, None, list[pa.Table]]:
    """Yield a computation that has blobs of its own, and perhaps a few rows among the slot's mixed blobs.

    Returns the rows of the slot that belong into tables of whole computations.
    """
    first = []
    size = 0
    for blob in blobs:
        first.append(blob)
        size += _unpacked(blob).num_rows
        if size > EVENTS_PER_BATCH:
            break
    else:
        return [*whole, *map(_unpacked, first)]
    others = []
    for table in whole:
        is_mine = pc.equal(table["computation"], name)
        others.append(table.filter(pc.invert(is_mine)))
        if pc.any(is_mine).as_py():
            yield LARGE, name, table.filter(is_mine)
    for blob in chain(first, blobs):
        yield LARGE, name, _unpacked(blob)
    return others


def _unpacked(blob: pa.BinaryScalar) -> pa.Table:
    return unpack_table(blob.as_buffer())


def _whole(tables: Sequence[pa.Table]) -> Iterator[Laid]:
    if sum(table.num_rows for table in tables):
        for table in whole_computations(pa.concat_tables(tables).combine_chunks()):
            yield ROWS, "", table
