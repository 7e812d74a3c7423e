"""Traces as they are being written, as a source of Spark: `spark.readStream.format("happened").load(DIR)`.

In     a directory of Parquet parts or JSON lines that appear and grow: the runtime's --trace directories,
       what `happened import` leaves, or one file of JSON lines
Out    rows with the columns of a trace, and `_unreadable`: why a line is not an event, null of the others.
       `hs.stream` quarantines what is not an event. With malformed=fail such a row ends the query, and with
       malformed=skip it is left out; there is no `_unreadable` then. With the option buckets=N, the events
       packed by bucket, for `happened stream`
Limit  maxBytesPerTrigger: about so many bytes of files in a batch; without it, all there are. PySpark 4.0
       and 4.1 have no such limits: there a batch has all there is
End    ended=true: nothing is being written any more, so that a last line counts although nothing ends it.
       With buckets=N, the last row of each bucket is a mark that the input has ended

An offset says how far each file has been read: {name: bytes}. Of a Parquet part or a compressed file that is
nothing or all of it, since such files appear whole; of JSON lines it is the end of a line, or of the file if
the trace has ended. Files that are gone are left out of it.

Assumes    files only appear and lines are only added. A file that shrank, or was removed before it was read,
           is an error that names it: its rows are lost.

Register it once: `spark.dataSource.register(TraceSource)`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ...core.errors import CausalityError, TraceFormatError
from ...trace.location import Location, inside, is_json, is_part
from ...trace.schema import SCHEMA
from ...trace.store import AnyPath, StorePath, any_path, size_of
from ..event_rows import ROWS, with_reasons
from ..splits import Groups, LineRange, Split
from ..tasks import pack_table, packed_by_bucket, spare_modules
from ..versions import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow, require

Position = dict[str, int]

SEARCHED = 1 << 16
"""Bytes at the end of a file that are searched for the end of a line."""


class FileRange(NamedTuple):
    """Part of a file."""

    name: str
    begin: int
    end: int


class TraceTail:
    """A directory, or a file, at a path or URL.

    ended   nothing is being written: a last line counts although nothing ends it
    """

    def __init__(self, where: str, *, ended: bool = False) -> None:
        self._ended = ended
        given = any_path(where)
        self.root: AnyPath = given / "trace" if (given / "trace").is_dir() else given

    @property
    def name(self) -> str:
        """The same text for one trace, wherever it is called from."""
        return str(self.root if isinstance(self.root, StorePath) else self.root.absolute())

    def latest(
        self, seen: Mapping[str, int], most_bytes: int | None = None, up_to: Mapping[str, int] | None = None
    ) -> Position:
        """The position to read to: about `most_bytes` beyond `seen`, at least one file, and the same share of
        the unread part of each file of lines, so that processes which wait for each other advance together.
        Files that appear whole are read in the order of their names. Nothing beyond `up_to` is read."""
        files = self._files()
        if up_to is not None:
            files = {name: path for name, path in files.items() if name in up_to}
        sizes = {name: self._size(path, seen.get(name, 0)) for name, path in files.items()}
        if up_to is not None:
            sizes = {name: min(size, up_to[name]) for name, size in sizes.items()}
        unread = sum(sizes.values()) - sum(seen.get(name, 0) for name in files)
        position: Position = {}
        left = unread if most_bytes is None else min(most_bytes, unread)
        share = left / unread if unread else 0.0
        for name, path in files.items():
            begin, size = seen.get(name, 0), sizes[name]
            if _grows(path):
                end = self._line_end(path, begin, begin + math.ceil((size - begin) * share), size)
            else:
                end = size if left > 0 else begin
            if end:
                position[name] = end
            left -= end - begin
        return position

    def _size(self, path: AnyPath, read: int) -> int:
        size = size_of(path)
        if size < read:
            raise TraceFormatError(
                f"has {size} bytes and {read} of it were read: files of a trace only grow. Start anew "
                "with another checkpoint and --out",
                file=str(path),
            )
        return size

    def stretches(self, begin: Mapping[str, int], end: Mapping[str, int]) -> list[FileRange]:
        """What lies between two positions."""
        return [
            FileRange(name, begin.get(name, 0), to) for name, to in end.items() if to > begin.get(name, 0)
        ]

    def split(self, stretch: FileRange) -> Split:
        """Read a stretch; TraceFormatError if its file is gone."""
        path = self.root if stretch.name == "." else self.root / stretch.name
        if not path.is_file():
            raise TraceFormatError(
                "was there when the batch was planned and is gone: put it back, and start again from the "
                "same checkpoint",
                file=str(path),
            )
        if not is_json(path):
            return Split((Groups(path, None, Location(self.root, ()).partition(path)),), None)
        stop = stretch.end if _grows(path) else None
        return Split((LineRange(path, stretch.begin, stop),), None)

    def _line_end(self, path: AnyPath, begin: int, wanted: int, size: int) -> int:
        if self._ended and wanted == size:
            return size
        end = _line_end(path, begin, wanted, size)
        return size if self._ended and end == begin else end

    def _files(self) -> dict[str, AnyPath]:
        if self.root.is_file():
            return {".": self.root}
        found: list[AnyPath] = [*self.root.rglob("*")]
        named = {str(inside(self.root, path)): path for path in found if _is_part(self.root, path)}
        return dict(sorted(named.items()))


def _is_part(root: AnyPath, path: AnyPath) -> bool:
    return is_part(inside(root, path)) and (path.suffix == ".parquet" or is_json(path)) and path.is_file()


def _grows(path: AnyPath) -> bool:
    return is_json(path) and path.suffix != ".gz"


def _line_end(path: AnyPath, begin: int, wanted: int, size: int) -> int:
    """The last end of a line up to `wanted`; if the line is longer, its end; `begin` if no line ends yet."""
    with path.open("rb") as file:
        at = wanted
        while at > begin:
            step = max(begin, at - SEARCHED)
            file.seek(step)
            found = file.read(at - step).rfind(b"\n")
            if found >= 0:
                return step + found + 1
            at = step
        at = wanted
        while at < size:
            file.seek(at)
            piece = file.read(SEARCHED)
            if not piece:
                break
            if (found := piece.find(b"\n")) >= 0:
                return at + found + 1
            at += len(piece)
    return begin


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


@dataclass(eq=False)
class TraceReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """
    limit       bytes of files in a batch
    buckets     pack the events for this many buckets; None: one row for each event
    """

    where: str
    limit: int | None
    buckets: int | None = None
    ended: bool = field(default=False, kw_only=True)
    malformed: str = field(default="fail", kw_only=True)
    target: dict[str, int] | None = field(default=None, init=False)

    def initialOffset(self) -> dict[str, int]:
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self.limit is None else ReadMaxBytes(self.limit)

    def latestOffset(
        self, start: dict[str, int] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, int]:
        most: int | None = getattr(limit, "max_bytes", None)
        begin = start or {}
        if ENDED in begin:
            return begin
        tail = self._tail()
        position = tail.latest(begin, most, self.target)
        if self.ended and self.buckets is not None:
            all_there_is = tail.latest({}) if self.target is None else self.target
            if all(position.get(name, 0) >= size for name, size in all_there_is.items()):
                position[ENDED] = 1
        return position

    def prepareForTriggerAvailableNow(self) -> None:
        self.target = self._tail().latest({})

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(stretch) for stretch in self._tail().stretches(start, end)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        stretch: FileRange = partition.value
        if stretch.name == ENDED:
            assert self.buckets is not None
            yield end_of(self.buckets)
            return
        split = self._tail().split(stretch)
        if self.buckets is not None:
            from ...causality.live_union import COLUMNS  # as in packed_rows

            events, quarantined = split.read(COLUMNS)
            yield packed_rows(events.select(COLUMNS), quarantined, self.buckets)
            spare_modules()
            return
        if self.malformed == "quarantine":
            yield from with_reasons(*split.read_all()).to_batches()
            return
        events, malformed = split.read()
        if malformed.num_rows and self.malformed == "fail":
            name, begin, end = stretch
            raise TraceFormatError(
                f"{malformed.num_rows:,} rows between its bytes {begin:,} and {end:,} are not events, as "
                f'{malformed["reason"][0]}. Leave such rows out by .option("malformed", "skip")',
                file=name,
            )
        yield from events.to_batches()

    def _tail(self) -> TraceTail:
        """Created each time: the reader travels to executors, and the directory may not exist yet."""
        return TraceTail(self.where, ended=self.ended)


PACKED = "bucket int, what string, rows binary"
EVENT_ROWS, UNUSABLE, END = "events", "quarantine", "end"
"""The content of a packed row: events, rows of QUARANTINE, or a mark that the input has ended."""


def packed_rows(events: pa.Table, quarantined: pa.Table, buckets: int) -> pa.RecordBatch:
    """Events by bucket, and rows of QUARANTINE, as rows of PACKED."""
    # Kernels take a second to import, and the processes in which Spark plans a source need none.
    from ...causality.names import encode_names, hashes

    codes, names = encode_names(events["computation"])
    bucket = (hashes(names) % np.uint64(buckets)).astype(np.int32)[codes]
    rows = [(k, EVENT_ROWS, blob) for k, blob in packed_by_bucket(events, bucket)]
    if quarantined.num_rows:
        rows.append((0, UNUSABLE, pack_table(quarantined)))
    return _batch(rows)


def end_of(buckets: int) -> pa.RecordBatch:
    """For each bucket, a mark that the input has ended."""
    return _batch([(k, END, b"") for k in range(buckets)])


def _batch(rows: list[tuple[int, str, bytes]]) -> pa.RecordBatch:
    numbers, kinds, blobs = ([row[k] for row in rows] for k in range(3))
    columns = [pa.array(numbers, pa.int32()), pa.array(kinds, pa.string()), pa.array(blobs, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=["bucket", "what", "rows"])
