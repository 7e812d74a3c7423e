"""A trace as a DataFrame of events, and the rows that cannot be part of one.

In    a path that `trace.locate` finds a trace at
Out   rows of trace.SCHEMA; `fault` says why a row is no event, and such rows are quarantined
Cost  one scan; nothing reaches the driver
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from ..core.errors import TraceFormatError
from ..trace.column_types import check_columns, is_stored_whole, known_columns
from ..trace.jsonl import event_from_json
from ..trace.location import Location, locate
from ..trace.reader import open_part
from ..trace.schema import KINDS, SCHEMA
from ..trace.store import AnyPath
from .schemas import TRACE

UNREADABLE = "_unreadable"
"""Why a line of JSON is no event."""

JSON_ROWS = pa.schema([field.with_nullable(True) for field in SCHEMA]).append(
    pa.field(UNREADABLE, pa.string())
)


def read_events(spark: SparkSession, path: AnyPath) -> DataFrame:
    at = locate(path)
    events = _read_json(spark, at.root) if at.is_json else _read_parquet(spark, at)
    return events.fillna({"computation": "", "relevant": False})


def _read_json(spark: SparkSession, path: AnyPath) -> DataFrame:
    """Line by line through the reader that `trace.read` has: Spark's own coerces types and drops fields."""
    schema = StructType([*TRACE.fields, StructField(UNREADABLE, StringType())])
    schema = StructType([StructField(field.name, field.dataType) for field in schema])
    file = str(path)

    def parse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            lines = (line for line in batch["line"].to_pylist() if line.strip())
            yield pa.RecordBatch.from_pylist([_row(line, file) for line in lines], schema=JSON_ROWS)

    lines = spark.read.text(file).select(F.col("value").cast("binary").alias("line"))
    return lines.mapInArrow(parse, schema)


def _row(line: bytes, file: str) -> dict[str, object]:
    try:
        return event_from_json(line, file, 0, needs=())
    except TraceFormatError as error:
        if error.field is not None:
            return {UNREADABLE: f"field {error.field!r}: {error.reason}"}
        return {UNREADABLE: f"is not JSON: {line[:80].decode(errors='replace')}"}


def _read_parquet(spark: SparkSession, at: Location) -> DataFrame:
    unread = _unread(at)
    schema = StructType([field for field in TRACE.fields if field.name not in unread])
    columns = [
        F.lit(None).cast(field.dataType).alias(field.name) if field.name in unread else F.col(field.name)
        for field in TRACE.fields
    ]
    return spark.read.schema(schema).parquet(str(at.root)).select(columns)


def _unread(at: Location) -> set[str]:
    """The columns to leave out, for they hold nothing, or nothing that is asked for.

    Spark reads a column as the type it is stored in, or a wider one, and finds out in a task whether it is;
    so the types of all parts are looked at before. Values are not: none is cast that could be lost.
    """
    empty, unasked = set[str](), set[str]()
    read: dict[str, AnyPath] = {}
    for part in at.parts:
        file = open_part(part)
        check_columns(part, file, frozenset(at.partition(part)))
        for stored in known_columns(file):
            if is_stored_whole(file, stored):
                read[stored.name] = part
            else:
                (empty if pa.types.is_null(stored.type) else unasked).add(stored.name)
        for name in empty & read.keys():
            raise _null_in_some_parts(name, part, read[name])
    return empty | unasked


def _null_in_some_parts(name: str, part: AnyPath, other: AnyPath) -> TraceFormatError:
    return TraceFormatError(
        f"is null in some parts, {SCHEMA.field(name).type} in others ({other.name}); write all parts with "
        "one schema",
        file=str(part),
        field=name,
    )


def fault(rows: DataFrame) -> Column:
    """Why a row is not an event; null if it is."""
    kind, message = F.col("kind"), F.col("message")
    line = F.col(UNREADABLE) if UNREADABLE in rows.columns else F.lit(None).cast("string")
    return (
        F.when(line.isNotNull(), line)
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
