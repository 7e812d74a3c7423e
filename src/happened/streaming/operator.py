"""Causal delivery as an operator of Spark Structured Streaming.

In     a streaming DataFrame of messages: a column of the destination, the columns of the Rule, any others
Out    the same columns and `delivery` (1, 2, … at each destination), `status`, `reason`; append mode
State  per destination, on RocksDB: a head (counts, timer, directories) and numbered pages, of which a batch
       reads and writes only some. Its size is proportional to the held messages plus the senders (ByProtocol)
       or the last `remember` ids (ByIds), not to the number of messages delivered
Time   processing time: the clock of the machine that runs the batch

    status      delivery  reason
    delivered   number    –
    late        number    – ; a message that waited for it was delivered before
    violated    number    the cause that had not come when patience ended
    dead        –         the same, with after_patience="dead-letter"
    corrupt     –         what is wrong with the row
    held        –         the cause it waits for; only with report_held, once, in the batch it arrived in

A shuffle does not preserve order, but a batch that is run again after a crash must give the same rows. So the
rows of a destination are sorted within a batch by the column `arrived`, and by id or frame where that is
equal or not given. If `arrived` grows from batch to batch, the output does not depend on where batches end.
"""

import gc
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from ..core.errors import CausalityError, RemoteProtocolError
from ..spark.live.state_store import StatePages, use_rocksdb
from ..spark.session import supply
from .arrivals import Rule
from .destination import DEAD, EMPTY, HELD, DeliveryOutcome, Destination, Head
from .reached import Arrived

CORRUPT = "corrupt"
ADDED = {"delivery": T.LongType(), "status": T.StringType(), "reason": T.StringType()}
REMEMBER = 65536
HEAD = "delivered long, held long, oldest long, timer long, directories binary"


def deliver(
    stream: DataFrame,
    rule: Rule,
    *,
    patience: float | None,
    after_patience: str = "release",
    destination: str = "destination",
    arrived: str | None = None,
    remember: int = REMEMBER,
    report_held: bool = False,
) -> DataFrame:
    """The messages of a stream in causal order at each destination.

    patience        seconds that a message waits for a cause that does not come; None: without limit, and
                    `held` lists such messages
    after_patience  what to do with the message then: "release" delivers it marked as violated, "dead-letter"
                    delivers neither this message nor those that wait for it
    arrived         a column of numbers with the order of arrival, such as an offset or a sequence number
    remember        ByIds: at least how many delivered ids of a destination are remembered. ByProtocol: how
                    many skipped causes are remembered
    report_held     whether the output has rows for messages that are held, too
    """
    if after_patience not in ("release", "dead-letter"):
        raise CausalityError(f'after_patience is "release" or "dead-letter", not {after_patience!r}')
    if patience is not None and patience <= 0:
        raise CausalityError(f"patience is a number of seconds above 0, or None; not {patience!r}")
    if remember < 1:
        raise CausalityError(f"remember is at least 1, not {remember!r}")
    if find_spec("google") is None or find_spec("google.protobuf") is None:
        raise CausalityError("a streaming operator needs protobuf: pip install 'happened[spark]'")
    _check_columns(stream, rule, destination, arrived)
    spark = stream.sparkSession
    supply(spark)
    use_rocksdb(spark)
    names = [destination, *(name for name in stream.columns if name != destination)]
    carried = [_carried(stream.schema[name]) for name in names]
    rows = stream.select(*(each.there for each in carried))
    schema = T.StructType([*rows.schema.fields])
    for name, kind in ADDED.items():
        schema = schema.add(name, kind)
    milliseconds = None if patience is None else max(int(patience * 1000), 1)
    processor = DeliveryProcessor(
        rule, schema.names, milliseconds, after_patience == "release", remember, report_held, arrived
    )
    delivered = rows.groupBy(destination).transformWithStateInPandas(
        processor, schema, "append", "none" if patience is None else "processingTime"
    )
    return delivered.select(*(each.back for each in carried), *ADDED)


class _Carried(NamedTuple):
    """Converts a column before it passes through pandas and the state, and back afterwards."""

    there: Column
    back: Column


def _carried(field: T.StructField) -> _Carried:
    """How to convert a column; numbers and times become text. Pandas would round large integers beside nulls,
    take NaN for null, and can represent neither all times nor which of two equal local times is meant."""
    name, kind = field.name, field.dataType
    column = F.col(f"`{name}`")
    if isinstance(kind, T.LongType | T.DoubleType | T.FloatType | T.TimestampNTZType):
        return _Carried(column.cast("string").alias(name), column.cast(kind).alias(name))
    if isinstance(kind, T.TimestampType):
        back = F.timestamp_micros(column.cast("bigint"))
        return _Carried(F.unix_micros(column).cast("string").alias(name), back.alias(name))
    inside = [*_inside(kind)]
    has_moments = any(isinstance(each, T.TimestampType | T.TimestampNTZType) for each in inside)
    if len(inside) > 1 and (has_moments or _NUMBERS.search(kind.simpleString())):
        if any(isinstance(each, T.MapType) and not isinstance(each.keyType, T.StringType) for each in inside):
            raise CausalityError(
                f"column {name!r} is {kind.simpleString()}: numbers and times in it travel as JSON, whose "
                "maps must have strings as keys: cast the keys, or use map_entries"
            )
        there, back = F.to_json(column, _MOMENTS), F.from_json(column, kind.json(), {"timeZone": "UTC"})
        return _Carried(there.alias(name), back.alias(name))
    return _Carried(column, column)


_NUMBERS = re.compile(r"\b(bigint|double|float)\b")
_MOMENTS = {
    "timeZone": "UTC",  # in UTC no local time occurs twice
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def _inside(kind: T.DataType) -> Iterator[T.DataType]:
    """A type, and all types nested in it."""
    yield kind
    if isinstance(kind, T.ArrayType):
        yield from _inside(kind.elementType)
    elif isinstance(kind, T.MapType):
        yield from _inside(kind.keyType)
        yield from _inside(kind.valueType)
    elif isinstance(kind, T.StructType):
        for field in kind.fields:
            yield from _inside(field.dataType)


def _check_columns(stream: DataFrame, rule: Rule, destination: str, arrived: str | None) -> None:
    types = {each.name: each.dataType.simpleString() for each in stream.schema.fields}
    wanted = {destination: ("string",), **rule.columns}
    if arrived is not None:
        wanted[arrived] = ("bigint", "int")
    for name, allowed in wanted.items():
        if name not in types:
            raise CausalityError(f"the stream has no column {name!r}; it has {', '.join(stream.columns)}")
        if types[name] not in allowed:
            raise CausalityError(
                f"column {name!r} is {types[name]} and must be {' or '.join(allowed)}: cast it first"
            )
    is_exact = stream.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
    for name in types:
        added = name if is_exact else name.lower()
        if added in ADDED:
            spelt = "" if added == name else f" as {name!r}"
            raise CausalityError(
                f"deliver() adds a column {added!r}, which the stream has{spelt}: rename that"
            )


@dataclass(eq=False)
class DeliveryProcessor(StatefulProcessor):
    """Runs a Destination for each key; `names` are the columns of the output, the destination first."""

    rule: Rule
    names: list[str]
    patience: int | None
    release: bool
    remember: int
    report_held: bool
    arrived: str | None

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._head = handle.getValueState("head", HEAD)
        self._pages = handle.getMapState("pages", "page long", "data binary")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        frames = list(rows)
        frame = frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)
        now = timerValues.getCurrentProcessingTimeInMs()
        if now < 0:  # the query runs in the mode without timers
            now = time.time_ns() // 1_000_000
        with _no_collection():
            tables = list(self._arrived_at(key[0], frame, now))
        yield from tables

    def _arrived_at(self, name: Any, frame: pd.DataFrame, now: int) -> Iterator[pd.DataFrame]:
        """Let the destination of this name take these rows; yields its output."""
        arrivals, out = self._read(name, frame)
        if name is None:
            yield from self._table(frame, out)
            return
        destination = self._destination()
        out += destination.arrive(arrivals, now)
        yield from self._finish(destination, frame, out, now)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        assert self.patience is not None
        destination = self._destination()
        destination.timer = 0
        now = timerValues.getCurrentProcessingTimeInMs()
        with _no_collection():
            out = destination.expire(now, self.patience, release=self.release)
        yield from self._finish(destination, pd.DataFrame(columns=self.names[:-3]), out, now)

    def close(self) -> None:
        pass

    def _destination(self) -> Destination:
        stored = self._head.get()
        head = EMPTY if stored is None else Head._make(stored)
        return Destination(self.rule.kind, StatePages(self._pages), head, remember=self.remember)

    def _read(
        self, destination: Any, frame: pd.DataFrame
    ) -> tuple[list[tuple[Arrived, int]], list[DeliveryOutcome]]:
        """The messages of valid rows, by arrival, with their places in the frame; and the corrupt rows."""
        columns = [frame[name].tolist() for name in self.rule.columns]
        arrivals: list[tuple[Arrived, int]] = []
        corrupt: list[DeliveryOutcome] = []
        read = self.rule.arrival
        rows = list(zip(*columns, strict=True))
        for place in self._order(frame, columns[0]):
            try:
                if destination is None:
                    raise RemoteProtocolError("a message without a destination")
                arrivals.append((read(destination, rows[place]), place))
            except RemoteProtocolError as error:
                corrupt.append(DeliveryOutcome(place, None, CORRUPT, str(error)))
        return arrivals, corrupt

    def _order(self, frame: pd.DataFrame, names: list[Any]) -> list[int]:
        """The places of rows in the frame, sorted by arrival, then by id or frame; rows without one last."""
        order = [place for place, name in enumerate(names) if name is not None]
        order.sort(key=names.__getitem__)
        if len(order) < len(names):
            order += [place for place, name in enumerate(names) if name is None]
        if self.arrived is not None:
            came = [-1 if pd.isna(number) else int(number) for number in frame[self.arrived].tolist()]
            order.sort(key=came.__getitem__)
        return order

    def _finish(
        self, destination: Destination, frame: pd.DataFrame, out: list[DeliveryOutcome], now: int
    ) -> Iterator[pd.DataFrame]:
        """Set the timer, write the state, return the rows."""
        new = destination.new_rows()
        columns = [column.to_numpy(object) for _, column in frame.items()] if new else []
        self._set_timer(destination, now)
        head = destination.flush(
            lambda row: tuple([column[row] for column in columns]) if type(row) is int else row
        )
        self._head.update(tuple(head))
        if self.report_held:
            out = out + [DeliveryOutcome(entry.row, None, HELD, cause) for entry, cause in new]
        yield from self._table(frame, out)

    def _set_timer(self, destination: Destination, now: int) -> None:
        if self.patience is None:
            return
        fires = destination.next_timer(now, self.patience)
        if fires and (not destination.timer or fires < destination.timer):
            if destination.timer:
                self._handle.deleteTimer(destination.timer)
            self._handle.registerTimer(fires)
            destination.timer = fires

    def _table(self, frame: pd.DataFrame, out: list[DeliveryOutcome]) -> Iterator[pd.DataFrame]:
        if not out:
            return
        rows, numbers, statuses, _ = zip(*out, strict=True)
        reasons = [None if outcome.cause is None else self._reason(outcome) for outcome in out]
        delivery, status, reason = self.names[-3:]
        # All columns are passed at once: adding one to a table costs as much as copying all of its rows.
        table = dict(zip(self.names[:-3], _taken(frame, rows), strict=True))
        table[delivery] = pd.array(numbers, dtype="Int64")
        table[status], table[reason] = np.array(statuses, object), np.array(reasons, object)
        yield pd.DataFrame(table, copy=False)

    def _reason(self, outcome: DeliveryOutcome) -> str:
        return str(outcome.cause) if outcome.status == CORRUPT else self.rule.named(outcome.cause)


def _taken(frame: pd.DataFrame, rows: Sequence[Any]) -> list[Any]:
    """The columns of these rows, each of which is a place in the frame or a row from the state."""
    places = np.array([row for row in rows if type(row) is int], np.intp)
    if len(places) == len(rows):
        return [_values(column).take(places) for _, column in frame.items()]
    is_here = np.array([type(row) is int for row in rows], bool)
    stored = zip(*(row for row in rows if type(row) is not int), strict=True)
    taken = []
    for (_, column), others in zip(frame.items(), stored, strict=True):
        values = np.empty(len(rows), object)
        values[is_here] = column.to_numpy(object)[places]
        values[~is_here] = np.fromiter(others, object, len(others))  # the values may be lists of equal length
        taken.append(values)
    return taken


def _values(column: "pd.Series[Any]") -> Any:
    return column.to_numpy() if isinstance(column.dtype, np.dtype) else column.array


@contextmanager
def _no_collection() -> Iterator[None]:
    """Runs without the garbage collector: a batch makes many small objects and no cycles, and looking for
    cycles takes an eighth of its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def to_tables(ordered: DataFrame, *, deliveries: str, dead_letters: str, checkpoint: str) -> DataStreamWriter:
    """A writer of the output of `deliver` into two tables; call `.trigger(…)` and `.start()` as usual.

    Each table is a Parquet directory with a part `batch=N` for each micro-batch. `deliveries` gets the rows
    with a delivery number; `dead_letters` the others, with the missing cause or what is wrong with the row. A
    batch that is run again after a crash overwrites its parts with the same rows, so nothing is lost or
    repeated. Rows that only report held messages are left out: `held` lists those.
    """
    lacking = [name for name in ADDED if name not in ordered.columns]
    if lacking or not ordered.isStreaming:
        raise CausalityError(
            "to_tables takes the stream that deliver() returns"
            + (f": {lacking[0]!r} is missing" if lacking else "")
        )
    if deliveries.rstrip("/") == dead_letters.rstrip("/"):
        raise CausalityError(f"deliveries and dead letters need two directories, not {deliveries!r} twice")
    supply(ordered.sparkSession)

    def write(batch: DataFrame, number: int) -> None:
        # Without persist, Spark would run the operator once for each table.
        rows = batch.persist()
        try:
            for place, kept in (
                (deliveries, F.col("delivery").isNotNull()),
                (dead_letters, F.col("status").isin(DEAD, CORRUPT)),
            ):
                part = rows.where(kept)
                if number == 0 or not part.isEmpty():  # the first batch creates the table
                    part.write.mode("overwrite").parquet(f"{place.rstrip('/')}/batch={number}")
        finally:
            rows.unpersist()

    return ordered.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
