"""Traces as they are being written, as a source of Spark: `spark.readStream.format("happened").load(DIR)`.

In     a directory of Parquet parts or JSON lines that appear and grow: the runtime's --trace directories,
       what `happened import` leaves, or one file of JSON lines
Out    events, with the columns of a trace. A row that is no event, which `happened stream` would quarantine,
       ends the query, or is left out with malformed=skip (else: fail). With the option stretches=true, the
       parts of files (name, begin, end) instead, for whoever reads them without Spark's help
Limit  maxBytesPerTrigger: about so many bytes of files in a batch; without it, all there are
End    ended=true: nothing is being written any more, so that a last line counts although nothing ends it

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
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ...core.errors import CausalityError, TraceFormatError
from ...trace.schema import SCHEMA
from .trace_tail import Stretch, TraceTail

STRETCHES = "name string, begin long, end long"


class TraceSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "happened"

    def schema(self) -> StructType | str:
        return STRETCHES if _is_true(self.options, "stretches") else from_arrow_schema(SCHEMA)

    def streamReader(self, schema: StructType) -> "TraceReader":
        where = self.options.get("path")
        if not where:
            raise CausalityError('format("happened") reads a path: .load("DIRECTORY")')
        limit = self.options.get("maxBytesPerTrigger")
        if limit is not None and not (limit.isdecimal() and int(limit) > 0):
            raise CausalityError(f"maxBytesPerTrigger is a number of bytes above 0, not {limit!r}")
        malformed = self.options.get("malformed", "fail")
        if malformed not in ("fail", "skip"):
            raise CausalityError(f'malformed is "fail" or "skip", not {malformed!r}')
        stretches, ended = (_is_true(self.options, name) for name in ("stretches", "ended"))
        skip = malformed == "skip"
        return TraceReader(where, None if limit is None else int(limit), stretches, ended=ended, skip=skip)


def _is_true(options: Mapping[str, str], name: str) -> bool:
    given = options.get(name, "false").lower()
    if given not in ("true", "false"):
        raise CausalityError(f'{name} is "true" or "false", not {given!r}')
    return given == "true"


class _Part(InputPartition):
    def __init__(self, stretch: Stretch) -> None:
        self.stretch = stretch


class TraceReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`skip`: rows that are no events are left out."""

    def __init__(
        self, where: str, limit: int | None, stretches: bool, *, ended: bool = False, skip: bool = False
    ) -> None:
        self._where = where
        self._ended = ended
        self._skip = skip
        self._limit = limit
        self._stretches = stretches
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self._limit is None else ReadMaxBytes(self._limit)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        return self._tail().latest(start, most, self._target)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._tail().latest({})

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [_Part(stretch) for stretch in self._tail().stretches(start, end)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, _Part)
        if self._stretches:
            yield tuple(partition.stretch)
            return
        events, malformed = self._tail().split(partition.stretch).read()
        if malformed.num_rows and not self._skip:
            name, begin, end = partition.stretch
            raise TraceFormatError(
                f"{malformed.num_rows:,} rows between its bytes {begin:,} and {end:,} are no events, as "
                f'{malformed["reason"][0]}. Leave such rows out by .option("malformed", "skip")',
                file=name,
            )
        yield from events.to_batches()

    def _tail(self) -> TraceTail:
        """Anew each time: the reader travels to executors, and the directory may not be there yet."""
        return TraceTail(self._where, ended=self._ended)
