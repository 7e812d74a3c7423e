"""Frames of spans, as tracing systems leave them in tables, as frames of events.

    events = spans(spark.table("otel.spans"))
    violations(events).show()

Rows become the records that the readers of files take (trace/readers/table_spans.py), so the events are those
that `happened import` makes of the same spans.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from pyspark.sql import Column, DataFrame

from ..core.errors import TraceFormatError
from ..trace.readers.spans import assemble
from ..trace.readers.table_spans import PRESETS, drafts_of, recognised
from ..trace.store import StorePath
from .draft_frames import events_of
from .event_columns import column_at

Columns = Mapping[str, str | Column]


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
    for ours, theirs in columns.items():
        if ours not in field_of:
            known = ", ".join(field_of)
            raise TraceFormatError(f"is not a column of spans of {preset}; those are {known}", field=ours)
        column = column_at(frame, theirs) if isinstance(theirs, str) else theirs
        if column is None:
            has = ", ".join(frame.columns)
            raise TraceFormatError(
                f"is mapped to {theirs!r}, which the frame does not have; it has {has}", field=ours
            )
        found[field_of[ours]] = column
    picked = frame.select(*(column.alias(field) for field, column in found.items() if column is not None))
    return events_of(picked, partial(drafts_of, preset), assemble, linked=True, work=work)
