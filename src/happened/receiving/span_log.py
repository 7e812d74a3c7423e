"""Writes export requests to disk before they are answered.

In    requests, in either encoding
Out   files `spans-000000001.otlp` (each message after its length in four bytes) and `….jsonl` (a document in
      each line): what the collector's file exporter writes, so that `happened import` reads the directory

Promises   when `append` has returned, neither a kill nor a loss of power loses the request; concurrent
           requests share a sync. One process at a time writes to a directory.
Assumes    a local file system that keeps what was synced.

A new file begins at MOST_BYTES, when the present one was begun before the time that is kept, at each start of
the receiver, and after a failed write. A killed receiver may leave half a request, which was never confirmed:
the next start cuts it off.
"""

import fcntl
import json
import math
import os
import struct
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ..core.errors import CausalityError
from ..trace.atomic import whole_file
from ..trace.parts import parquet_settings
from .export_requests import Encoding

MOST_BYTES = 16 << 20
SUFFIXES = {Encoding.PROTOBUF: ".otlp", Encoding.JSON: ".jsonl"}
ENCODINGS = {suffix: encoding for encoding, suffix in SUFFIXES.items()}


class Kept(NamedTuple):
    """A request in the log; `arrived` is when its file was last written to, in seconds since 1970."""

    arrived: float
    encoding: Encoding
    body: bytes


class SpanLog:
    """The log in a directory, which is created if it does not exist."""

    def __init__(self, folder: Path, *, most_bytes: int = MOST_BYTES) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._most = most_bytes
        self._held = _hold(folder)
        self._lock = threading.Lock()
        self._open: dict[Encoding, _Segment] = {}
        self._begun: dict[Path, float] = {}  # when this process began each of its files
        files = self._files()
        self._number = max((_number(path) for path in files), default=0)
        for encoding, suffix in SUFFIXES.items():
            last = max((path for path in files if path.suffix == suffix), key=_number, default=None)
            if last is not None:
                _mend(last, encoding)

    def append(self, encoding: Encoding, body: bytes) -> None:
        """Return when the request is on disk; OSError if it cannot be written: do not confirm it then."""
        data = framed(encoding, body)
        with self._lock:
            segment = self._open.get(encoding)
            if segment is None or segment.failed or segment.size + len(data) > self._most:
                segment = self._open[encoding] = self._next(encoding, segment)
            ticket = segment.write(data)
        segment.sync(ticket)

    def recent(self, since: float) -> Iterator[Kept]:
        """The requests in files that were last written to at `since` or later, oldest first."""
        written = sorted((path.stat().st_mtime, _number(path), path) for path in self._files())
        for arrived, _, path in written:
            if arrived >= since:
                encoding, data = ENCODINGS[path.suffix], path.read_bytes()
                for begin, end in bounds(data, encoding):
                    yield Kept(arrived, encoding, data[begin:end])

    def begun(self, since: float) -> float:
        """A time that is not after the arrival of any request that `recent` yields."""
        with self._lock:
            return min(
                (self._begun.get(path, 0.0) for path in self._files() if path.stat().st_mtime >= since),
                default=math.inf,
            )

    def forget(self, before: float) -> int:
        """Remove files that were last written to before `before`; returns how many. A present file that was
        begun before that time ends, so that it can be removed later even if few requests come."""
        with self._lock:
            for encoding, segment in [*self._open.items()]:
                if self._begun[segment.path] < before:
                    self._open.pop(encoding).close()
            being_written = {segment.path for segment in self._open.values()}
            old = [
                path for path in self._files() if path not in being_written and path.stat().st_mtime < before
            ]
            for path in old:
                path.unlink()
                self._begun.pop(path, None)
        return len(old)

    def close(self) -> None:
        with self._lock:
            for segment in self._open.values():
                segment.close()
            self._open.clear()
        os.close(self._held)

    def _next(self, encoding: Encoding, before: "_Segment | None") -> "_Segment":
        if before is not None:
            before.close()
        self._number += 1
        segment = _Segment(self._folder / f"spans-{self._number:09d}{SUFFIXES[encoding]}")
        self._begun[segment.path] = segment.path.stat().st_mtime
        return segment

    def _files(self) -> list[Path]:
        return [path for path in self._folder.glob("spans-*") if path.suffix in ENCODINGS]


class _Segment:
    """The file being written. A ticket is the number of bytes the file had after a write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._syncing = threading.Lock()
        self._synced = 0
        self.size = 0
        self.failed = False
        _sync(path.parent)

    def write(self, data: bytes) -> int:
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(self._file, left) :]
        except OSError:
            self.failed = True  # the next request begins another file; the failed write is cut off
            with suppress(OSError):
                os.ftruncate(self._file, self.size)
            raise
        self.size += len(data)
        return self.size

    def sync(self, ticket: int) -> None:
        """Return when everything written up to the ticket is on disk."""
        with self._syncing:
            if self._synced >= ticket:
                return
            if self.failed:
                raise OSError("the file could not be written to; send it again")
            written = self.size
            try:
                os.fsync(self._file)
            except OSError:
                # The system may have dropped data that it could not write: confirm no more of this file.
                self.failed = True
                raise
            self._synced = written

    def close(self) -> None:
        """Sync everything written, also for threads that wait in `sync`; then nothing can be written."""
        with self._syncing:
            try:
                if not self.failed and self._synced < self.size:
                    os.fsync(self._file)
                    self._synced = self.size
            except OSError:
                self.failed = True
            finally:
                os.close(self._file)


def framed(encoding: Encoding, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body if encoding is Encoding.PROTOBUF else body + b"\n"


def bounds(data: bytes, encoding: Encoding) -> Iterator[tuple[int, int]]:
    """(begin, end) of each whole request in a file; no request is empty."""
    at = 0
    while at < len(data):
        if encoding is Encoding.JSON:
            end = data.find(b"\n", at)
            if end < 0:
                return
            yield at, end
            at = end + 1
            continue
        if at + 4 > len(data) or not (size := struct.unpack_from(">I", data, at)[0]):
            return
        if (end := at + 4 + size) > len(data):
            return
        yield at + 4, end
        at = end


def _mend(path: Path, encoding: Encoding) -> None:
    """Cut off a request that a killed receiver left half written."""
    data = path.read_bytes()
    ends = [end for _, end in bounds(data, encoding)]
    whole = (ends[-1] + (encoding is Encoding.JSON)) if ends else 0
    if whole < len(data):
        stamp = path.stat()
        os.truncate(path, whole)
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    if not whole:
        path.unlink()


def _number(path: Path) -> int:
    """The number in a name such as spans-000000001.otlp or part-000000001.parquet."""
    text = path.stem.rpartition("-")[2]
    return int(text) if text.isdecimal() else 0


def _hold(folder: Path) -> int:
    """Lock the directory until this process ends."""
    held = os.open(folder / ".receiving", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        raise CausalityError(
            f"{folder} is being written by another receiver; end that one, or name another directory"
        ) from None
    return held


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


ABOUT = b"happened.settled"
"""The key of a part's metadata {"traces": ids, "since": seconds since 1970}."""


class SettledTrace:
    """Traces that have left the window, written as a trace that grows, which Spark can follow.

    In    computations whose traces have all been silent for as long as the window is; no spans are added to
          them any more, so that their rows are final
    Out   parts `part-000000001.parquet`, …, each complete or absent, and on disk before the next is written;
          their directory is created with the first one

    Promises   a trace is in one part, however the receiver ends: each part names its traces, and the time
               since which the spans of other traces arrived. The next receiver continues with the traces that
               are in the log since that time and in no part.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = max((_number(part) for part in self._parts()), default=0)
        self._waiting: list[tuple[tuple[str, ...], pa.Table]] = []
        self.traces = 0  # settled by this receiver
        self.since = self.known()[1]  # the time from which the next receiver reads the log

    def known(self) -> tuple[list[str], float]:
        """The traces that are in parts, oldest first, and the time since which spans of others arrived."""
        traces: list[str] = []
        since = 0.0
        for part in self._parts():
            about: dict[str, Any] = json.loads(pq.read_metadata(part).metadata[ABOUT])
            traces += about["traces"]
            since = about["since"]
        return traces, since

    def add(self, traces: Iterable[str], rows: pa.Table) -> None:
        """Add rows, and the traces they belong to, to the next part."""
        self._waiting.append((tuple(traces), rows))

    def write(self, since: float) -> None:
        """Write the added rows as a part; OSError if that fails: the rows are kept for the next call."""
        if not self._waiting:
            return
        traces = [trace for each, _ in self._waiting for trace in each]
        table = pa.concat_tables(rows for _, rows in self._waiting).combine_chunks()
        about = {ABOUT: json.dumps({"traces": traces, "since": since}).encode()}
        self._folder.mkdir(parents=True, exist_ok=True)
        with whole_file(self._folder / f"part-{self._number + 1:09d}.parquet") as unfinished:
            settings = parquet_settings(table.schema)
            pq.write_table(table.replace_schema_metadata(about), unfinished, **settings)
            _sync(unfinished)
        _sync(self._folder)
        self._number += 1
        self.since = since
        self.traces += len(traces)
        self._waiting.clear()

    def forget(self, before: float) -> None:
        """Remove parts written before `before`, except the last, which says where to continue."""
        for part in self._parts()[:-1]:
            if part.stat().st_mtime < before:
                part.unlink()

    def _parts(self) -> Sequence[Path]:
        return sorted(self._folder.glob("part-*.parquet"), key=_number)
