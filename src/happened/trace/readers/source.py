"""A file to import, as numbered lines: compressed or not, whole or cut, UTF-8 or nearly.

`Source` is all a reader sees of a file, so that lines can as well come from a Spark partition.
Bytes that are not UTF-8 are replaced and a compressed stream that ends too early is read as far as it
goes; either is remembered in `faults`, which is complete once the lines have been consumed.
"""

import gzip
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ...core.errors import TraceFormatError
from ..store import AnyPath
from .draft import Quarantined, excerpt

GZIP_MAGIC = b"\x1f\x8b"
BYTE_ORDER_MARK = "﻿"


@dataclass(slots=True)
class Source:
    """`computation` names the run that a file without names of its own records."""

    file: str
    numbered: Iterable[tuple[int, str]]
    computation: str = ""
    faults: list[Quarantined] = field(default_factory=list)

    def lines(self) -> Iterator[tuple[int, str]]:
        """(number, text) of every line that is not blank, without its end."""
        for number, text in self.numbered:
            if text.strip():
                yield number, text.rstrip("\r\n")

    def text(self) -> str:
        return "".join(text for _, text in self.numbered).replace("\r\n", "\n")


def open_source(path: AnyPath, computation: str = "") -> Source:
    if not path.is_file():
        reason = (
            "is a directory; give the files in it"
            if path.is_dir()
            else "no such file; give the logs to import"
        )
        raise TraceFormatError(reason, file=str(path))
    faults: list[Quarantined] = []
    return Source(str(path), _decoded(path, faults), computation, faults)


def beginning(path: AnyPath, size: int = 1 << 16) -> str:
    """The first characters of a file, for telling its format."""
    text = ""
    for _, line in open_source(path).numbered:
        text += line[:size]
        if len(text) >= size:
            break
    return text


def open_piece(path: AnyPath, begin: int, end: int, first_line: int, computation: str = "") -> Source:
    """The lines that begin within [begin, end) of a file that is not compressed."""
    faults: list[Quarantined] = []
    return Source(
        str(path),
        _decode(_lines_between(path, begin, end), str(path), first_line, faults),
        computation,
        faults,
    )


def lines_begun(path: AnyPath, begin: int, end: int) -> int:
    """How many lines begin within [begin, end): at the file's beginning, and after each line's end."""
    count = 1 if begin == 0 and end > 0 else 0
    with path.open("rb") as raw:
        raw.seek(max(begin - 1, 0))
        left = end - 1 - max(begin - 1, 0)
        while left > 0 and (chunk := raw.read(min(left, 1 << 20))):
            count += chunk.count(b"\n")
            left -= len(chunk)
    return count


def is_compressed(path: AnyPath) -> bool:
    with path.open("rb") as raw:
        return raw.read(len(GZIP_MAGIC)) == GZIP_MAGIC


def _lines_between(path: AnyPath, begin: int, end: int) -> Iterator[bytes]:
    with path.open("rb") as raw:
        if begin > 0:
            raw.seek(begin - 1)
            raw.readline()
        while raw.tell() < end and (line := raw.readline()):
            yield line


def _decoded(path: AnyPath, faults: list[Quarantined]) -> Iterator[tuple[int, str]]:
    number = 0
    try:
        compressed = is_compressed(path)
        with path.open("rb") as raw:
            lines = gzip.GzipFile(fileobj=raw) if compressed else raw
            for number, text in _decode(lines, str(path), 1, faults):
                yield number, text
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        reason = f"the compressed file is cut or damaged after this line ({error}); the rest is missing"
        faults.append(Quarantined(str(path), number, None, reason))
    except OSError as error:
        raise TraceFormatError(f"cannot be read: {error.strerror}", file=str(path)) from error
    if number == 0 and not faults:
        faults.append(Quarantined(str(path), None, None, "is empty: no events"))


def _decode(
    lines: Iterable[bytes], file: str, first_line: int, faults: list[Quarantined]
) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(lines, start=first_line):
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            text = line.decode(errors="replace")
            reason = f"is not UTF-8 ({error.reason}); those bytes were replaced"
            faults.append(Quarantined(file, number, None, reason, excerpt(text), True))
        yield number, text.removeprefix(BYTE_ORDER_MARK) if number == 1 else text
