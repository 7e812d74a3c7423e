"""A trace as a DataFrame of events, and the rows that cannot be part of one.

In    a path that `trace.read` would take (Parquet parts, a directory with a trace/ inside, JSON lines)
Out   rows of trace.SCHEMA; a row that lacks what its kind needs is turned away with the reason
Cost  one scan; nothing reaches the driver
"""

from pathlib import Path
from urllib.parse import unquote, urlparse

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ..core.errors import TraceFormatError
from ..trace.schema import KINDS
from .schemas import TRACE


def read_events(spark: SparkSession, path: Path) -> DataFrame:
    if path.is_file() and path.suffix in (".jsonl", ".ndjson", ".json"):
        events = spark.read.schema(TRACE).json(str(path))
    else:
        events = spark.read.schema(TRACE).parquet(str(_parquet(path)))
    return events.fillna({"computation": "", "relevant": False})


def _parquet(path: Path) -> Path:
    inside = path / "trace"
    for place in (inside, path):
        if place.is_file() or any(p for p in place.rglob("*.parquet") if not p.name.startswith(".")):
            return place
    raise TraceFormatError(
        "no trace here: give a directory of .parquet parts (or with a trace/ inside), one .parquet file, or "
        "JSON lines; `happened import` makes one from other systems' logs",
        file=str(path),
    )


def local_files(events: DataFrame) -> list[str]:
    """The Parquet files that the rows come from, as paths; none if they come from anything else."""
    paths = [
        unquote(urlparse(uri).path) for uri in events.inputFiles() if urlparse(uri).scheme in ("", "file")
    ]
    return sorted(paths) if paths and all(path.endswith(".parquet") for path in paths) else []


def fault() -> Column:
    """Why a row is not an event; null if it is."""
    kind, message = F.col("kind"), F.col("message")
    return (
        F.when(F.col("process").isNull(), "no process")
        .when(F.col("seq").isNull() | (F.col("seq") < 1), "seq is not a number from 1")
        .when(
            kind.isNull() | ~kind.isin(*KINDS),
            F.concat(F.lit("unknown kind "), F.coalesce(kind, F.lit("null"))),
        )
        .when((kind != "internal") & message.isNull(), F.concat(kind, F.lit(" without a message")))
        .when((kind == "send") & F.col("to").isNull(), "send without destinations")
    )
