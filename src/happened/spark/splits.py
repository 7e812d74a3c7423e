"""Cuts a trace into splits. One task reads a split by itself, so that rows need not pass through the JVM.

A split is some row groups of a Parquet file, several small files together, or a stretch of a file of JSON
lines. Reading a split separates the rows that are events from those that are not.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ..core.errors import TraceFormatError
from ..trace.jsonl import event_from_json, lines_of
from ..trace.location import Location
from ..trace.reader import check_columns, open_part, read_part
from ..trace.schema import DEFAULTS, QUARANTINE, SCHEMA
from ..trace.store import AnyPath, size_of
from ..trace.validation import faults

ROWS_AT_ONCE = 500_000
BYTES_AT_ONCE = 64 << 20
"""Bytes of JSON lines that hold about ROWS_AT_ONCE events."""

FOOTERS_AT_ONCE = 16

TELLING = ("computation", "process", "seq", "kind", "message", "to")
"""Columns that are needed to decide whether a row is an event."""

UNCHECKED = pa.schema([field.with_nullable(True) for field in SCHEMA])


class Rows(NamedTuple):
    """The content of a split: events, and rows that are not events, as rows of QUARANTINE."""

    events: pa.Table
    quarantined: pa.Table


class Groups(NamedTuple):
    """Some row groups of a Parquet file, or all; `given`: values of columns that directory names contain."""

    path: AnyPath
    groups: Sequence[int] | None
    given: dict[str, str | None]

    def read(self, columns: Sequence[str]) -> Rows:
        """All rows of these row groups, without checking that they are events."""
        table = read_part(self.path, self.groups, self.given, [*{*columns, *TELLING}])
        return Rows(table, QUARANTINE.empty_table())

    def may_hold(self, computations: pa.Array) -> bool:
        """Whether any row belongs to one of these computations; reads only the column `computation`."""
        names = read_part(self.path, self.groups, self.given, ["computation"])["computation"]
        return bool(pc.any(pc.is_in(names, value_set=computations)).as_py())


class LineRange(NamedTuple):
    """The JSON lines that begin at the bytes start:stop of a file; all of them if `stop` is None."""

    path: AnyPath
    start: int = 0
    stop: int | None = None

    def read(self, columns: Sequence[str]) -> Rows:
        """Every line that is an object with the fields of an event, unchecked; all columns are read."""
        lines = lines_of(self.path) if self.stop is None else self._stretch(self.stop)
        return read_lines(lines, str(self.path))

    def may_hold(self, computations: pa.Array) -> bool:
        return True  # finding out would mean reading all lines

    def _stretch(self, stop: int) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            if self.start:
                file.seek(self.start - 1)
                file.readline()  # skip the rest of a line that began before `start`
            while file.tell() < stop and (line := file.readline()):
                yield line


def read_lines(lines: Iterable[bytes], file: str) -> Rows:
    """The events in lines of JSON, and why the other lines, except empty ones, are not events."""
    events, bad = [], []
    for line in lines:
        if not line.strip():
            continue
        try:
            events.append(event_from_json(line, file, 0, needs=()))
        except TraceFormatError as error:
            about = f"field {error.field!r}: {error.reason}"
            shown = f"is not JSON: {line.strip()[:80].decode(errors='replace')}"
            bad.append({"computation": "", "reason": f"?#: {shown if error.field is None else about}"})
    # No cast here: it would refuse the nulls that `sort_out` reports.
    table = pa.table(pa.Table.from_pylist(events, schema=UNCHECKED).columns, schema=SCHEMA)
    return Rows(table, pa.Table.from_pylist(bad, schema=QUARANTINE))


def padded(table: pa.Table, schema: pa.Schema = UNCHECKED) -> pa.Table:
    """The rows with all columns of a schema; missing columns are filled with nulls or their default."""
    columns = [
        table[field.name].cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    for name, value in DEFAULTS.items():
        if (place := schema.get_field_index(name)) >= 0:
            columns[place] = pc.fill_null(columns[place], value)
    return pa.table(columns, schema=schema)


def sort_out(table: pa.Table) -> Rows:
    """Separate the rows that can be events from those that cannot; the latter come with reasons."""
    reason = faults(table)
    if reason.null_count == len(reason):
        return Rows(table, QUARANTINE.empty_table())
    bad = pc.is_valid(reason)
    named = pc.binary_join_element_wise(
        pc.fill_null(table["process"], "?"), pc.fill_null(table["seq"].cast(pa.string()), ""), "#"
    )
    told = pc.binary_join_element_wise(named, reason, ": ")
    rows = pa.table([table["computation"], told], schema=QUARANTINE).filter(bad)
    return Rows(table.filter(pc.invert(bad)), rows)


@dataclass(frozen=True)
class Split:
    pieces: tuple[Groups | LineRange, ...]
    rows: int | None
    """The number of rows; None if it is unknown until the split is read."""

    def read(self, columns: Sequence[str] = SCHEMA.names) -> Rows:
        """Read the columns given, and those that tell events from other rows (TELLING); the rest are null."""
        table, unread = self.read_all(columns)
        rows = sort_out(table)
        return Rows(rows.events, pa.concat_tables([rows.quarantined, unread]))

    def may_hold(self, computations: pa.Array) -> bool:
        """False if the split surely has no rows of these computations; cheaper than reading it."""
        return any(piece.may_hold(computations) for piece in self.pieces)

    def read_all(self, columns: Sequence[str] = SCHEMA.names) -> Rows:
        """All rows that have the fields of an event, unchecked."""
        read = [piece.read(columns) for piece in self.pieces]
        return Rows(*(pa.concat_tables(tables) for tables in zip(*read, strict=True)))


def splits_of(at: Location, *, rows: int = ROWS_AT_ONCE, size: int = BYTES_AT_ONCE) -> list[Split]:
    """Splits of about this many rows of Parquet, or bytes of JSON lines."""
    if at.is_json:
        return _stretches(at.root, size)
    with ThreadPoolExecutor(FOOTERS_AT_ONCE) as pool:
        found = pool.map(partial(_groups, at), at.parts)
        return [*_together((piece for pieces in found for piece in pieces), rows)]


def _stretches(path: AnyPath, size: int) -> list[Split]:
    total = size_of(path)
    if path.suffix == ".gz" or total <= size:
        return [Split((LineRange(path),), None)]
    return [Split((LineRange(path, at, min(at + size, total)),), None) for at in range(0, total, size)]


def _groups(at: Location, part: AnyPath) -> list[tuple[Groups, int]]:
    """Each row group of a part, and how many rows it has."""
    file, given = open_part(part), at.partition(part)
    check_columns(part, file, frozenset(given))
    metadata = file.metadata
    return [
        (Groups(part, [group], given), metadata.row_group(group).num_rows)
        for group in range(metadata.num_row_groups)
    ]


def _together(pieces: Iterable[tuple[Groups, int]], most: int) -> Iterator[Split]:
    """Group consecutive row groups, of one file or several, into splits of at most this many rows."""
    held: list[Groups] = []
    rows = 0
    for piece, count in pieces:
        if rows and rows + count > most:
            yield Split(tuple(held), rows)
            held, rows = [], 0
        if held and held[-1].path == piece.path:
            held[-1] = held[-1]._replace(groups=[*(held[-1].groups or ()), *(piece.groups or ())])
        else:
            held.append(piece)
        rows += count
    if held:
        yield Split(tuple(held), rows)
