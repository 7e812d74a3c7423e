"""Frames of spans, of commits, of messages and of transactions, as frames of events.

    spans(spark.table("otel.spans"))
    dag(commits)           id, parents
    log(deliveries)        process, kind, message, and what orders a process's events: position, or an offset
    history(transactions)  session, transaction, operations

Rows become the records that the readers of files take (trace/readers/table_spans.py, table_records.py), and
are processed alike. `columns` maps our names to the frame's where these differ: a name, a path into structs
and maps, or an expression. A row that cannot be read stays in the frame with the reason; `frame.quarantine`
has all that was left out.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ..core.errors import TraceFormatError
from ..trace.readers.spans import assemble
from ..trace.readers.table_records import (
    DAG,
    HISTORY,
    LOG,
    PARTITION,
    assemble_dag,
    assemble_history,
    assemble_log,
    dag_drafts,
    history_drafts,
    log_drafts,
)
from ..trace.readers.table_spans import PRESETS, drafts_of, recognised
from ..trace.store import StorePath
from .draft_frames import events_of
from .event_rows import column_at, mapped_column

Columns = Mapping[str, str | Column]

KAFKA = ("topic", "partition", "offset")
OF_KAFKA = {*KAFKA, "headers", "key", "value", "timestamp", "timestampType"}


def dag(frame: DataFrame, columns: Columns | None = None) -> DataFrame:
    """Records that name their predecessors: commits, blocks, editing histories.

    id, parents   needed; parents is an array
    computation   the graph that a record belongs to, if there are several
    author        a process of the trace; without, chains are found that add no order
    time          a timestamp, or seconds since 1970
    label         what people call it; the id if not given

    Other columns become attributes.
    """
    found = _found(frame, DAG, columns or {}, needed=("id", "parents"))
    return events_of(_picked(frame, found, columns or {}), dag_drafts, assemble_dag)


def log(frame: DataFrame, columns: Columns | None = None) -> DataFrame:
    """What processes did with messages: rows of process, kind (send, receive, deliver, …) and message.

    position      orders the events of a process (or `seq`): needed, and never a time unless you name one. A
                  frame that Spark read from Kafka is ordered by `offset`, within one partition, and headers
                  of our names are taken
    to            whom a message is sent to: an array or text with commas; without, whoever received it
    computation, time (a timestamp or ns), label, id, parents (ids)   may be there

    Other columns become attributes.
    """
    columns = columns or {}
    is_kafka = {*KAFKA} <= {*frame.columns}
    found = _found(frame, LOG, columns, needed=())
    if is_kafka and "headers" in frame.columns:
        found = {name: _header(name) for name in LOG if name != "position"} | found
    if is_kafka and "time" not in columns and "timestamp" in frame.columns:
        found["time"] = F.col("timestamp")
    if "position" not in found and (numbered := column_at(frame, "seq")) is not None:
        found["position"] = numbered
    elif "position" not in found and is_kafka:
        found |= {"position": F.col("offset"), PARTITION: F.concat_ws("/", "topic", "partition")}
    for name in ("process", "position"):
        if name not in found:
            raise _missing(frame, name, "; a time is taken only if you name it" if name == "position" else "")
    return events_of(_picked(frame, found, columns, OF_KAFKA if is_kafka else ()), log_drafts, assemble_log)


def history(frame: DataFrame, columns: Columns | None = None) -> DataFrame:
    """Transactions of a database, one in each row; a read value's writer happened before its reader.

    session       a process of the trace
    transaction   a number: the place of the transaction in its session
    operations    an array of (r or w, key, value): structs, arrays, or text `w key value`
    """
    found = _found(frame, HISTORY, columns or {}, needed=HISTORY[:3])
    picked = frame.select(*(column.alias(name) for name, column in found.items()))
    return events_of(picked, history_drafts, assemble_history)


def _found(
    frame: DataFrame, names: Iterable[str], columns: Columns, needed: Iterable[str]
) -> dict[str, Column]:
    """For each of our names, the column of the frame."""
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
    """The columns found, under our names, and all other columns that were not mapped."""
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
    columns   where columns are called otherwise: from trace, span, parent, label, kind, start, end (numbers
              are ns, in jaeger and zipkin µs), duration (the same), service, instance, resource, attributes,
              links or status to a name, a path into structs and maps, or an expression
    work      as of the other functions; used only where traces are linked with one another

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
