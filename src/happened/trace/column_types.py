"""Which stored types a column of a trace may have: the same for every reader.

Other writers have narrower integers, dictionaries, wider strings and columns that hold nothing at all; those
are read as what they are. A type that would have to be interpreted (times in microseconds, numbers as text)
is refused, with the file and the type that is needed.
"""

import pyarrow as pa
import pyarrow.parquet as pq

from ..core.errors import TraceFormatError
from .schema import BY_NAME, CARRIED, REQUIRED, SCHEMA
from .store import AnyPath


def check_columns(path: AnyPath, file: pq.ParquetFile, elsewhere: frozenset[str] = frozenset()) -> None:
    """TraceFormatError if the file lacks a column that every event needs, or has one of another type.

    elsewhere  columns that the names of the file's directories hold
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
    """The columns of a file that are columns of a trace."""
    return [field for field in file.schema_arrow if field.name in SCHEMA.names]


def is_stored_whole(file: pq.ParquetFile, stored: pa.Field) -> bool:
    """Whether the column reads as what a trace has there, for pyarrow and for Spark."""
    # Spark's old timestamps; Spark itself reads them as nothing else.
    old = any(column.path == stored.name and column.physical_type == "INT96" for column in file.schema)
    return reads_as(stored.type, SCHEMA.field(stored.name).type) and not old


def is_unread(stored: pa.Field) -> bool:
    """Whether the column can be ignored: it holds only nulls, or a number, in whatever type, that no analysis
    reads."""
    is_number = pa.types.is_integer(stored.type) and pa.types.is_integer(BY_NAME[stored.name].type)
    return pa.types.is_null(stored.type) or (stored.name in CARRIED and is_number)


def reads_as(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether Spark reads what a file declares as `stored` as `wanted`, and no value is another one then."""
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
        # Unsigned numbers need a bit more.
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
