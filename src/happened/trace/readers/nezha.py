"""Span tables of the Nezha data sets: CSV lines, one span each, a pod as process.

The header may be absent (a part of a larger file); ParentID is `root`, or empty, where there is none.
Times are nanoseconds.
"""

import csv

from .draft import Draft, Options, Parsed, Quarantined, excerpt
from .source import Source
from .spans import counts as span_counts
from .spans import span_id

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
            yield Quarantined(source.file, number, None, f"is not CSV ({error})", excerpt(text))
            continue
        if "TraceID" in fields:
            columns = tuple(fields)
        else:
            yield _draft(source, number, dict(zip(columns, fields, strict=False)), len(columns), fields)


def counts(drafts: list[Draft]) -> dict[str, int]:
    return span_counts(drafts, place="pod")


def _draft(
    source: Source, number: int, record: dict[str, str], width: int, fields: list[str]
) -> Draft | Quarantined:
    def rejected(field: str | None, reason: str) -> Quarantined:
        return Quarantined(source.file, number, field, reason, excerpt(",".join(fields)))

    if len(fields) != width:
        return rejected(None, f"has {len(fields)} fields, not {width}; the line may have been cut")
    for name in NEEDED:
        if not record.get(name):
            return rejected(name, "is missing")
    start, end = record["StartTimeUnixNano"], record["EndTimeUnixNano"]
    for name, value in (("StartTimeUnixNano", start), ("EndTimeUnixNano", end)):
        if not value.isascii() or not value.isdigit() or len(value) > 1000:
            return rejected(name, f"is {excerpt(value)!r}, not nanoseconds since 1970")
    trace, parent = record["TraceID"], record.get("ParentID", "")
    return Draft(
        source.file,
        number,
        trace,
        record["PodName"],
        record.get("OperationName", ""),
        time=int(start),
        end=int(end),
        attributes={"trace": trace, "span": record["SpanID"], "end": end},
        id=span_id(trace, record["SpanID"]),
        parents=(span_id(trace, parent),) if parent not in ("", "root") else (),
    )
