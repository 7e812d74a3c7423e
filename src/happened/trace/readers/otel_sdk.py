"""Spans as the OpenTelemetry SDKs print them, and as agent frameworks log them: one JSON object each.

    {"name", "context": {"trace_id", "span_id"}, "parent_id", "kind": "SpanKind.CLIENT", "start_time",
    "end_time",
     "attributes", "links": [{"context"}], "status": {"status_code"}, "resource": {"attributes"}}

or in the words of Go's SDK (`Name`, `SpanContext`, `Parent`, `SpanKind`, `Attributes` as a list, …).
Objects may follow one another over several lines, be one per line, or be in a list. Where there is no
`context`, `trace_id` and `span_id` (or `id`) stand in the object itself, or, in tables of spans, as
`context.trace_id` and `context.span_id` beside `attributes.NAME`. Times are ISO 8601 or numbers
since 1970, whose size tells seconds from nanoseconds. A span whose resource names no service is of the
process `unknown_service`, as the SDKs call it.
"""

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from .draft import Options, Parsed, QuarantinedRecord
from .json_documents import records
from .source import Source
from .span_drafts import Instance, Span, known_kind, set_aside, span_id

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SERVICE = "unknown_service"
ERRORS = ("ERROR", "STATUS_CODE_ERROR", "2")


def parse(source: Source, options: Options) -> Parsed:
    for number, record, _ in records(source, ("spans", "data")):
        if isinstance(record, QuarantinedRecord):
            yield record
        else:
            yield from _drafts(source, number, _from_go(_nested(record)))


def _drafts(source: Source, number: int, record: Any) -> Parsed:
    rejected = partial(source.quarantined, number, record)
    names = _names(record)
    if names is None:
        yield rejected("context", "no span with trace_id and span_id, in itself or in its context")
        return
    trace, id = names
    parent = record.get("parent_id") or record.get("parent_span_id")
    parents = (span_id(trace, _id(parent)),) if parent else ()
    try:
        start, end = (nanoseconds(_first(record, *each)) for each in TIMES)
    except (ValueError, OverflowError) as error:
        yield from set_aside(rejected("start_time", f"is no time: {error}"), trace, id, parents)
        return
    resource = record.get("resource")
    facts = _texts(resource.get("attributes", resource)) if isinstance(resource, dict) else {}
    attributes = _texts(record.get("attributes"))
    service = facts.get("service.name") or attributes.get("service.name") or SERVICE
    yield Span(
        trace,
        id,
        Instance.of(service, facts),
        _label(record),
        known_kind(str(_first(record, "kind", "span_kind") or "").removeprefix("SpanKind.")),
        start,
        end,
        attributes,
        parents,
        tuple(_links(record)),
        error=_failed(record),
    ).draft(source.file, number)


TIMES = (("start_time", "started_at", "startTime"), ("end_time", "ended_at", "endTime"))


def nanoseconds(value: Any) -> int | None:
    """A time since 1970; None if there is none. ValueError if it cannot be read."""
    if value is None or value == "":
        return None
    if isinstance(value, str) and not value.lstrip("-").replace(".", "", 1).isdigit():
        moment = datetime.fromisoformat(value)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return (moment - EPOCH) // timedelta(microseconds=1) * 1000
    number = float(value)
    for unit, above in ((1, 1e17), (1000, 1e14), (1_000_000, 1e11), (1_000_000_000, 0)):
        if abs(number) >= above:
            whole = isinstance(value, int) or (isinstance(value, str) and value.lstrip("-").isdigit())
            return int(value) * unit if whole else round(number * unit / 1000) * 1000  # doubles know no more
    raise ValueError(f"{value!r} is no number")


def _nested(record: Any) -> Any:
    """A row of a table of spans as the object that it was made of."""
    if not isinstance(record, dict) or "context.trace_id" not in record:
        return record
    row = dict(record)
    for room in ("context", "attributes"):
        columns = {name: value for name, value in row.items() if name.startswith(f"{room}.")}
        row = {name: value for name, value in row.items() if name not in columns}
        within = {n.removeprefix(f"{room}."): v for n, v in columns.items() if v is not None}
        row[room] = within | (row[room] if isinstance(row.get(room), dict) else {})
    return row


GO_KINDS = ("", "internal", "server", "client", "producer", "consumer")


def _from_go(record: Any) -> Any:
    """A span of Go's SDK with the field names of the other SDKs."""
    if not isinstance(record, dict) or not isinstance(record.get("SpanContext"), dict):
        return record
    kind, parent = record.get("SpanKind"), _context_from_go(record.get("Parent"))["span_id"]
    links = record.get("Links")
    status = record.get("Status")
    return {
        "name": record.get("Name"),
        "context": _context_from_go(record["SpanContext"]),
        "parent_id": parent if parent.strip("0") else None,
        "kind": GO_KINDS[kind] if isinstance(kind, int) and 0 <= kind < len(GO_KINDS) else kind,
        "start_time": record.get("StartTime"),
        "end_time": record.get("EndTime"),
        "attributes": _attributes_from_go(record.get("Attributes")),
        "links": [
            {"context": _context_from_go(link.get("SpanContext"))}
            for link in (links if isinstance(links, list) else ())
            if isinstance(link, dict)
        ],
        "status": {"status_code": str(status.get("Code")).upper()} if isinstance(status, dict) else None,
        "resource": {"attributes": _attributes_from_go(record.get("Resource"))},
    }


def _context_from_go(context: Any) -> dict[str, str]:
    told = context if isinstance(context, dict) else {}
    return {"trace_id": str(told.get("TraceID") or ""), "span_id": str(told.get("SpanID") or "")}


def _attributes_from_go(attributes: Any) -> dict[str, Any]:
    pairs = attributes if isinstance(attributes, list) else ()
    return {
        str(each.get("Key")): each["Value"].get("Value")
        for each in pairs
        if isinstance(each, dict) and isinstance(each.get("Value"), dict)
    }


def _names(record: Any) -> tuple[str, str] | None:
    if not isinstance(record, dict):
        return None
    context = record.get("context")
    holder = context if isinstance(context, dict) else record
    trace, span = _first(holder, "trace_id", "traceId"), _first(holder, "span_id", "spanId", "id")
    return (_id(trace), _id(span)) if trace and span else None


def _id(value: Any) -> str:
    return str(value).removeprefix("0x")


def _first(record: dict[str, Any], *names: str) -> Any:
    return next((record[name] for name in names if record.get(name) is not None), None)


def _label(record: dict[str, Any]) -> str:
    data = record.get("span_data")
    return str(record.get("name") or (data.get("name") if isinstance(data, dict) else "") or "")


def _texts(attributes: Any) -> dict[str, str]:
    if not isinstance(attributes, dict):
        return {}
    return {str(k): v if isinstance(v, str) else json.dumps(v) for k, v in attributes.items()}


def _links(record: dict[str, Any]) -> list[str]:
    links = record.get("links")
    found = [_names(link) for link in (links if isinstance(links, list) else ())]
    return [span_id(*names) for names in found if names is not None]


def _failed(record: dict[str, Any]) -> bool:
    status = record.get("status")
    code = (
        status.get("status_code", status.get("code"))
        if isinstance(status, dict)
        else record.get("status_code")
    )
    return str(code).removeprefix("StatusCode.") in ERRORS or bool(record.get("error"))
