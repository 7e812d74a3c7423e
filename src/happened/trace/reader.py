"""Read a trace, whatever it is kept in, and refuse what is not one.

A directory of Parquet parts (hidden and unfinished files are ignored), a directory with such a
`trace/` inside (what `happened simulate --out` makes), one Parquet file, or JSON lines. The result has
SCHEMA and passes `validate`; columns that a Parquet file lacks are null, columns we do not know are left out.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..core.errors import TraceFormatError
from .jsonl import read_jsonl
from .schema import REQUIRED, SCHEMA
from .validation import validate

JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
ACCEPTED = "a directory of .parquet parts, one .parquet file, or JSON lines (.jsonl, .ndjson, .json)"


def read(path: str | os.PathLike[str]) -> pa.Table:
    """The events of a trace, in the order they were written; TraceFormatError if it is not one."""
    path = Path(path)
    if path.suffix in JSON_SUFFIXES and path.is_file():
        table, lines = read_jsonl(path)
        validate(table, lambda row: (str(path), lines[row]))
        return table
    parts = _parts(path)
    tables = [read_part(part) for part in parts]
    ends = np.cumsum([table.num_rows for table in tables])

    def place(row: int) -> tuple[str, int | None]:
        part = int(np.searchsorted(ends, row, side="right"))
        return str(parts[part]), row - (int(ends[part]) - tables[part].num_rows) + 1

    table = pa.concat_tables(tables)
    validate(table, place)
    return table


def count(path: str | os.PathLike[str]) -> int:
    """How many events `read` would find, by the row counts in the metadata of the files."""
    path = Path(path)
    if path.suffix in JSON_SUFFIXES and path.is_file():
        with path.open("rb") as lines:
            return sum(1 for _ in lines)
    return sum(open_part(part).metadata.num_rows for part in _parts(path))


def _parts(path: Path) -> list[Path]:
    if path.is_file():
        if path.suffix != ".parquet":
            raise TraceFormatError(f"not a kind of trace I know; give {ACCEPTED}", file=str(path))
        return [path]
    if not path.is_dir():
        raise TraceFormatError(
            f"no such file or directory; give {ACCEPTED}, or make one with "
            "`happened simulate --processes 5 --messages 1000 --out DIR`",
            file=str(path),
        )
    for directory in (path, path / "trace"):
        parts = sorted(p for p in directory.glob("*.parquet") if not p.name.startswith((".", "_")))
        if parts:
            return parts
    raise TraceFormatError(
        f"holds no .parquet part, nor does a trace/ in it; give {ACCEPTED}", file=str(path)
    )


def read_part(path: Path, groups: Sequence[int] | None = None) -> pa.Table:
    """One Parquet part, or some row groups of it, by SCHEMA; not validated."""
    try:
        file = open_part(path)
        table = file.read() if groups is None else file.read_row_groups(groups)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from error
    return pa.table([_column(table, field, path) for field in SCHEMA], schema=SCHEMA)


def open_part(path: Path) -> pq.ParquetFile:
    """Open a Parquet part; raise TraceFormatError if it was cut off or is something else (no footer)."""
    try:
        # ParquetFile, not read_table: directory names of the form a=b must not turn into columns.
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> TraceFormatError:
    reason = f"not a readable Parquet file ({error}); remove it to read the other parts"
    return TraceFormatError(reason, file=str(path))


def _column(table: pa.Table, field: pa.Field, path: Path) -> pa.ChunkedArray:
    if field.name not in table.column_names:
        if field.name in REQUIRED:
            found = ", ".join(table.column_names)
            raise TraceFormatError(f"no such column; found {found}", file=str(path), field=field.name)
        column = pa.chunked_array([pa.nulls(table.num_rows, field.type)])
    else:
        try:
            column = table[field.name].cast(field.type)
        except pa.ArrowException as error:
            reason = f"is {table[field.name].type}, needs {field.type}: {error}"
            raise TraceFormatError(reason, file=str(path), field=field.name) from error
    if field.name == "relevant":
        return pc.fill_null(column, False)
    return pc.fill_null(column, "") if field.name == "computation" else column
