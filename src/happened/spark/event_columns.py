"""Any DataFrame as events: which of its columns are those of a trace, and what they become.

In    a frame, and where its columns are called otherwise, `columns`: from a trace's column to the frame's
Out   rows of trace.SCHEMA; columns that the frame lacks are null
Cost  a projection

Values are taken as what they are: narrower integers, numbers as names, timestamps as nanoseconds since 1970.
A type that would have to be interpreted is refused; a column that no question looks at is left out then.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    CharType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from ..core.errors import TraceFormatError
from ..trace.schema import REQUIRED
from .event_rows import UNREADABLE
from .schemas import TRACE

CARRIED = ("label", "attributes", "control_entries", "control_bytes")
"""Columns that are carried along and not looked at."""

TEXTS = (StringType, VarcharType, CharType, BinaryType)
INTEGERS = (ByteType, ShortType, IntegerType, LongType)
NANOSECONDS = 1000  # to a microsecond, which is what Spark's timestamps count


def as_events(frame: DataFrame, columns: Mapping[str, str | Column] | None = None) -> DataFrame:
    """The frame with the columns of a trace; TraceFormatError says what it lacks and how to map it.

    columns   the name of a column of the frame, a path into its structs and maps ("resource.service.name"),
              or any expression
    """
    columns = columns or {}
    for name in columns.keys() - {*TRACE.names}:
        raise TraceFormatError(f"no column of a trace; it has {', '.join(TRACE.names)}", field=name)
    found = {name: column for name in TRACE.names if (column := _find(frame, name, columns)) is not None}
    picked = frame.select(
        *(column.alias(name) for name, column in found.items()),
        *(F.col(UNREADABLE) for name in frame.columns if name == UNREADABLE),
    )
    stored = {field.name: field.dataType for field in picked.schema}
    return picked.select(
        *(_column(name, stored.get(name, NullType())).alias(name) for name in TRACE.names),
        *(F.col(name) for name in stored if name == UNREADABLE),
    )


def _find(frame: DataFrame, name: str, columns: Mapping[str, str | Column]) -> Column | None:
    """What is to become a column of the trace; None if it may be missing, and is."""
    given = columns.get(name, name)
    if not isinstance(given, str):
        return given
    column = _at(frame.schema, given, None)
    if column is None and name in columns:
        raise TraceFormatError(
            f"is mapped to {given!r}, which the frame has not; it has {', '.join(frame.columns)}", field=name
        )
    if column is None and name in REQUIRED:
        raise TraceFormatError(
            f"no such column; the frame has {', '.join(frame.columns)}; say which of them it is: "
            f'columns={{"{name}": "…"}}',
            field=name,
        )
    return column


def _at(kind: DataType, path: str, inside: Column | None) -> Column | None:
    """The column at a path, whose names may have dots themselves: the longest one that fits is taken."""
    if isinstance(kind, MapType) and inside is not None:
        return inside[path]
    if not isinstance(kind, StructType):
        return None
    if kind.names.count(path) > 1:
        raise TraceFormatError(
            "the frame has several columns of this name; drop or rename all but one", field=path
        )
    for name, rest in _beginnings(path):
        if name in kind.names:
            column = F.col("`" + name.replace("`", "``") + "`") if inside is None else inside.getField(name)
            found = column if rest is None else _at(kind[name].dataType, rest, column)
            if found is not None:
                return found
    return None


def _beginnings(path: str) -> Iterator[tuple[str, str | None]]:
    """All of a path; then what stands before each of its dots, and after it, from the last one on."""
    yield path, None
    name = path
    while "." in name:
        name = name.rpartition(".")[0]
        yield name, path[len(name) + 1 :]


def _column(name: str, stored: DataType) -> Column:
    wanted = TRACE[name].dataType
    if isinstance(stored, NullType):
        return F.lit(None).cast(wanted)
    if name == "time" and isinstance(stored, (TimestampType, TimestampNTZType)):
        return _nanoseconds(stored)
    if _becomes(stored, wanted):
        return _cast(F.col(name), stored, wanted)
    if name in CARRIED:
        return F.lit(None).cast(wanted)
    more = ", nanoseconds, or a timestamp" if name == "time" else ""
    raise TraceFormatError(
        f"is {stored.simpleString()}, needs {wanted.simpleString()}{more}; cast it, or map another column: "
        f'columns={{"{name}": "…"}}',
        field=name,
    )


def _becomes(stored: DataType, wanted: DataType) -> bool:
    """Whether every value of the one type is a value of the other, and no other one then."""
    if isinstance(wanted, StringType):
        return isinstance(stored, (*TEXTS, *INTEGERS))
    if isinstance(wanted, INTEGERS):
        return isinstance(stored, INTEGERS) and INTEGERS.index(type(stored)) <= INTEGERS.index(type(wanted))
    if isinstance(wanted, ArrayType):
        return isinstance(stored, ArrayType) and _becomes(stored.elementType, wanted.elementType)
    if isinstance(wanted, MapType):
        return isinstance(stored, MapType) and all(
            _becomes(getattr(stored, part), getattr(wanted, part)) for part in ("keyType", "valueType")
        )
    if isinstance(wanted, StructType):
        return isinstance(stored, StructType) and all(
            field.name in stored.names and _becomes(stored[field.name].dataType, field.dataType)
            for field in wanted
        )
    return type(stored) is type(wanted)


def _cast(column: Column, stored: Any, wanted: Any) -> Column:
    """Spark casts structs by place; here their fields are told by name."""
    if isinstance(wanted, ArrayType) and isinstance(wanted.elementType, StructType):
        fields = wanted.elementType
        return F.transform(
            column,
            lambda each: F.when(
                each.isNotNull(),
                F.struct(*(each[field.name].cast(field.dataType).alias(field.name) for field in fields)),
            ),
        )
    return column.cast(wanted)


def _nanoseconds(stored: DataType) -> Column:
    """Null beyond the year 2262, where nanoseconds have no 64 bits."""
    column = F.col("time")
    if isinstance(stored, TimestampNTZType):
        epoch = F.lit("1970-01-01").cast("timestamp_ntz")
        micros = F.timestamp_diff("MICROSECOND", epoch, column)
    else:
        micros = F.unix_micros(column)
    return F.try_multiply(micros, F.lit(NANOSECONDS).cast("long"))
