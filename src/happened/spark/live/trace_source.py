"""Traces as they are being written, as a source of Spark: `spark.readStream.format("happened").load(DIR)`.

In     a directory of Parquet parts or JSON lines that appear and grow: the runtime's --trace directories,
       what `happened import` leaves, or one file of JSON lines
Out    rows with the columns of a trace, and `_unreadable`: why a line is not an event, null of the others.
       `hs.stream` quarantines what is not an event. With malformed=fail such a row ends the query, and with
       malformed=skip it is left out; there is no `_unreadable` then. With the option buckets=N, the events
       packed by bucket (packed_events), for `happened stream`
Limit  maxBytesPerTrigger: about so many bytes of files in a batch; without it, all there are. PySpark 4.0
       and 4.1 have no such limits: there a batch has all there is
End    ended=true: nothing is being written any more, so that a last line counts although nothing ends it.
       With buckets=N, the last row of each bucket is a mark that the input has ended

Offsets are positions of `trace_tail`. Register it once: `spark.dataSource.register(TraceSource)`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ...core.errors import CausalityError, TraceFormatError
from ...trace.schema import SCHEMA
from ..event_rows import ROWS, with_reasons
from ..read_limits import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from ..tasks import spare_modules
from ..versions import require
from .packed_events import PACKED, end_of, packed_rows
from .trace_tail import FileRange, TraceTail

ENDED = ""
"""The name of the mark that follows the last stretch of a trace that has ended."""

MALFORMED = ("quarantine", "fail", "skip")


class TraceSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "happened"

    def schema(self) -> StructType | str:
        if "buckets" in self.options:
            return PACKED
        return from_arrow_schema(ROWS if self._malformed() == "quarantine" else SCHEMA)

    def _malformed(self) -> str:
        given = self.options.get("malformed", "quarantine")
        if given not in MALFORMED:
            raise CausalityError(f'malformed is "quarantine", "fail" or "skip", not {given!r}')
        return given

    def streamReader(self, schema: StructType) -> "TraceReader":
        where = self.options.get("path")
        if not where:
            raise CausalityError('format("happened") reads a path: .load("DIRECTORY")')
        limit = self.options.get("maxBytesPerTrigger")
        if limit is not None and not (limit.isdecimal() and int(limit) > 0):
            raise CausalityError(f"maxBytesPerTrigger is a number of bytes above 0, not {limit!r}")
        if limit is not None:
            require("a limit of a batch")
        buckets = int(self.options["buckets"]) if "buckets" in self.options else None
        most = None if limit is None else int(limit)
        ended = _is_true(self.options, "ended")
        return TraceReader(where, most, buckets, ended=ended, malformed=self._malformed())


def _is_true(options: Mapping[str, str], name: str) -> bool:
    given = options.get(name, "false").lower()
    if given not in ("true", "false"):
        raise CausalityError(f'{name} is "true" or "false", not {given!r}')
    return given == "true"


class _Part(InputPartition):
    def __init__(self, stretch: FileRange) -> None:
        self.stretch = stretch


class TraceReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """
    buckets     pack the events for this many buckets; None: one row for each event
    """

    def __init__(
        self,
        where: str,
        limit: int | None,
        buckets: int | None = None,
        *,
        ended: bool = False,
        malformed: str = "fail",
    ) -> None:
        self._where = where
        self._ended = ended
        self._malformed = malformed
        self._limit = limit
        self._buckets = buckets
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self._limit is None else ReadMaxBytes(self._limit)

    def latestOffset(
        self, start: dict[str, int] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, int]:
        most: int | None = getattr(limit, "max_bytes", None)
        begin = start or {}
        if ENDED in begin:
            return begin
        tail = self._tail()
        position = tail.latest(begin, most, self._target)
        if self._ended and self._buckets is not None:
            all_there_is = tail.latest({}) if self._target is None else self._target
            if all(position.get(name, 0) >= size for name, size in all_there_is.items()):
                position[ENDED] = 1
        return position

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._tail().latest({})

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [_Part(stretch) for stretch in self._tail().stretches(start, end)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, _Part)
        if partition.stretch.name == ENDED:
            assert self._buckets is not None
            yield end_of(self._buckets)
            return
        split = self._tail().split(partition.stretch)
        if self._buckets is not None:
            from ...causality.live_union import COLUMNS  # as in packed_events

            events, quarantined = split.read(COLUMNS)
            yield packed_rows(events.select(COLUMNS), quarantined, self._buckets)
            spare_modules()
            return
        if self._malformed == "quarantine":
            yield from with_reasons(*split.read_all()).to_batches()
            return
        events, malformed = split.read()
        if malformed.num_rows and self._malformed == "fail":
            name, begin, end = partition.stretch
            raise TraceFormatError(
                f"{malformed.num_rows:,} rows between its bytes {begin:,} and {end:,} are not events, as "
                f'{malformed["reason"][0]}. Leave such rows out by .option("malformed", "skip")',
                file=name,
            )
        yield from events.to_batches()

    def _tail(self) -> TraceTail:
        """Created each time: the reader travels to executors, and the directory may not exist yet."""
        return TraceTail(self._where, ended=self._ended)
