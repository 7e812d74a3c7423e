"""What is new in a trace that is being written: Parquet parts that appeared, and whole lines that were added.

A position says how far each file has been read: {name: bytes}. Of a Parquet part or a compressed file that is
nothing or all of it, since such files appear whole; of JSON lines it is the end of a line, or of the file if
the trace has ended. Files that are gone are removed from the position, so that it does not grow beyond the
directory.

Assumes    files only appear and lines are only added. A file that shrank, or was removed before it was read,
           is an error that names it: its rows are lost.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from ...core.errors import TraceFormatError
from ...trace.location import Location, inside, is_json, is_part
from ...trace.store import AnyPath, StorePath, any_path, size_of
from ..splits import Groups, LineRange, Split

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
        Files that appear whole are read in the order of their names. Nothing beyond the position `up_to` is
        read."""
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
