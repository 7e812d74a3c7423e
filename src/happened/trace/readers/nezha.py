"""Span tables of the Nezha data sets: CSV lines, one span each, a pod as process.

The header may be absent (a part of a larger file); ParentID is `root`, or empty, where there is none.
Times are nanoseconds.
"""

import csv

from .draft import Draft, Options, Parsed, QuarantinedRecord, excerpt
from .source import Source
from .span_drafts import Instance, Span, at, set_aside, span_id
from .spans import counts as span_counts

COLUMNS = (
    "TraceID",
    "SpanID",
    "ParentID",
    "PodName",
    "OperationName",
    "StartTimeUnixNano",
    "EndTimeUnixNano",
    "Duration",
)
NEEDED = ("TraceID", "SpanID", "PodName", "StartTimeUnixNano", "EndTimeUnixNano")


def parse(source: Source, options: Options) -> Parsed:
    columns: tuple[str, ...] = COLUMNS
    for number, text in source.lines():  # each by itself: an open quote must not swallow the rest of the file
        try:
            (fields,) = csv.reader([text], strict=True)
        except csv.Error as error:
            yield source.quarantined(number, text, None, f"is not CSV ({error})")
            continue
        if "TraceID" in fields:
            columns = tuple(fields)
        else:
            yield from _drafts(source, number, dict(zip(columns, fields, strict=False)), len(columns), fields)


def counts(drafts: list[Draft]) -> dict[str, int | set[str]]:
    return span_counts(drafts, place="pod")


def _drafts(source: Source, number: int, record: dict[str, str], width: int, fields: list[str]) -> Parsed:
    def rejected(field: str | None, reason: str) -> QuarantinedRecord:
        return QuarantinedRecord(source.file, number, field, reason, excerpt(",".join(fields)))

    if len(fields) != width:
        yield rejected(None, f"has {len(fields)} fields, not {width}; the line may have been cut")
        return
    trace, id, parent = record.get("TraceID"), record.get("SpanID"), record.get("ParentID", "")
    parents = (span_id(trace or "", parent),) if parent not in ("", "root") else ()
    problem = next((rejected(name, "is missing") for name in NEEDED if not record.get(name)), None)
    for name in ("StartTimeUnixNano", "EndTimeUnixNano"):
        value = record.get(name, "")
        if problem is None and (not value.isascii() or not value.isdigit() or len(value) > 1000):
            problem = rejected(name, f"is {excerpt(value)!r}, not nanoseconds since 1970")
    if problem is not None:
        yield from set_aside(problem, trace or None, id or None, parents)
        return
    pod = record["PodName"]
    yield Span(
        record["TraceID"],
        record["SpanID"],
        Instance(pod, at(pod, "")),
        record.get("OperationName", ""),
        start=int(record["StartTimeUnixNano"]),
        end=int(record["EndTimeUnixNano"]),
        parents=parents,
    ).draft(source.file, number)
