"""OpenTelemetry spans: OTLP, as JSON or protobuf, and what SDKs print and agent frameworks log.

OTLP's JSON is one document, or one per line as the collector's file exporter writes:
{"resourceSpans": [{"resource", "scopeSpans": [{"spans"}]}]}; Tempo says "batches" for the first and older
exporters "instrumentationLibrarySpans" for the second; Tempo and Jaeger v2 wrap it all in "trace" or
"result". Ids are kept as written, base64 or hexadecimal in small letters; those of protobuf are
hexadecimal. A process is a service.name at the instance that the resource tells.

SDKs print one JSON object for each span:

    {"name", "context": {"trace_id", "span_id"}, "parent_id", "kind": "SpanKind.CLIENT", "start_time",
     "end_time", "attributes", "links": [{"context"}], "status": {"status_code"}, "resource": {"attributes"}}

or in the words of Go's SDK (`Name`, `SpanContext`, `Parent`, `SpanKind`, `Attributes` as a list, …). Objects
may follow one another over several lines, be one per line, or be in a list. Where there is no `context`,
`trace_id` and `span_id` (or `id`) stand in the object itself, or, in tables of spans, as `context.trace_id`
and `context.span_id` beside `attributes.NAME`. A span whose resource names no service is of the process
`unknown_service`, as the SDKs call it.
"""

import string
from collections.abc import Iterator
from typing import Any

from .draft import Options, Parsed, QuarantinedRecord
from .json_documents import Object, as_object, document_or_lines, objects_in, records
from .otlp_protobuf import documents, is_protobuf
from .source import Source
from .span_drafts import Instance, NoSpan, Span, SpanNames, drafted, known_kind, nanoseconds, span_id, texts

WRAPPERS = ("trace", "result")
HEXADECIMAL = (16, 32)
"""Digits of span and trace ids; in base64 they have 12 and 24 characters."""


def parse(source: Source, options: Options) -> Parsed:
    number = 0
    found = documents(source) if is_protobuf(source.head()) else document_or_lines(source)
    for line, document in found:
        if isinstance(document, QuarantinedRecord):
            yield document
            continue
        for facts, span in spans_of(document):
            number += 1
            yield from drafts(source.file, line or number, facts, span)


def spans_of(document: Any) -> Iterator[tuple[dict[str, str], Any]]:
    """(facts of the resource, span) for every span; a value of another structure comes as a span without
    resource."""
    for name in WRAPPERS:
        if isinstance(document, dict) and isinstance(document.get(name), dict):
            document = document[name]
    resources = _list(document, "resourceSpans", "batches", "resource_spans")
    if resources is None:
        yield {}, document
    for resource in resources or ():
        facts = attributes(as_object(resource).get("resource"))
        scopes = _list(resource, "scopeSpans", "instrumentationLibrarySpans", "scope_spans")
        if scopes is None:
            yield facts, resource
        for scope in scopes or ():
            spans = _list(scope, "spans")
            yield from ((facts, span) for span in (spans if spans is not None else [scope]))


def _list(value: Any, *names: str) -> list[Any] | None:
    held = as_object(value)
    return next((held[name] for name in names if isinstance(held.get(name), list)), None)


def attributes(holder: Any) -> dict[str, str]:
    """OTLP's [{"key", "value": {"stringValue": …}}], or a map, as strings."""
    found = as_object(holder).get("attributes")
    if isinstance(found, dict):
        return texts(found)
    return texts(
        {
            str(attribute.get("key")): next(iter(attribute["value"].values()), "")
            for attribute in objects_in(found)
            if isinstance(attribute.get("value"), dict)
        }
    )


def drafts(file: str, number: int, facts: dict[str, str], span: Any) -> Parsed:
    """The draft of an OTLP span whose resource has these facts."""
    return drafted(file, number, span, _span, facts)


def _span(span: Any, facts: dict[str, str]) -> Span:
    trace, id = (_id(as_object(span).get(name)) for name in ("traceId", "spanId"))
    if not trace or not id:
        raise NoSpan("spanId", "no span with traceId and spanId, in resourceSpans, scopeSpans, spans")
    parent = _id(span.get("parentSpanId"))
    names = SpanNames(trace, id, (span_id(trace, parent),) if parent else ())
    service = facts.get("service.name")
    if not service:
        raise NoSpan("service.name", "is missing from the resource; it names the process", names)
    try:  # OTLP writes 0 for an absent time
        times = (span.get(name) for name in ("startTimeUnixNano", "endTimeUnixNano"))
        start, end = (int(time) or None if time is not None else None for time in times)
    except (TypeError, ValueError, OverflowError):
        raise NoSpan("startTimeUnixNano", "start and end are not nanoseconds since 1970", names) from None
    kind = known_kind(span.get("kind"))
    links = objects_in(span.get("links"))
    return Span(
        trace,
        id,
        Instance.of(service, facts),
        str(span.get("name") or ""),
        kind,
        start,
        end,
        attributes(span),
        names.parents,
        tuple(span_id(_id(link.get("traceId")), _id(link.get("spanId"))) for link in links),
        shared=kind == "server",
        error=as_object(span.get("status")).get("code") in (2, "2", "STATUS_CODE_ERROR"),
    )


def _id(value: Any) -> str:
    """The id as text, hexadecimal digits in lower case; "" if there is none or if it is all zeros."""
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not text.strip("0"):
        return ""
    return text.lower() if len(text) in HEXADECIMAL and not text.strip(string.hexdigits) else text


UNKNOWN_SERVICE = "unknown_service"
ERRORS = ("ERROR", "STATUS_CODE_ERROR", "2")
STARTS, ENDS = ("start_time", "started_at", "startTime"), ("end_time", "ended_at", "endTime")
GO_KINDS = ("", "internal", "server", "client", "producer", "consumer")


def parse_printed(source: Source, options: Options) -> Parsed:
    for number, record, _ in records(source, ("spans", "data")):
        yield from drafted(source.file, number, _from_go(_nested(record)), _printed_span)


def _printed_span(record: Any) -> Span:
    names = _printed_names(record)
    if names is None:
        raise NoSpan("context", "no span with trace_id and span_id, in itself or in its context")
    trace, id = names
    parent = record.get("parent_id") or record.get("parent_span_id")
    parents = (span_id(trace, _printed_id(parent)),) if parent else ()
    try:
        start, end = (nanoseconds(_first(record, *each)) for each in (STARTS, ENDS))
    except (ValueError, OverflowError) as error:
        raise NoSpan("start_time", f"is no time: {error}", SpanNames(trace, id, parents)) from error
    resource = as_object(record.get("resource"))
    facts, told = texts(resource.get("attributes", resource)), texts(record.get("attributes"))
    service = facts.get("service.name") or told.get("service.name") or UNKNOWN_SERVICE
    label = record.get("name") or as_object(record.get("span_data")).get("name")
    links = record.get("links")
    linked = map(_printed_names, links if isinstance(links, list) else ())
    status = record.get("status")
    code = (
        status.get("status_code", status.get("code"))
        if isinstance(status, dict)
        else record.get("status_code")
    )
    return Span(
        trace,
        id,
        Instance.of(service, facts),
        str(label or ""),
        known_kind(str(_first(record, "kind", "span_kind") or "").removeprefix("SpanKind.")),
        start,
        end,
        told,
        parents,
        tuple(span_id(*each) for each in linked if each is not None),
        error=str(code).removeprefix("StatusCode.") in ERRORS or bool(record.get("error")),
    )


def _printed_names(record: Any) -> tuple[str, str] | None:
    """The trace and span ids in an object, or in its context if it has one."""
    if not isinstance(record, dict):
        return None
    context = record.get("context")
    holder = context if isinstance(context, dict) else record
    trace, span = _first(holder, "trace_id", "traceId"), _first(holder, "span_id", "spanId", "id")
    return (_printed_id(trace), _printed_id(span)) if trace and span else None


def _printed_id(value: Any) -> str:
    return str(value).removeprefix("0x")


def _first(record: Object, *names: str) -> Any:
    return next((record[name] for name in names if record.get(name) is not None), None)


def _nested(record: Any) -> Any:
    """A row of a table of spans, converted back to the nested object from which it was made."""
    if not isinstance(record, dict) or "context.trace_id" not in record:
        return record
    row = dict(record)
    for room in ("context", "attributes"):
        columns = {name: row.pop(name) for name in record if name.startswith(f"{room}.")}
        within = {n.removeprefix(f"{room}."): v for n, v in columns.items() if v is not None}
        row[room] = within | as_object(row.get(room))
    return row


def _from_go(record: Any) -> Any:
    """A span of Go's SDK with the field names of the other SDKs."""
    if not isinstance(record, dict) or not isinstance(record.get("SpanContext"), dict):
        return record
    kind, parent = record.get("SpanKind"), _context_from_go(record.get("Parent"))["span_id"]
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
            {"context": _context_from_go(link.get("SpanContext"))} for link in objects_in(record.get("Links"))
        ],
        "status": {"status_code": str(status.get("Code")).upper()} if isinstance(status, dict) else None,
        "resource": {"attributes": _attributes_from_go(record.get("Resource"))},
    }


def _context_from_go(context: Any) -> dict[str, str]:
    told = as_object(context)
    return {"trace_id": str(told.get("TraceID") or ""), "span_id": str(told.get("SpanID") or "")}


def _attributes_from_go(attributes: Any) -> Object:
    return {
        str(each.get("Key")): each["Value"].get("Value")
        for each in objects_in(attributes)
        if isinstance(each.get("Value"), dict)
    }
