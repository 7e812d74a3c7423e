"""A trace as a DataFrame of events, and the rows that cannot be part of one.

In    a path that `trace.read` would take (Parquet parts, a directory with a trace/ inside, JSON lines)
Out   rows of trace.SCHEMA; a row that lacks what its kind needs is turned away with the reason
Cost  one scan; nothing reaches the driver
"""

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from ..core.errors import TraceFormatError
from ..trace.reader import open_part
from ..trace.schema import KINDS, SCHEMA
from .schemas import TRACE

CORRUPT = "_unreadable"
"""A line of JSON that is none, as it stands."""

COUNTS = ("control_entries", "control_bytes")
"""Columns that no question looks at; other writers make them wider."""


def read_events(spark: SparkSession, path: Path) -> DataFrame:
    if path.is_file() and path.suffix in (".jsonl", ".ndjson", ".json"):
        schema = StructType([*TRACE.fields, StructField(CORRUPT, StringType())])
        events = spark.read.schema(schema).option("columnNameOfCorruptRecord", CORRUPT).json(str(path))
    else:
        place = _parquet(path)
        parts = [place]
        if not place.is_file():
            parts = sorted(p for p in place.rglob("*.parquet") if _is_part(p.relative_to(place)))
        unread = _unread(parts)
        schema = StructType([field for field in TRACE.fields if field.name not in unread])
        columns = [
            F.lit(None).cast(field.dataType).alias(field.name) if field.name in unread else F.col(field.name)
            for field in TRACE.fields
        ]
        events = spark.read.schema(schema).parquet(str(place)).select(columns)
    return events.fillna({"computation": "", "relevant": False})


def _parquet(path: Path) -> Path:
    inside = path / "trace"
    for place in (inside, path):
        if place.is_file() or any(_is_part(p.relative_to(place)) for p in place.rglob("*.parquet")):
            return place
    raise TraceFormatError(
        "no trace here: give a directory of .parquet parts (or with a trace/ inside), one .parquet file, or "
        "JSON lines; `happened import` makes one from other systems' logs",
        file=str(path),
    )


def _is_part(inside: Path) -> bool:
    """Whether Spark reads the file: it lies at the top, or in directories that are partitions, name=value."""
    return not inside.name.startswith((".", "_")) and all("=" in folder for folder in inside.parts[:-1])


def _unread(parts: Sequence[Path]) -> set[str]:
    """The columns to leave out, for they hold nothing, or nothing that is asked for.

    Spark reads a column as the type it is stored in, or a wider one, and finds out in a task whether it is;
    so the types of all parts are looked at before. Values are not: none is cast that could be lost.
    """
    empty, unasked, read = set(), set(), {}
    for part in parts:
        file = open_part(part)
        old = {column.path for column in file.schema if column.physical_type == "INT96"}  # Spark's timestamps
        for stored in file.schema_arrow:
            if stored.name not in SCHEMA.names:
                continue
            wanted = SCHEMA.field(stored.name).type
            if reads_as(stored.type, wanted) and stored.name not in old:
                read[stored.name] = part
            elif pa.types.is_null(stored.type):
                empty.add(stored.name)
            elif stored.name in COUNTS and pa.types.is_integer(stored.type):
                unasked.add(stored.name)
            else:
                raise _wrong_type(part, stored, wanted)
        for name in empty & read.keys():
            raise TraceFormatError(
                f"is null in some parts, {SCHEMA.field(name).type} in others ({read[name].name}); write all "
                "parts with one schema",
                file=str(part),
                field=name,
            )
    return empty | unasked


def _wrong_type(part: Path, stored: pa.Field, wanted: pa.DataType) -> TraceFormatError:
    unit = ", nanoseconds" if stored.name == "time" else ""
    reason = f"is {stored.type}, needs {wanted}{unit}; cast the column and write the part again"
    return TraceFormatError(reason, file=str(part), field=stored.name)


def reads_as(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether Spark reads what a file declares as `stored` as `wanted`, and no value is another one then."""
    types = pa.types
    if types.is_dictionary(stored):
        stored = stored.value_type
    if types.is_string(wanted):
        return any(
            is_text(stored)
            for is_text in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
        )
    if types.is_integer(wanted):
        if types.is_null(stored):
            return True
        if stored == pa.timestamp("ns"):
            return bool(types.is_int64(wanted))
        # Unsigned numbers need a bit more.
        return types.is_integer(stored) and (
            stored.bit_width + types.is_unsigned_integer(stored) <= wanted.bit_width
        )
    if types.is_map(wanted):
        return types.is_map(stored) and all(
            reads_as(getattr(stored, part), getattr(wanted, part)) for part in ("key_type", "item_type")
        )
    if types.is_list(wanted):
        is_list = types.is_list(stored) or types.is_large_list(stored)
        return is_list and reads_as(stored.value_type, wanted.value_type)
    if types.is_struct(wanted):
        return types.is_struct(stored) and all(
            stored.get_field_index(field.name) >= 0 and reads_as(stored.field(field.name).type, field.type)
            for field in wanted
        )
    return bool(stored == wanted)


def local_files(events: DataFrame) -> list[str]:
    """The Parquet files that the rows come from, as paths; none if they come from anything else."""
    paths = [
        unquote(urlparse(uri).path) for uri in events.inputFiles() if urlparse(uri).scheme in ("", "file")
    ]
    # Of a file in a directory column=value only Spark knows that column.
    partitioned = any(
        folder.partition("=")[0] in TRACE.names for path in paths for folder in Path(path).parts
    )
    whole = paths and not partitioned and all(path.endswith(".parquet") for path in paths)
    return sorted(paths) if whole else []


def fault(rows: DataFrame) -> Column:
    """Why a row is not an event; null if it is."""
    kind, message = F.col("kind"), F.col("message")
    line = F.col(CORRUPT) if CORRUPT in rows.columns else F.lit(None).cast("string")
    return (
        F.when(line.isNotNull(), F.concat(F.lit("is not JSON: "), F.substring(line, 1, 80)))
        .when(F.col("process").isNull(), "no process")
        .when(F.col("seq").isNull() | (F.col("seq") < 1), "seq is not a number from 1")
        .when(
            kind.isNull() | ~kind.isin(*KINDS),
            F.concat(F.lit("unknown kind "), F.coalesce(kind, F.lit("null"))),
        )
        .when((kind != "internal") & message.isNull(), F.concat(kind, F.lit(" without a message")))
        .when((kind == "send") & F.col("to").isNull(), "send without destinations")
        .when(F.exists("to", lambda name: name.isNull()), "to holds a null")
    )
