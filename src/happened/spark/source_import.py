"""Imports whatever Spark can read: a path in one of its formats, or a table of the catalog.

In    a name, Spark's format for it, and what its rows are (`format`, as of an import of files)
Out   as trace.importing: OUT/trace, OUT/quarantine, OUT/import.json, all at once or not at all
Cost  that of the functions on frames (record_frames), and of writing their rows
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ..core.errors import TraceFormatError
from ..trace.atomic import whole_directory
from ..trace.importing import AUTO, EXAMPLES, Import, not_understood, refuse_nothing, write_summary
from ..trace.readers import QUARANTINE, Options, QuarantinedRecord, mapped
from ..trace.readers.table_spans import JAEGER, OPENTELEMETRY, TEMPO, ZIPKIN
from ..trace.schema import SCHEMA, SENDS
from ..trace.store import AnyPath, remove_tree
from .event_rows import UNREADABLE
from .record_frames import dag, history, log, spans
from .storage import TRACE, read_rows, write_rows

TABLE, JDBC = "table", "jdbc"

FRAMES: dict[str, Callable[..., DataFrame]] = {
    AUTO: spans,
    "otlp": partial(spans, preset=OPENTELEMETRY),
    "jaeger": partial(spans, preset=JAEGER),
    "zipkin": partial(spans, preset=ZIPKIN),
    TEMPO: partial(spans, preset=TEMPO),
    "map-spans": partial(spans, preset=OPENTELEMETRY),
    "dag": dag,
    "map": log,
    "awdit": history,
}
"""What makes events of a frame, by the format of its records."""
SPANS = FRAMES.keys() - {"dag", "map", "awdit"}


def run(
    spark: SparkSession,
    source: str,
    name: str,
    out: AnyPath,
    reading: Mapping[str, str],
    *,
    format: str = AUTO,
    options: Options | None = None,
    strict: bool = False,
) -> Import:
    """Let Spark read `name` in the format `source`, with its reader's options, into a new trace."""
    options = options or Options()
    columns: dict[str, str] = {}
    if options.map is not None:
        mapping = mapped.Mapping(options.map)
        format = ("map-spans" if mapping.is_spans else "map") if format == AUTO else format
        columns = {"position" if ours == "seq" else ours: path for ours, path in mapping.source.items()}
    if format not in FRAMES:
        raise TraceFormatError(f"tables are not read as {format}; known: {', '.join(FRAMES)}", field="format")
    try:
        frame = _read(spark, source, name, reading)
    except AnalysisException as error:
        raise TraceFormatError(f"Spark cannot read it ({str(error).splitlines()[0]})", file=name) from error
    with whole_directory(out) as folder:
        work = {"work": folder / ".work"} if format in SPANS else {}
        events = FRAMES[format](frame, columns=columns, **work)
        write_rows(_rows(events), folder / "trace")
        write_rows(_left_out(events, name), folder / "quarantine")
        trace = read_rows(spark, folder / "trace", SCHEMA)
        quarantine = read_rows(spark, folder / "quarantine", QUARANTINE)
        told = _counted(trace, quarantine)
        first = [QuarantinedRecord(**row.asDict()) for row in quarantine.limit(EXAMPLES).collect()]
        if strict and first:
            raise not_understood(str(first[0]), told["quarantined"])
        refuse_nothing(told["events"], first)
        summary: dict[str, Any] = {
            "format": format,
            "options": asdict(options),
            **told,
            "quarantine_examples": [str(each) for each in first],
            "facts": {},
            "remarks": [],
            "files": [{"file": name, "source": source, "quarantined": told["quarantined"]}],
        }
        remove_tree(folder / ".work")
        write_summary(folder, summary)
    return Import(summary, first)


def _read(spark: SparkSession, source: str, name: str, reading: Mapping[str, str]) -> DataFrame:
    if source == TABLE:
        return spark.table(name)
    reader = spark.read.format(source).options(**reading)
    return reader.option("dbtable", name).load() if source == JDBC else reader.load(name)


def _rows(events: DataFrame) -> DataFrame:
    return events.where(F.col(UNREADABLE).isNull()).select(*TRACE.names)


def _left_out(events: DataFrame, name: str) -> DataFrame:
    rows: Any = events.quarantine  # an attribute that draft_frames gave it, not a column
    file, line = F.lit(name).alias("file"), F.lit(None).cast("long").alias("line")
    picked: DataFrame = rows.select(
        file, line, *(each for each in QUARANTINE.names if each not in ("file", "line"))
    )
    return picked


def _counted(trace: DataFrame, quarantine: DataFrame) -> dict[str, int]:
    events = trace.agg(
        F.countDistinct("computation").alias("computations"),
        F.count("*").alias("events"),
        F.count_if(F.col("kind").isin(*SENDS)).alias("messages"),
        F.countDistinct("process").alias("processes"),
    ).first()
    left = quarantine.agg(
        F.count("*").alias("quarantined"), F.count_if("imported").alias("quarantined_imported")
    ).first()
    assert events is not None and left is not None
    return {**events.asDict(), **left.asDict()}
