"""Writes tables with Spark's own writers, into a directory, a URL or a schema of the catalog.

    check_destination   checks before the work that all tables can be written to a destination
    write_tables        writes them; `mode`: whether a table replaces, extends or refuses an existing one

A successful check is no guarantee: a disk may fill up, or somebody else may write meanwhile.
"""

import os
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, MapType, StructType

from ..core.errors import CausalityError
from .storage import spark_schema

REFUSING = ("error", "errorifexists")
MODES = (*REFUSING, "overwrite", "append", "ignore")
FLAT = ("csv", "text")
"""Spark's formats that cannot store columns of arrays, maps or structs."""

Where = str | os.PathLike[str]


def check_destination(
    spark: SparkSession, where: Where, format: str, mode: str, tables: Mapping[str, pa.Schema]
) -> None:
    """CausalityError if the tables cannot be written; writes nothing."""
    if mode not in MODES:
        raise CausalityError(f"mode can be error, overwrite, append or ignore; not {mode!r}")
    if _condition(_failure_of_reading(spark, format)) == "DATA_SOURCE_NOT_FOUND":
        raise CausalityError(_no_format(format))
    for name, schema in tables.items():
        _refuse_nested(name, spark_schema(schema), format)
    if _is_schema(where):
        _refuse_no_schema(spark, os.fspath(where))
    if mode in REFUSING:
        for name in _existing(spark, where, tables):
            raise CausalityError(_exists(_place(where, name)))


def write_tables(
    where: Where, format: str, mode: str, options: Mapping[str, Any], tables: Mapping[str, DataFrame]
) -> None:
    """Let Spark write every table."""
    for name, frame in tables.items():
        place = _place(where, name)
        writer = frame.write.format(format).mode(mode).options(**options)
        try:
            if _is_schema(where):
                writer.saveAsTable(place)
            else:
                writer.save(place)
        except Exception as error:  # its class depends on the format; on classic sessions it may be Java's
            reason = _not_written(place, format, error)
            if reason is None:
                raise
            raise CausalityError(reason) from error


def _is_schema(where: Where) -> bool:
    return isinstance(where, str) and "/" not in where


def _place(where: Where, name: str) -> str:
    return f"{where}.{name}" if _is_schema(where) else f"{os.fspath(where).rstrip('/')}/{name}"


def _failure_of_reading(spark: SparkSession, format: str, *path: str) -> Exception | None:
    """The error if Spark cannot plan a read; planning looks at names and files, and runs no job."""
    try:
        spark.read.format(format).load(*path).schema  # noqa: B018  (Spark Connect plans the read only here)
    except Exception as error:
        return error
    return None


def _condition(error: Exception | None) -> str:
    """The name of Spark's error."""
    if re.search("Failed to find (the )?data source", str(error)):
        return "DATA_SOURCE_NOT_FOUND"  # Avro and Kafka have errors of their own for this
    named = re.search(r"\[([A-Z_]+)", str(error))
    return named[1] if named else ""


def _refuse_nested(table: str, schema: StructType, format: str) -> None:
    if format.lower() not in FLAT:
        return
    for field in schema:
        if isinstance(field.dataType, (ArrayType, MapType, StructType)):
            raise CausalityError(
                f"{format} cannot hold the column {field.name} of {table}, {field.dataType.simpleString()}; "
                "write parquet, orc or json"
            )


def _refuse_no_schema(spark: SparkSession, schema: str) -> None:
    try:
        is_there = spark.catalog.databaseExists(schema)
    except Exception as error:
        if "NOT_FOUND" not in str(error):
            raise
        is_there = False
    if not is_there:
        raise CausalityError(_no_schema(schema))


def _existing(spark: SparkSession, where: Where, tables: Mapping[str, object]) -> list[str]:
    """The tables that are there already."""
    if _is_schema(where):
        return [name for name in tables if spark.catalog.tableExists(_place(where, name))]
    if not _is_path(spark, os.fspath(where)):
        return []
    return [name for name in tables if _is_path(spark, _place(where, name))]


def _is_path(spark: SparkSession, path: str) -> bool:
    """Ask Spark whether the path exists: its tasks write there, with its own connectors and permissions."""
    return _condition(_failure_of_reading(spark, "text", path)) != "PATH_NOT_FOUND"


def _not_written(place: str, format: str, error: Exception) -> str | None:
    """Why Spark did not write a table, in our words; None for other errors."""
    condition = _condition(error)
    if condition == "SCHEMA_NOT_FOUND":
        return _no_schema(place.rpartition(".")[0])
    if condition in ("PATH_ALREADY_EXISTS", "TABLE_OR_VIEW_ALREADY_EXISTS"):
        return _exists(place)
    if condition == "DATA_SOURCE_NOT_FOUND":
        return _no_format(format)
    if isinstance(error, AnalysisException):
        return f"{place}: Spark does not write it ({str(error).splitlines()[0]})"
    return None


def _no_format(format: str) -> str:
    return f"this session has no such format, {format!r}; give its jar to the session (--packages)"


def _no_schema(schema: str) -> str:
    return f"{schema}: there is no such schema in the catalog; create it, or write ./NAME for a directory"


def _exists(place: str) -> str:
    return f'{place} exists already; name another place, or say mode="overwrite" or mode="append"'
