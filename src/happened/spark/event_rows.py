"""A trace, or any DataFrame, as rows of events; in a row that is not an event, UNREADABLE says why.

In    a path at which `trace.locate` finds a trace; or a frame, and if its columns have other names `columns`,
      a mapping from the trace's column to the frame's
Out   rows with columns of trace.SCHEMA. A row for a JSON line that is not an event has only the reason
Cost  one scan or a projection, when the frame is used; nothing reaches the driver

Spark reads the path, and of Parquet only the columns and rows that a query needs. With io="direct" tasks read
traces in an object store, with credentials of their own, since Spark may have no connector for the store.

The values of a frame are converted without loss: narrower integers, whole decimals, numbers used as names,
timestamps as nanoseconds since 1970. A row with a decimal that is no 64-bit integer is quarantined. A column
of any other type is refused if a question reads it, and left out otherwise.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ..core.errors import TraceFormatError
from ..trace.location import Location, locate
from ..trace.reader import check_columns, is_stored_whole, known_columns, open_part
from ..trace.schema import BY_NAME, CARRIED, DEFAULTS, QUARANTINE, REQUIRED, SCHEMA
from ..trace.store import AnyPath, StorePath
from .splits import UNCHECKED, read_lines, splits_of
from .storage import DIRECT, SPARK, TRACE, spark_path, spark_schema
from .tasks import frame_by_tasks

UNREADABLE = "_unreadable"
"""The column that says why a row is not an event; of the other columns only `computation` may be set then."""

ROWS = UNCHECKED.append(pa.field(UNREADABLE, pa.string()))


def read_events(
    spark: SparkSession, path: AnyPath, *, io: str = SPARK, every_column: bool = True
) -> DataFrame:
    """every_column: whether to add columns that the Parquet files lack, as nulls; each of them costs time"""
    at = locate(path)
    if io == DIRECT and isinstance(at.root, StorePath):
        splits = splits_of(at)

        def read(number: int) -> Iterator[pa.RecordBatch]:
            yield from with_reasons(*splits[number].read_all()).to_batches()

        events = frame_by_tasks(spark, len(splits), read, spark_schema(ROWS))
        events = events if at.is_json else events.drop(UNREADABLE)
    elif at.is_json:
        events = _read_lines(spark, at.root)
    else:
        events = _read_parquet(spark, at, every_column)
    return events.fillna({name: value for name, value in DEFAULTS.items() if name in events.columns})


def _read_lines(spark: SparkSession, path: AnyPath) -> DataFrame:
    """The events in JSON lines, which Spark reads as text; UNREADABLE says why a line is not an event."""

    def parse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from with_reasons(*read_lines(batch["line"].to_pylist(), str(path))).to_batches()

    lines = spark.read.text(spark_path(path), lineSep="\n").select(
        F.col("value").cast("binary").alias("line")
    )
    return lines.mapInArrow(parse, spark_schema(ROWS))


def sort_out_unread(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The rows whose UNREADABLE is null, without that column; and the others as rows of QUARANTINE."""
    if UNREADABLE not in table.column_names:
        return table, QUARANTINE.empty_table()
    reason = table[UNREADABLE].cast(pa.string())
    unread = table.filter(pc.is_valid(reason))
    names = pa.nulls(unread.num_rows, pa.string())
    if "computation" in table.column_names:
        names = unread["computation"].cast(pa.string())
    columns = [pc.fill_null(names, ""), unread[UNREADABLE].cast(pa.string())]
    return table.filter(pc.is_null(reason)).drop_columns([UNREADABLE]), pa.table(columns, schema=QUARANTINE)


def with_reasons(rows: pa.Table, unread: pa.Table) -> pa.Table:
    """Rows of ROWS: the possible events in `rows`, then a row with the reason for each row of `unread`."""
    nulls = [pa.nulls(unread.num_rows, field.type) for field in UNCHECKED]
    events = pa.table([*rows.columns, pa.nulls(rows.num_rows, pa.string())], schema=ROWS)
    return pa.concat_tables([events, pa.table([*nulls, unread["reason"]], schema=ROWS)])


def _read_parquet(spark: SparkSession, at: Location, every_column: bool) -> DataFrame:
    read = _read_columns(at)
    schema = T.StructType([field for field in TRACE.fields if field.name in read])
    columns = [
        F.col(field.name) if field.name in read else F.lit(None).cast(field.dataType).alias(field.name)
        for field in TRACE.fields
        if every_column or field.name in read
    ]
    return spark.read.schema(schema).parquet(spark_path(at.root)).select(columns)


def _read_columns(at: Location) -> set[str]:
    """The columns to read: those that hold values, in a type that reads as the schema's.

    Spark can read a column only as its stored type or a wider one, and notices a wrong type only in a task;
    so this checks the types of all parts beforehand. Values need no check: no cast here can lose one.
    """
    empty, unasked, given = set[str](), set[str](), set[str]()
    read: dict[str, AnyPath] = {}
    for part in at.parts:
        file = open_part(part)
        given |= at.partition(part).keys()
        check_columns(part, file, frozenset(at.partition(part)))
        for stored in known_columns(file):
            if is_stored_whole(file, stored):
                read[stored.name] = part
            else:
                (empty if pa.types.is_null(stored.type) else unasked).add(stored.name)
        for name in empty & read.keys():
            raise _null_in_some_parts(name, part, read[name])
    return (read.keys() | given) - empty - unasked


def _null_in_some_parts(name: str, part: AnyPath, other: AnyPath) -> TraceFormatError:
    return TraceFormatError(
        f"is null in some parts, {SCHEMA.field(name).type} in others ({other.name}); write all parts with "
        "one schema",
        file=str(part),
        field=name,
    )


TEXTS = (T.StringType, T.VarcharType, T.CharType, T.BinaryType)
INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
BITS = 63
DIGITS = 18  # any decimal number of this many digits fits 64 bits
NANOSECONDS = 1000  # in a microsecond, the unit of Spark's timestamps


def as_events(frame: DataFrame, columns: Mapping[str, str | Column] | None = None) -> DataFrame:
    """The frame with the columns of a trace; TraceFormatError says which column is missing and how to map it.

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
    reasons = [F.col(UNREADABLE)] if UNREADABLE in stored else []
    reasons += [reason for name in found if (reason := _inexact(name, stored[name])) is not None]
    return picked.select(
        *(_column(name, stored[name]).alias(name) for name in TRACE.names if name in stored),
        *([F.coalesce(*reasons).alias(UNREADABLE)] if reasons else []),
    )


def column_at(frame: DataFrame, path: str) -> Column | None:
    """The column of this name, or at this path into structs and maps; None if the frame has none."""
    return _at(frame.schema, path, None)


def mapped_column(frame: DataFrame, name: str, columns: Mapping[str, str | Column]) -> Column | None:
    """The frame's column that `columns` maps to `name`, or else its column called `name`; None if missing."""
    given = columns.get(name, name)
    column = column_at(frame, given) if isinstance(given, str) else given
    if column is None and name in columns:
        has = ", ".join(frame.columns)
        raise TraceFormatError(
            f"is mapped to {given!r}, which the frame does not have; it has {has}", field=name
        )
    return column


def with_columns(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """The columns `names`, which may include UNREADABLE, in that order; null where the rows lack one."""
    kinds = {field.name: field.dataType for field in TRACE} | {UNREADABLE: T.StringType()}
    lacking = {name: F.lit(None).cast(kinds[name]).alias(name) for name in {*names} - {*rows.columns}}
    return rows.select(*(lacking[name] if name in lacking else F.col(name) for name in names))


def _find(frame: DataFrame, name: str, columns: Mapping[str, str | Column]) -> Column | None:
    """The frame's column that becomes the trace's column `name`; None if that is optional and missing."""
    column = mapped_column(frame, name, columns)
    if column is None and name in REQUIRED:
        raise TraceFormatError(
            f"no such column; the frame has {', '.join(frame.columns)}; say which of them it is: "
            f'columns={{"{name}": "…"}}; of a table of spans, commits, messages or transactions, make events '
            "by hs.spans, hs.dag, hs.log or hs.history",
            field=name,
        )
    return column


def _at(kind: T.DataType, path: str, inside: Column | None) -> Column | None:
    """The column at a path; names in the path may contain dots, and the longest name that fits is chosen."""
    if isinstance(kind, T.MapType) and inside is not None:
        return inside[path]
    if not isinstance(kind, T.StructType):
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
    """(path, None); then (name, rest) for each dot at which the path can be split, the last dot first."""
    yield path, None
    name = path
    while "." in name:
        name = name.rpartition(".")[0]
        yield name, path[len(name) + 1 :]


def _column(name: str, stored: T.DataType) -> Column:
    wanted = TRACE[name].dataType
    if isinstance(stored, T.NullType):
        return F.lit(None).cast(wanted)
    if name == "time" and isinstance(stored, (T.TimestampType, T.TimestampNTZType)):
        return _nanoseconds(stored)
    if _becomes(stored, wanted):
        lost = _lost(F.col(name), stored, wanted)
        exact = F.col(name) if lost is None else F.when(~lost, F.col(name))
        return _cast(exact, stored, wanted)
    if name in CARRIED:
        return F.lit(None).cast(wanted)
    more = f", {BY_NAME[name].unit}, or a timestamp" if name == "time" else ""
    raise TraceFormatError(
        f"is {stored.simpleString()}, needs {wanted.simpleString()}{more}; cast it, or map another column: "
        f'columns={{"{name}": "…"}}',
        field=name,
    )


def _becomes(stored: T.DataType, wanted: T.DataType) -> bool:
    """Whether values of type `stored` become `wanted` without loss; _lost checks decimals value by value."""
    if isinstance(wanted, T.StringType):
        return isinstance(stored, (*TEXTS, *INTEGERS)) or (
            isinstance(stored, T.DecimalType) and stored.scale == 0
        )
    if isinstance(wanted, T.LongType) and isinstance(stored, T.DecimalType):
        return True
    if isinstance(wanted, INTEGERS):
        return isinstance(stored, INTEGERS) and INTEGERS.index(type(stored)) <= INTEGERS.index(type(wanted))
    if isinstance(wanted, T.ArrayType):
        return isinstance(stored, T.ArrayType) and _becomes(stored.elementType, wanted.elementType)
    if isinstance(wanted, T.MapType):
        return isinstance(stored, T.MapType) and all(
            _becomes(getattr(stored, part), getattr(wanted, part)) for part in ("keyType", "valueType")
        )
    if isinstance(wanted, T.StructType):
        return isinstance(stored, T.StructType) and all(
            field.name in stored.names and _becomes(stored[field.name].dataType, field.dataType)
            for field in wanted
        )
    return type(stored) is type(wanted)


def _inexact(name: str, stored: T.DataType) -> Column | None:
    """A column: why a row's value would not convert without loss, else null; None if all values convert."""
    wanted = TRACE[name].dataType
    if not _becomes(stored, wanted) or (lost := _lost(F.col(name), stored, wanted)) is None:
        return None
    reason = F.concat(F.lit(f"{name} "), F.col(name).cast("string"), F.lit(" is no integer of 64 bits"))
    return F.when(lost, reason)


def _lost(column: Column, stored: Any, wanted: Any) -> Column | None:
    """A column: whether a value has a fraction or needs over 64 bits; None if no value of the type does."""
    if isinstance(wanted, T.LongType) and isinstance(stored, T.DecimalType):
        bad = []
        if stored.scale:
            bad.append(column % 1 != 0)
        if stored.precision - stored.scale > DIGITS:
            bad.append(~column.between(-(2**BITS), 2**BITS - 1))
        return F.coalesce(reduce(or_, bad), F.lit(False)) if bad else None
    if isinstance(wanted, T.ArrayType):
        inner, whole = stored.elementType, wanted.elementType
        if _lost(column, inner, whole) is None:
            return None
        return F.coalesce(
            F.exists(column, lambda each: cast(Column, _lost(each, inner, whole))), F.lit(False)
        )
    if isinstance(wanted, T.MapType):
        values = F.map_values(column)
        return _lost(values, T.ArrayType(stored.valueType), T.ArrayType(wanted.valueType))
    if isinstance(wanted, T.StructType):
        fields = (_lost(column[name], stored[name].dataType, wanted[name].dataType) for name in wanted.names)
        bad = [lost for lost in fields if lost is not None]
        return reduce(or_, bad) if bad else None
    return None


def _cast(column: Column, stored: Any, wanted: Any) -> Column:
    """Spark casts structs by position; here their fields are matched by name."""
    if isinstance(wanted, T.ArrayType) and isinstance(wanted.elementType, T.StructType):
        fields = wanted.elementType
        return F.transform(
            column,
            lambda each: F.when(
                each.isNotNull(),
                F.struct(*(each[field.name].cast(field.dataType).alias(field.name) for field in fields)),
            ),
        )
    return column.cast(wanted)


def _nanoseconds(stored: T.DataType) -> Column:
    """Null before 1677 and after 2262, where nanoseconds do not fit 64 bits."""
    column = F.col("time")
    if isinstance(stored, T.TimestampNTZType):
        # Computed from days, hours, …: timestampdiff would shift times in an hour that the zone skips.
        days, seconds = F.unix_date(column.cast("date")), F.hour(column) * 3600 + F.minute(column) * 60
        parts = (days.cast("long") * 86_400 + seconds) * 1_000_000
        micros = parts + (F.expr("extract(SECOND FROM time)") * 1_000_000).cast("long")
    else:
        micros = F.unix_micros(column)
    return F.try_multiply(micros, F.lit(NANOSECONDS).cast("long"))
