"""A trace as a DataFrame of events, and the rows that cannot be part of one.

In    a path that `trace.read` would take (Parquet parts, a directory with a trace/ inside, JSON lines)
Out   rows of trace.SCHEMA; a row that lacks what its kind needs is turned away with the reason
Cost  one scan; nothing reaches the driver
"""

from pathlib import Path
from urllib.parse import unquote, urlparse

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from ..core.errors import TraceFormatError
from ..trace.reader import open_part
from ..trace.schema import KINDS
from .schemas import TRACE

CORRUPT = "_unreadable"
"""A line of JSON that is none, as it stands."""


def read_events(spark: SparkSession, path: Path) -> DataFrame:
    if path.is_file() and path.suffix in (".jsonl", ".ndjson", ".json"):
        schema = StructType([*TRACE.fields, StructField(CORRUPT, StringType())])
        events = spark.read.schema(schema).option("columnNameOfCorruptRecord", CORRUPT).json(str(path))
    else:
        place = _parquet(path)
        for part in [place] if place.is_file() else sorted(place.rglob("*.parquet")):
            if part == place or _is_part(part.relative_to(place)):
                open_part(part)
        events = spark.read.schema(TRACE).parquet(str(place))
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
