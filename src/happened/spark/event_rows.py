"""A trace as a DataFrame of events, and of the rows that cannot be part of one.

In    a path that `trace.locate` finds a trace at
Out   rows of trace.SCHEMA; a line of JSON that is no event has the reason in UNREADABLE, and nothing else
Cost  one scan, when the frame is used; nothing reaches the driver

Parquet that Spark can reach by itself is read by Spark, which reads only the columns and rows that a query
needs. In a store tasks read it, as in an analysis: Spark may have no connector for that.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from ..core.errors import TraceFormatError
from ..trace.column_types import check_columns, is_stored_whole, known_columns
from ..trace.location import Location, locate
from ..trace.reader import open_part
from ..trace.schema import SCHEMA
from ..trace.store import AnyPath, StorePath
from .schemas import TRACE
from .splits import UNCHECKED, Split, splits_of
from .tasks import frame_by_tasks

UNREADABLE = "_unreadable"
"""Why a line of JSON is no event, as quarantine says it."""

ROWS = UNCHECKED.append(pa.field(UNREADABLE, pa.string()))


def read_events(spark: SparkSession, path: AnyPath) -> DataFrame:
    at = locate(path)
    if at.is_json:
        events = _read_by_tasks(spark, splits_of(at))
    elif isinstance(at.root, StorePath):
        events = _read_by_tasks(spark, splits_of(at)).drop(UNREADABLE)
    else:
        events = _read_parquet(spark, at)
    return events.fillna({"computation": "", "relevant": False})


def _read_by_tasks(spark: SparkSession, splits: Sequence[Split]) -> DataFrame:
    schema = StructType([StructField(field.name, field.dataType) for field in TRACE])

    def read(number: int) -> Iterator[pa.RecordBatch]:
        rows, unread = splits[number].read_all()
        nulls = [pa.nulls(unread.num_rows, field.type) for field in UNCHECKED]
        yield from pa.table([*rows.columns, pa.nulls(rows.num_rows, pa.string())], schema=ROWS).to_batches()
        yield from pa.table([*nulls, unread["reason"]], schema=ROWS).to_batches()

    return frame_by_tasks(spark, len(splits), read, schema.add(UNREADABLE, StringType()))


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
