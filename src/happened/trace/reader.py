"""Read a trace in any storage format, and refuse other data.

`location` lists the formats. The result has SCHEMA and passes `validate`; columns that a Parquet file lacks
are null, and unknown columns are left out. Other writers use narrower integers, dictionaries, wider strings
and all-null columns; these are converted without loss. A type that needs interpretation (times in
microseconds, numbers as text) is refused with the file's name and the required type.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..core.errors import CausalityError, TraceFormatError
from .jsonl import lines_of, read_jsonl
from .location import locate
from .readers.detection import detect
from .schema import BY_NAME, CARRIED, DEFAULTS, REQUIRED, SCHEMA
from .store import AnyPath, StorePath, arrow_source
from .store_errors import reason_of
from .validation import Place, validate

Check = Callable[[pa.Table, Place], None]


def read(path: str | os.PathLike[str] | StorePath, check: Check = validate) -> pa.Table:
    """The events of a trace, in the order they were written; TraceFormatError if it is not a trace.

    check   the validation of the table; `validate_rows` leaves checks across rows to the caller
    """
    at = locate(path)
    if at.is_json:
        try:
            table, lines = read_jsonl(at.root)
        except TraceFormatError as error:
            name = detect(at.root) if error.line == 1 else None
            if name in (None, "jsonl"):
                raise
            reason = (
                f"looks like a log of another system ({name}), which is no trace; make one of it: "
                f"`happened import {at.root} --out DIR`"
            )
            raise TraceFormatError(reason, file=str(at.root)) from error
        check(table, lambda row: (str(at.root), lines[row]))
        return table
    tables = [read_part(part, given=at.partition(part)) for part in at.parts]
    ends = np.cumsum([table.num_rows for table in tables])

    def place(row: int) -> tuple[str, int | None]:
        part = int(np.searchsorted(ends, row, side="right"))
        return str(at.parts[part]), row - (int(ends[part]) - tables[part].num_rows) + 1

    table = pa.concat_tables(tables)
    check(table, place)
    return table


def count(path: str | os.PathLike[str] | StorePath) -> int:
    """How many events `read` would return, from the metadata of the files."""
    at = locate(path)
    if at.is_json:
        return sum(1 for _ in lines_of(at.root))
    return sum(open_part(part).metadata.num_rows for part in at.parts)


def read_part(
    path: AnyPath,
    groups: Sequence[int] | None = None,
    given: Mapping[str, str | None] | None = None,
    columns: Sequence[str] = SCHEMA.names,
) -> pa.Table:
    """One Parquet part, or some row groups of it, by SCHEMA; not validated.

    given    values of the columns that the directory names hold
    columns  the columns to read; all others are null
    """
    given = given or {}
    file = open_part(path)
    check_columns(path, file, frozenset(given))
    try:
        wanted = [name for name in columns if name in file.schema_arrow.names]
        every = range(file.metadata.num_row_groups)
        table = file.read_row_groups([*every] if groups is None else groups, columns=wanted)
    except MemoryError:  # pyarrow raises it as an ArrowException, but the file is fine
        raise
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from error
    return pa.table([_column(table, field, path, given) for field in SCHEMA], schema=SCHEMA)


def open_part(path: AnyPath) -> pq.ParquetFile:
    """Open a Parquet part; raise TraceFormatError if it was cut off or is something else (no footer).

    An absent file, or one without read permission, says nothing about its contents and stays an OSError.
    """
    try:
        # ParquetFile, not read_table: directory names of the form a=b must not turn into columns.
        return pq.ParquetFile(arrow_source(path), pre_buffer=isinstance(path, StorePath))
    except (MemoryError, FileNotFoundError, PermissionError):
        raise
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: AnyPath, error: Exception) -> CausalityError:
    of_store = reason_of(path, error) if isinstance(path, StorePath) else None
    if of_store is not None:
        return CausalityError(of_store)
    reason = f"not a readable Parquet file ({error}); write it again, or remove it if there are other parts"
    return TraceFormatError(reason, file=str(path))


def _column(table: pa.Table, field: pa.Field, path: AnyPath, given: Mapping[str, str | None]) -> Any:
    if field.name in given:
        column = pa.chunked_array([pa.repeat(pa.scalar(given[field.name], pa.string()), table.num_rows)])
    elif field.name in table.column_names:
        column = table[field.name]
    else:
        column = pa.chunked_array([pa.nulls(table.num_rows, field.type)])
    try:
        column = column.cast(field.type)
    except MemoryError:
        raise
    except pa.ArrowException as error:
        reason = f"is {column.type}, needs {field.type}: {error}"
        raise TraceFormatError(reason, file=str(path), field=field.name) from error
    return pc.fill_null(column, DEFAULTS[field.name]) if field.name in DEFAULTS else column


def check_columns(path: AnyPath, file: pq.ParquetFile, elsewhere: frozenset[str] = frozenset()) -> None:
    """TraceFormatError if the file lacks a required column, or has a column of another type.

    elsewhere  columns whose values are in the names of the file's directories
    """
    found = file.schema_arrow.names
    for name in REQUIRED:
        if name not in found and name not in elsewhere:
            raise TraceFormatError(f"no such column; found {', '.join(found)}", file=str(path), field=name)
    for stored in known_columns(file):
        if not is_stored_whole(file, stored) and not is_unread(stored):
            column = BY_NAME[stored.name]
            unit = f", {column.unit}" if column.unit else ""
            reason = f"is {stored.type}, needs {column.type}{unit}; cast the column and write the part again"
            raise TraceFormatError(reason, file=str(path), field=stored.name)


def known_columns(file: pq.ParquetFile) -> list[pa.Field]:
    """The columns of a file that the schema of a trace has."""
    return [field for field in file.schema_arrow if field.name in SCHEMA.names]


def is_stored_whole(file: pq.ParquetFile, stored: pa.Field) -> bool:
    """Whether pyarrow and Spark read the column as the trace's type."""
    # INT96 is Spark's old type for timestamps; Spark reads it as nothing else.
    old = any(column.path == stored.name and column.physical_type == "INT96" for column in file.schema)
    return reads_as(stored.type, SCHEMA.field(stored.name).type) and not old


def is_unread(stored: pa.Field) -> bool:
    """Whether the column can be ignored: it has only nulls, or numbers of any type that no analysis reads."""
    is_number = pa.types.is_integer(stored.type) and pa.types.is_integer(BY_NAME[stored.name].type)
    return pa.types.is_null(stored.type) or (stored.name in CARRIED and is_number)


def reads_as(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether Spark reads the file's type `stored` as the type `wanted` without changing any value."""
    types = pa.types
    if types.is_dictionary(stored):
        stored = stored.value_type
    if types.is_string(wanted):
        return stored in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    if types.is_integer(wanted):
        if types.is_null(stored):
            return True
        if stored == pa.timestamp("ns"):
            return bool(types.is_int64(wanted))
        # Unsigned numbers need one more bit.
        return bool(
            types.is_integer(stored)
            and stored.bit_width + types.is_unsigned_integer(stored) <= wanted.bit_width
        )
    if types.is_map(wanted):
        return bool(types.is_map(stored)) and all(
            reads_as(getattr(stored, part), getattr(wanted, part)) for part in ("key_type", "item_type")
        )
    if types.is_list(wanted):
        is_list = types.is_list(stored) or types.is_large_list(stored)
        return is_list and reads_as(stored.value_type, wanted.value_type)
    if types.is_struct(wanted):
        return bool(types.is_struct(stored)) and all(
            stored.get_field_index(field.name) >= 0 and reads_as(stored.field(field.name).type, field.type)
            for field in wanted
        )
    return bool(stored == wanted)
