"""A frame of events, shuffled by computation and kept by Spark as Arrow bytes.

In    rows of a trace as a frame (event_rows), with the columns that it has
Out   rows of LAID; each blob of kind ROWS has whole computations
Cost  one scan, and one shuffle of bytes: a task packs EVENTS_PER_BATCH rows at a time into a blob for each
      slot, a slot being a hash of the computation. Spark sorts and spills blobs, not rows. A task that takes
      slots holds one of them at a time: 1 / slots of all rows, and 1 / 200 if many tasks send a few rows of
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
from .tasks import pack_table, spare_modules, unpack_table

LAID = pa.schema([("kind", pa.string()), ("computation", pa.string()), ("blob", pa.binary())])
ROWS, LARGE, NO_EVENTS = "rows", "large", "no events"
"""Kinds of blobs: whole computations; a piece of a computation that is too large; rows of QUARANTINE."""

SENT = pa.schema([("slot", pa.int32()), ("computation", pa.string()), ("blob", pa.binary())])
"""A blob on its way to the task of its slot; it has the name of a computation if all of its rows belong to
it."""

SLOT = "_slot"
UNUSABLE = -1
"""The slot of rows of QUARANTINE."""

SLOTS_PER_PARTITION, FEWEST_SLOTS, MOST_SLOTS = 4, 64, 1 << 15
NAMED_ROWS = EVENTS_PER_BATCH // 200
"""A computation with at least this many of the rows that are packed together gets blobs of its own."""


def lay_down(rows: DataFrame) -> DataFrame:
    """The rows as LAID, persisted."""
    computation = F.coalesce("computation", F.lit("")) if "computation" in rows.columns else F.lit("")
    partitions = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions", "200") or 200)
    slots = min(max(SLOTS_PER_PARTITION * partitions, FEWEST_SLOTS), MOST_SLOTS)
    slot = F.pmod(F.xxhash64("computation"), F.lit(slots)).cast("int")
    sent = rows.withColumn("computation", computation).withColumn(SLOT, slot)
    sent = sent.mapInArrow(_send, spark_schema(SENT))
    gathered = sent.repartition("slot").sortWithinPartitions("slot", "computation")
    return gathered.mapInArrow(_gather, spark_schema(LAID)).persist()


# This part runs in the tasks that send.


def _send(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= EVENTS_PER_BATCH:
            yield from _by_slot(pa.Table.from_batches(held))
            held, rows = [], 0
    if held:
        yield from _by_slot(pa.Table.from_batches(held))
    spare_modules()


def _by_slot(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """The rows as SENT."""
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
        for counted in pc.value_counts(rows["computation"]):
            if counted["counts"].as_py() >= NAMED_ROWS:
                mine = pc.equal(rows["computation"], counted["values"])
                yield _sent(slot, counted["values"].as_py(), rows.filter(mine))
                rows = rows.filter(pc.invert(mine))
    if rows.num_rows:
        yield _sent(slot, None, rows)


def _sent(slot: int, computation: str | None, table: pa.Table) -> pa.RecordBatch:
    columns = [
        pa.array([slot], pa.int32()),
        pa.array([computation], pa.string()),
        pa.array([pack_table(table)], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SENT)


# This part runs in the tasks that take slots.


def _gather(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The received blobs, sorted by slot and computation, as LAID: small slots are put together."""
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
                yield _laid(NO_EVENTS, "", _unpacked(blob))
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
            yield from _laid_whole(held)
            held, rows = [], 0
        held += whole
        rows += size
    yield from _laid_whole(held)
    spare_modules()


def _gather_named(
    name: str, blobs: Iterator[pa.BinaryScalar], whole: Sequence[pa.Table]
) -> Generator[pa.RecordBatch, None, list[pa.Table]]:
    """A computation that has blobs of its own, and perhaps a few rows among the others of its slot.

    Returns the rows of the slot that belong into blobs of whole computations.
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
            yield _laid(LARGE, name, table.filter(is_mine))
    for blob in chain(first, blobs):
        columns = [pa.array([LARGE]), pa.array([name]), pa.array([blob])]
        yield pa.RecordBatch.from_arrays(columns, schema=LAID)
    return others


def _unpacked(blob: pa.BinaryScalar) -> pa.Table:
    return unpack_table(blob.as_buffer())


def _laid_whole(tables: Sequence[pa.Table]) -> Iterator[pa.RecordBatch]:
    if sum(table.num_rows for table in tables):
        for table in whole_computations(pa.concat_tables(tables).combine_chunks()):
            yield _laid(ROWS, "", table)


def _laid(kind: str, computation: str, table: pa.Table) -> pa.RecordBatch:
    columns = [pa.array([kind]), pa.array([computation]), pa.array([pack_table(table)], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=LAID)
