"""Order questions about computations that are still running, as an operator of Spark Structured Streaming.

In     a streaming DataFrame of events, or of rows that trace_source packed
Out    a streaming DataFrame of (table, rows), rows being some rows of that table as Arrow's IPC stream;
       `rows_of` makes a typed frame of one table. Append mode
State  in RocksDB, by bucket of computations (bucket.py). Proportional to the rows of the last `retire`
Time   a computation is finished when nothing of it came for `retire`: of processing time, as Spark notes it
       with the batch, so that a batch that runs again after a crash does the same; or of event time, when
       the watermark is `retire` past the latest event that came with its last rows. A row behind the
       watermark is taken where its computation is kept; otherwise it is late, and quarantined as such

A state key for each computation would cost several round trips between Python and the JVM, and a pandas
frame, per computation and batch: minutes for 100,000 computations. So rows are packed as Arrow before the
shuffle, one blob for a bucket and a partition, and a key is a bucket; within it everything is vectorised.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ...causality.live import Rules
from ...causality.live_union import EVENTS, PROCESSES, QUESTIONS
from ...causality.predecessors import PREDECESSORS
from ...causality.questions import Answers
from ...causality.questions.order import LOST_CAUSES, VIOLATIONS
from ...causality.questions.stamp import STAMPS
from ...core.errors import CausalityError
from ...trace.schema import QUARANTINE, SCHEMA
from ..event_rows import UNREADABLE, sort_out_unread
from ..splits import padded, sort_out
from ..storage import spark_schema
from ..tasks import spare_modules, together, unpack_table
from .bucket import Bucket
from .live_parts import AsBytes, Outlet
from .state_store import StatePages, use_rocksdb
from .trace_source import END, EVENT_ROWS, PACKED, UNUSABLE, packed_rows

try:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
except ImportError as error:  # PySpark 3.5
    raise ImportError(
        "streams need transformWithState, which PySpark has from 4.0 on: install pyspark>=4.0"
    ) from error

TIME = SCHEMA.field("time")
NANOSECONDS = 1_000_000  # to a millisecond
LATE = "is late: it is behind the watermark, and its computation was finished, or none of it came in time"

TOTALS = pa.schema([("name", pa.string()), ("count", pa.int64())])
"""What a bucket adds to totals in a batch: those of the questions, `duplicates`, `quarantined`, `arrived`;
and `held`, `live` and `state_bytes` as changes of rows held, computations kept and bytes of state."""

TABLES = {
    "stamps": STAMPS,
    "processes": PROCESSES,
    "predecessors": PREDECESSORS,
    "violations": VIOLATIONS,
    "lost_causes": LOST_CAUSES,
    "quarantine": QUARANTINE,
    "totals": TOTALS,
}
OF_QUESTION = {
    "stamp": ("stamps", "processes"),
    "predecessors": ("predecessors",),
    "order": ("violations", "lost_causes"),
}
ALWAYS = ("quarantine", "totals")

CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
BUCKETS_PER_PARTITION = 2
"""Of the shuffle. More buckets share the work more evenly, and each costs some milliseconds in a batch."""

MOST_BYTES = 64 << 20
"""Bytes of rows that a task packs at once."""


def tables_of(questions: Collection[str]) -> dict[str, pa.Schema]:
    """The tables that answer these questions."""
    unknown = [question for question in questions if question not in OF_QUESTION]
    if unknown:
        raise CausalityError(
            f"{unknown[0]!r} is not answered by a stream; ask {', '.join(OF_QUESTION)}, or use analyze()"
        )
    names = [name for question in questions for name in OF_QUESTION[question]]
    return {name: TABLES[name] for name in (*names, *ALWAYS)}


def buckets_of(spark: SparkSession) -> int:
    """How many buckets the computations of a new query are divided into. A resumed query needs the same
    number."""
    return BUCKETS_PER_PARTITION * int(spark.conf.get("spark.sql.shuffle.partitions", "200") or 200)


def answered(
    packed: DataFrame,
    rules: Rules,
    questions: Collection[str] = QUESTIONS,
    *,
    outlet: Outlet | None = None,
    event_time: bool = False,
) -> DataFrame:
    """The operator on packed rows; a row of the frame is what `outlet` makes of answers, else their bytes.

    `rules.retire` is in milliseconds. With `event_time`, the rows have the column `time`, and the frame they
    were made of has a watermark.
    """
    if find_spec("google") is None or find_spec("google.protobuf") is None:
        raise CausalityError("a streaming operator needs protobuf: pip install 'happened[spark]'")
    spark = packed.sparkSession
    if use_rocksdb(spark):
        spark.conf.set(CHANGELOG, "true")  # otherwise each batch uploads all files that changed
    outlet = outlet or AsBytes()
    processor = Computations(rules, tuple(questions), tuple(tables_of(questions)), outlet, event_time)
    mode = "eventTime" if event_time else "processingTime"
    return packed.groupBy("bucket").transformWithStateInPandas(processor, outlet.schema, "append", mode)


def pack(events: DataFrame, buckets: int, *, event_time: bool = False) -> DataFrame:
    """The rows of a frame of events, packed by bucket; rows that are not events are packed as quarantine."""
    schema = EVENTS.append(TIME) if event_time else EVENTS
    columns = [name for name in (*schema.names, UNREADABLE) if name in events.columns]

    def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in together(batches, MOST_BYTES, lambda batch: batch.nbytes):
            yield packed_rows(*_sorted_out(table, schema), buckets)
        spare_modules()

    return events.select(*columns).mapInArrow(packed, PACKED)


def rows_of(answers: DataFrame, name: str) -> DataFrame:
    """One table of the operator's output, streaming or not, with its columns."""

    def unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for blob in batch["rows"]:
                yield from unpack_table(blob.as_buffer()).to_batches()

    schema = spark_schema(TABLES[name])
    return answers.where(F.col("table") == name).select("rows").mapInArrow(unpacked, schema)


def _sorted_out(table: pa.Table, schema: pa.Schema) -> tuple[pa.Table, pa.Table]:
    """Splits rows into events and rows of QUARANTINE."""
    table, unread = sort_out_unread(table)
    events, quarantined = sort_out(padded(table, schema))
    return events, pa.concat_tables([unread, quarantined])


@dataclass(eq=False)
class Computations(StatefulProcessor):
    """Runs a Bucket for each key."""

    rules: Rules
    questions: tuple[str, ...]
    tables: tuple[str, ...]
    outlet: Outlet
    event_time: bool

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._head = handle.getValueState("head", "timer long, data binary")
        self._pages = handle.getMapState("pages", "page int", "data binary")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        given: dict[str, list[pa.Table]] = {EVENT_ROWS: [], UNUSABLE: []}
        is_last = False
        for frame in rows:
            for what, blob in zip(frame["what"], frame["rows"], strict=True):
                if what == END:
                    is_last = True
                else:
                    given[what].append(unpack_table(blob))
        now = self._now(timerValues)
        bucket, timer = self._bucket()
        answers = Answers()
        if given[UNUSABLE]:
            unusable = pa.concat_tables(given[UNUSABLE])
            answers.add("quarantine", unusable)
            answers.totals.update(quarantined=unusable.num_rows, arrived=unusable.num_rows)
        if given[EVENT_ROWS]:
            events = pa.concat_tables(given[EVENT_ROWS])
            answers.totals["arrived"] += events.num_rows
            if self.event_time:
                events = _without_late(events, bucket, now, answers)
                latest = pc.max(events[TIME.name]).as_py()
                now = max(now, (latest or 0) // NANOSECONDS)
            answers.join(bucket.arrive(events, now))
        if is_last:
            answers.join(bucket.end(now))
            answers.totals["ended"] += 1
        yield from self._close(f"{key[0]:05d}", bucket, timer, answers)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        bucket, _ = self._bucket()
        answers = bucket.expire(self._now(timerValues))
        # Rows of the same bucket may have been answered before, in the same batch.
        yield from self._close(f"{key[0]:05d}-ended", bucket, 0, answers)

    def close(self) -> None:
        spare_modules()

    def _now(self, timers: Any) -> int:
        """The current time in milliseconds: the watermark, or the time of the batch."""
        now = timers.getCurrentWatermarkInMs() if self.event_time else timers.getCurrentProcessingTimeInMs()
        return int(now)

    def _bucket(self) -> tuple[Bucket, int]:
        """The bucket of the current key, and when its timer fires; 0 if it has none."""
        stored = self._head.get()
        timer, head = (0, None) if stored is None else (stored[0], bytes(stored[1]))
        return Bucket(StatePages(self._pages), head, self.rules, self.questions), timer

    def _close(self, name: str, bucket: Bucket, timer: int, answers: Answers) -> Iterator[pd.DataFrame]:
        """Set the timer, keep the head, return the rows."""
        head, due = bucket.close(answers), bucket.head.due
        if timer and due != timer:
            self._handle.deleteTimer(timer)
        if due is not None and due != timer:
            self._handle.registerTimer(due)
        if head is None:
            self._head.clear()
        else:
            self._head.update((due, head))
        totals = {name: count for name, count in answers.totals.items() if count}
        columns = [pa.array([*totals], pa.string()), pa.array([*totals.values()], pa.int64())]
        answers.add("totals", pa.table(columns, schema=TOTALS))
        wanted = [(table, rows) for table, rows in answers.filled() if table in self.tables]
        given = self.outlet.rows(name, wanted)
        if given:
            yield pd.DataFrame(given, columns=[field.split()[0] for field in self.outlet.schema.split(", ")])


def _without_late(events: pa.Table, bucket: Bucket, watermark: int, answers: Answers) -> pa.Table:
    """Quarantine the rows behind the watermark whose computation is not kept."""
    behind = pc.fill_null(pc.less(events[TIME.name], watermark * NANOSECONDS), False)
    late = pc.and_(behind, pc.invert(bucket.knows(events["computation"])))
    if not pc.any(late).as_py():
        return events
    rows = events.filter(late)
    event = pc.binary_join_element_wise(rows["process"], rows["seq"].cast(pa.string()), "#")
    reason = pc.binary_join_element_wise(event, LATE, " ")
    answers.add("quarantine", pa.table([rows["computation"], reason], schema=QUARANTINE))
    answers.totals.update(quarantined=rows.num_rows, late=rows.num_rows)
    return events.filter(pc.invert(late))
