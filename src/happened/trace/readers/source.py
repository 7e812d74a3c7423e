"""A file to import, as numbered lines; it may be compressed, cut off, or not quite UTF-8.

Readers see files only as `Source`, so that lines can also come from a Spark partition. Bytes that are not
UTF-8 are replaced, and a compressed stream that ends too early is read as far as it goes; both are recorded
in `faults`, which is complete once all lines have been read.
"""

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import IO, Any, cast

import pyarrow as pa

from ...core.errors import TraceFormatError
from ..store import AnyPath, size_of
from .draft import QuarantinedRecord, excerpt, left_out

MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
EMPTY, NO_EVENTS = "is empty: no events", "holds no events"
CUT = "the compressed file is cut or damaged"
MOST_LOOKED_AT = 1 << 16  # characters read to detect a format
TYPICAL_RATIO = 12  # uncompressed to compressed size of logs, for either compression
BYTE_ORDER_MARK = "﻿"


@dataclass(slots=True)
class Source:
    """A file as numbered lines; `computation` is the name for records that do not name their computation."""

    file: str
    numbered: Iterable[tuple[int, str]]
    computation: str = ""
    faults: list[QuarantinedRecord] = field(default_factory=list)
    path: AnyPath | None = None  # where the whole file is; None of a part, or of text that is in no file

    def lines(self) -> Iterator[tuple[int, str]]:
        """(number, text) of every line that is not blank, without its line end; without the partial line at
        which a compressed file was cut off."""
        for number, text in self.numbered:
            is_whole = text.endswith("\n") or not any(fault.reason.startswith(CUT) for fault in self.faults)
            if text.strip() and is_whole:
                yield number, text.rstrip("\r\n")

    def quarantined(
        self, number: int | None, record: object, field: str | None, reason: str
    ) -> QuarantinedRecord:
        return left_out(self.file, number, record, field, reason)

    def fields(self, number: int, text: str) -> list[str] | QuarantinedRecord:
        """The fields of one line of CSV. Lines are parsed separately, so that an open quote cannot swallow
        the rest of the file."""
        try:
            (fields,) = csv.reader([text], strict=True)
        except csv.Error as error:
            return self.quarantined(number, text, None, f"is not CSV ({error})")
        return fields

    def text(self) -> str:
        return "".join(text for _, text in self.numbered).replace("\r\n", "\n")

    def head(self) -> bytes:
        """The first bytes of a whole file, to detect whether it is text; b"" for a part of a file."""
        return first_bytes(self.path) if self.path is not None else b""

    def content(self) -> bytes:
        """The bytes of a whole binary file; of a damaged compressed file, those before the damage."""
        if self.path is None:
            return b""
        with _opened(self.path, self.faults) as stream:
            return b"".join(iter(partial(stream.read, 1 << 20), b""))


def open_source(path: AnyPath, computation: str = "") -> Source:
    if path.is_dir():
        raise TraceFormatError("is a directory; give the files in it", file=str(path))
    if not path.is_file():
        raise TraceFormatError("no such file; give the logs to import", file=str(path))
    faults: list[QuarantinedRecord] = []
    return Source(str(path), _decoded(path, faults), computation, faults, path)


def beginning(path: AnyPath) -> str:
    """The first characters of a file, for telling its format."""
    return _beginning(open_source(path))


def _beginning(source: Source) -> str:
    text = ""
    for _, line in source.numbered:
        text += line[:MOST_LOOKED_AT]
        if len(text) >= MOST_LOOKED_AT:
            break
    return text


def unreadable(path: AnyPath) -> str | None:
    """Why the format cannot be detected: the file is cut, damaged or empty; None if it can be read."""
    source = open_source(path)
    text = _beginning(source)
    cut = (fault.reason for fault in source.faults if fault.reason.startswith(CUT))
    return next(cut, None) or (None if text.strip() else EMPTY)


def open_piece(path: AnyPath, begin: int, end: int, first_line: int, computation: str = "") -> Source:
    """The lines that begin within [begin, end) of a file that is not compressed."""
    faults: list[QuarantinedRecord] = []
    lines = _decode(_lines_between(path, begin, end), str(path), first_line, faults)
    return Source(str(path), lines, computation, faults)


def lines_begun(path: AnyPath, begin: int, end: int) -> int:
    """The number of lines that begin within [begin, end): at the file's start, and after each line end."""
    count = 1 if begin == 0 and end > 0 else 0
    with path.open("rb") as raw:
        raw.seek(max(begin - 1, 0))
        left = end - 1 - max(begin - 1, 0)
        while left > 0 and (chunk := raw.read(min(left, 1 << 20))):
            count += chunk.count(b"\n")
            left -= len(chunk)
    return count


def first_bytes(path: AnyPath) -> bytes:
    with _opened(path, []) as stream:
        return bytes(stream.read(64))


def compression_of(path: AnyPath) -> str | None:
    with path.open("rb") as raw:
        head = raw.read(4)
    return next((name for magic, name in MAGIC.items() if head.startswith(magic)), None)


def uncompressed_size(path: AnyPath) -> int:
    """The size of a file in bytes; for a compressed file, an estimate of its uncompressed size."""
    if not path.is_file():
        return 0
    return size_of(path) * (TYPICAL_RATIO if is_compressed(path) else 1)


def is_compressed(path: AnyPath) -> bool:
    return compression_of(path) is not None


class _UpToTheCut(io.RawIOBase):
    """The part of a compressed stream that `read` can decompress; `tell` is called with the error that ended
    it."""

    def __init__(self, read: Callable[[int], bytes], tell: Callable[[Exception], object]) -> None:
        self._read = read
        self._tell = tell
        self._failed = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            chunk = b"" if self._failed else self._read(len(buffer))
        except (EOFError, OSError, zlib.error, pa.ArrowException) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            # gzip and Arrow report a damaged stream as an OSError without a number.
            self._failed, chunk = True, b""
            self._tell(error)
        buffer[: len(chunk)] = chunk
        return len(chunk)


@contextmanager
def _opened(
    path: AnyPath, faults: list[QuarantinedRecord], number: Callable[[], int] = lambda: 0
) -> Iterator[IO[bytes]]:
    """The bytes of a file, uncompressed. A cut or damaged stream is recorded before the rest of its last line
    is read; `number` gives the number of the last line before that."""

    def note(error: Exception) -> None:
        where = " after this line" if number() else ""
        reason = f"{CUT}{where} ({error}); the rest is missing"
        faults.append(QuarantinedRecord(str(path), number() or None, None, reason))

    try:
        compression = compression_of(path)
        with path.open("rb") as raw:
            if compression is None:
                yield raw
            else:
                if compression == "gzip":
                    read: Callable[[int], bytes] = gzip.GzipFile(fileobj=raw).read1
                else:  # Arrow's decoder says only that it failed when the stream is cut
                    read = pa.CompressedInputStream(pa.PythonFile(raw, "r"), "zstd").read
                yield cast(IO[bytes], io.BufferedReader(_UpToTheCut(read, note)))
    except OSError as error:
        raise TraceFormatError(f"cannot be read: {error.strerror or error}", file=str(path)) from error


def _lines_between(path: AnyPath, begin: int, end: int) -> Iterator[bytes]:
    with path.open("rb") as raw:
        if begin > 0:
            raw.seek(begin - 1)
            raw.readline()
        while raw.tell() < end and (line := raw.readline()):
            yield line


def _decoded(path: AnyPath, faults: list[QuarantinedRecord]) -> Iterator[tuple[int, str]]:
    number = 0
    with _opened(path, faults, lambda: number) as stream:
        for number, text in _decode(stream, str(path), 1, faults):
            yield number, text
    if number == 0 and not faults:
        faults.append(QuarantinedRecord(str(path), None, None, EMPTY))


def _decode(
    lines: Iterable[bytes], file: str, first_line: int, faults: list[QuarantinedRecord]
) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(lines, start=first_line):
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            text = line.decode(errors="replace")
            reason = f"is not UTF-8 ({error.reason}); those bytes were replaced"
            faults.append(QuarantinedRecord(file, number, None, reason, excerpt(text), True))
        yield number, text.removeprefix(BYTE_ORDER_MARK) if number == 1 else text
