"""Turns frames of spans, commits, messages or transactions into frames of events.

    spans(spark.table("otel.spans"))
    dag(commits)           id, parents
    log(deliveries)        process, kind, message, and what orders a process's events: position, or an offset
    history(transactions)  session, transaction, operations

Rows are converted to records for the file readers (trace/readers/table_spans.py, table_records.py), which
then process them. `columns` maps our column names to the frame's where these differ: to a name, a path into
structs and maps, or an expression. A row that cannot be read stays in the frame with the reason;
`frame.quarantine` has everything that was left out.

`import_source` lets Spark read a path in any of its formats, or a table of the catalog, and writes the events
as an import of files does: OUT/trace, OUT/quarantine, OUT/import.json, all at once or not at all.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ..core.errors import TraceFormatError
from ..trace.atomic import whole_directory
from ..trace.importing import AUTO, EXAMPLES, Import, not_understood, refuse_nothing, write_summary
from ..trace.readers import QUARANTINE, Options, QuarantinedRecord, mapped
from ..trace.readers import table_records as records
from ..trace.readers.spans import assemble
from ..trace.readers.table_spans import JAEGER, OPENTELEMETRY, PRESETS, TEMPO, ZIPKIN, drafts_of, recognised
from ..trace.schema import SCHEMA, SENDS
from ..trace.store import AnyPath, StorePath, remove_tree
from .draft_frames import events_of
from .event_rows import UNREADABLE, column_at, mapped_column
from .storage import TRACE, read_rows, write_rows

Columns = Mapping[str, str | Column]

KAFKA = ("topic", "partition", "offset")
OF_KAFKA = {*KAFKA, "headers", "key", "value", "timestamp", "timestampType"}


def dag(frame: DataFrame, columns: Columns | None = None) -> DataFrame:
    """Records that name their predecessors: commits, blocks, editing histories.

    id, parents   required; parents is an array
    computation   the graph that a record belongs to, if there are several
    author        a process of the trace; without authors, chains that add no order become the processes
    time          a timestamp, or seconds since 1970
    label         the record's name for people; the id if not given

    Other columns become attributes.
    """
    found = _found(frame, records.DAG, columns or {}, needed=("id", "parents"))
    return events_of(_picked(frame, found, columns or {}), records.dag_drafts, records.assemble_dag)


def log(frame: DataFrame, columns: Columns | None = None) -> DataFrame:
    """A log of messages: each row has a process, a kind (send, receive, deliver, …) and a message.

    position      orders the events of a process (or `seq`): required; a time only if you map one to it. A
                  frame that Spark read from Kafka is ordered by `offset`, within one partition, and headers
                  that have our column names are used
    to            the destinations of a message: an array or text with commas; if missing, its receivers
    computation, time (a timestamp or ns), label, id, parents (ids)   optional

    Other columns become attributes.
    """
    columns = columns or {}
    is_kafka = {*KAFKA} <= {*frame.columns}
    found = _found(frame, records.LOG, columns, needed=())
    if is_kafka and "headers" in frame.columns:
        found = {name: _header(name) for name in records.LOG if name != "position"} | found
    if is_kafka and "time" not in columns and "timestamp" in frame.columns:
        found["time"] = F.col("timestamp")
    if "position" not in found and (numbered := column_at(frame, "seq")) is not None:
        found["position"] = numbered
    elif "position" not in found and is_kafka:
        found |= {"position": F.col("offset"), records.PARTITION: F.concat_ws("/", "topic", "partition")}
    for name in ("process", "position"):
        if name not in found:
            raise _missing(frame, name, "; a time is taken only if you name it" if name == "position" else "")
    return events_of(
        _picked(frame, found, columns, OF_KAFKA if is_kafka else ()), records.log_drafts, records.assemble_log
    )


def history(frame: DataFrame, columns: Columns | None = None) -> DataFrame:
    """Transactions of a database, one in each row; a read value's writer happened before its reader.

    session       a process of the trace
    transaction   a number: the place of the transaction in its session
    operations    an array of (r or w, key, value): structs, arrays, or text `w key value`
    """
    found = _found(frame, records.HISTORY, columns or {}, needed=records.HISTORY[:3])
    picked = frame.select(*(column.alias(name) for name, column in found.items()))
    return events_of(picked, records.history_drafts, records.assemble_history)


def _found(
    frame: DataFrame, names: Iterable[str], columns: Columns, needed: Iterable[str]
) -> dict[str, Column]:
    """The frame's column for each of our column names that the frame has."""
    names = [*names]
    for name in columns.keys() - {*names}:
        raise TraceFormatError(f"is none of {', '.join(names)}", field=name)
    mapped = {name: mapped_column(frame, name, columns) for name in names}
    found = {name: column for name, column in mapped.items() if column is not None}
    for name in needed:
        if name not in found:
            raise _missing(frame, name)
    return found


def _missing(frame: DataFrame, name: str, more: str = "") -> TraceFormatError:
    return TraceFormatError(
        f"no such column; the frame has {', '.join(frame.columns)}; say which of them it is: "
        f'columns={{"{name}": "…"}}{more}',
        field=name,
    )


def _header(name: str) -> Column:
    """The value of a Kafka header, as text; null if there is none."""
    mine = F.filter("headers", lambda header: header["key"] == name)
    return F.get(mine, F.lit(0))["value"].cast("string")


def _picked(
    frame: DataFrame, found: Mapping[str, Column], columns: Columns, left_out: Iterable[str] = ()
) -> DataFrame:
    """The columns found, renamed to our names, and all columns that were not mapped to any."""
    mapped = {path for path in columns.values() if isinstance(path, str)}
    taken = {*found, "seq", *left_out, *mapped, *(path.partition(".")[0] for path in mapped)}
    others = [column_at(frame, name) for name in frame.columns if name not in taken]
    return frame.select(
        *(column.alias(name) for name, column in found.items()),
        *(column for column in others if column is not None),
    )


def spans(
    frame: DataFrame,
    columns: Columns | None = None,
    preset: str | None = None,
    *,
    work: "str | Path | StorePath | None" = None,
) -> DataFrame:
    """The events of spans: two for each, a start and an end, and calls between services as messages.

    preset    opentelemetry, jaeger, zipkin or tempo; recognised by the frame's columns if not given
    columns   for columns with other names: maps trace, span, parent, label, kind, start, end (numbers are ns,
              in jaeger and zipkin µs), duration (the same), service, instance, resource, attributes, links or
              status to a name, a path into structs and maps, or an expression
    work      a directory, as in `library`; used only where traces are linked with one another

    A row that cannot be read stays in the frame, with the reason; `frame.quarantine` has all that was left
    out, including parts of spans whose events are there (a parent that is missing, say).
    """
    columns = columns or {}
    preset = preset or recognised(frame.columns, columns)
    if preset not in PRESETS:
        raise TraceFormatError(f"{preset!r} is no preset; there are {', '.join(PRESETS)}", field="preset")
    kind = PRESETS[preset]
    field_of = {ours: field for field, ours in kind.columns.items() if ours}
    found = {field: column_at(frame, name) for field, name in kind.fields(frame.columns).items()}
    for ours in columns:
        if ours not in field_of:
            known = ", ".join(field_of)
            raise TraceFormatError(f"is not a column of spans of {preset}; those are {known}", field=ours)
        found[field_of[ours]] = mapped_column(frame, ours, columns)
    picked = frame.select(*(column.alias(field) for field, column in found.items() if column is not None))
    return events_of(picked, partial(drafts_of, preset), assemble, linked=True, work=work)


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
"""For each format of records, the function that makes events of a frame."""
SPANS = FRAMES.keys() - {"dag", "map", "awdit"}


def import_source(
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
    """Let Spark read `name` in the format `source`, with reader options `reading`, into a new trace."""
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
        write_rows(events.where(F.col(UNREADABLE).isNull()).select(*TRACE.names), folder / "trace")
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
