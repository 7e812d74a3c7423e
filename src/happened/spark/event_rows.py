"""A trace as a DataFrame: its events, and the rows that are not events.

In    a path that `trace.locate` finds a trace at
Out   rows of trace.SCHEMA; a line of JSON that is not an event has the reason in UNREADABLE, and nothing else
Cost  one scan, when the frame is used; nothing reaches the driver

Spark reads it: of Parquet only the columns and rows that a query needs. With io="direct" tasks read what lies
in a store, with credentials of their own, since Spark may have no connector for it.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from ..core.errors import TraceFormatError
from ..trace.location import Location, locate
from ..trace.reader import check_columns, is_stored_whole, known_columns, open_part
from ..trace.schema import DEFAULTS, QUARANTINE, SCHEMA
from ..trace.store import AnyPath, StorePath
from .schemas import TRACE
from .splits import UNCHECKED, Split, read_lines, splits_of
from .storage import DIRECT, SPARK, spark_path
from .tasks import frame_by_tasks

UNREADABLE = "_unreadable"
"""The column with the reason why a row is not an event; such a row may name its computation, and nothing
else."""

ROWS = UNCHECKED.append(pa.field(UNREADABLE, pa.string()))


def read_events(
    spark: SparkSession, path: AnyPath, *, io: str = SPARK, every_column: bool = True
) -> DataFrame:
    """every_column whether columns that Parquet files lack are added, as nulls; each costs as much as any
    other"""
    at = locate(path)
    if io == DIRECT and isinstance(at.root, StorePath):
        events = _read_by_tasks(spark, splits_of(at))
        events = events if at.is_json else events.drop(UNREADABLE)
    elif at.is_json:
        events = _read_lines(spark, at.root)
    else:
        events = _read_parquet(spark, at, every_column)
    return events.fillna({name: value for name, value in DEFAULTS.items() if name in events.columns})


def _read_lines(spark: SparkSession, path: AnyPath) -> DataFrame:
    """JSON lines as Spark reads text; a line that is not an event has the reason in UNREADABLE."""

    def parse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from with_reasons(*read_lines(batch["line"].to_pylist(), str(path))).to_batches()

    lines = spark.read.text(spark_path(path), lineSep="\n").select(
        F.col("value").cast("binary").alias("line")
    )
    return lines.mapInArrow(parse, _with_unreadable())


def _with_unreadable() -> StructType:
    schema = StructType([StructField(field.name, field.dataType) for field in TRACE])
    return schema.add(UNREADABLE, StringType())


def sort_out_unread(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The rows without a reason in UNREADABLE, and without that column; the others as rows of QUARANTINE."""
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
    """Rows of ROWS: possible events, and lines that are not events, with the reasons of QUARANTINE."""
    nulls = [pa.nulls(unread.num_rows, field.type) for field in UNCHECKED]
    events = pa.table([*rows.columns, pa.nulls(rows.num_rows, pa.string())], schema=ROWS)
    return pa.concat_tables([events, pa.table([*nulls, unread["reason"]], schema=ROWS)])


def _read_by_tasks(spark: SparkSession, splits: Sequence[Split]) -> DataFrame:
    def read(number: int) -> Iterator[pa.RecordBatch]:
        yield from with_reasons(*splits[number].read_all()).to_batches()

    return frame_by_tasks(spark, len(splits), read, _with_unreadable())


def _read_parquet(spark: SparkSession, at: Location, every_column: bool) -> DataFrame:
    read = _read_columns(at)
    schema = StructType([field for field in TRACE.fields if field.name in read])
    columns = [
        F.col(field.name) if field.name in read else F.lit(None).cast(field.dataType).alias(field.name)
        for field in TRACE.fields
        if every_column or field.name in read
    ]
    return spark.read.schema(schema).parquet(spark_path(at.root)).select(columns)


def _read_columns(at: Location) -> set[str]:
    """The columns to read: those that hold something and are asked for.

    Spark reads a column as the type it is stored in, or a wider one, and finds out in a task whether it is;
    so the types of all parts are looked at before. Values need no check: no cast here can lose one.
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
