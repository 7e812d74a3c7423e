"""OpenTelemetry spans, OTLP: JSON, one document or one per line as the collector's file exporter writes, or
protobuf.

{"resourceSpans": [{"resource", "scopeSpans": [{"spans"}]}]}; Tempo says "batches" for the first and older
exporters "instrumentationLibrarySpans" for the second; Tempo and Jaeger v2 wrap it all in "trace" or
"result". Ids are kept as written, base64 or hexadecimal in small letters; those of protobuf are
hexadecimal. A process is a service.name at the instance that the resource tells.
"""

import json
import string
from collections.abc import Iterator
from typing import Any

from .draft import Draft, Options, Parsed, QuarantinedRecord, excerpt
from .json_documents import document_or_lines
from .otlp_protobuf import documents, is_protobuf
from .source import Source
from .span_drafts import Instance, Span, known_kind, set_aside, span_id

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
    """(facts of the resource, span) of every span; what has no such structure comes as a span of no
    resource.
    """
    for name in WRAPPERS:
        if isinstance(document, dict) and isinstance(document.get(name), dict):
            document = document[name]
    resources = _list(document, "resourceSpans", "batches", "resource_spans")
    if resources is None:
        yield {}, document
    for resource in resources or ():
        facts = attributes(resource.get("resource") if isinstance(resource, dict) else None)
        scopes = _list(resource, "scopeSpans", "instrumentationLibrarySpans", "scope_spans")
        if scopes is None:
            yield facts, resource
        for scope in scopes or ():
            spans = _list(scope, "spans")
            yield from ((facts, span) for span in (spans if spans is not None else [scope]))


def _list(value: Any, *names: str) -> list[Any] | None:
    if not isinstance(value, dict):
        return None
    return next((value[name] for name in names if isinstance(value.get(name), list)), None)


def attributes(holder: Any) -> dict[str, str]:
    """OTLP's [{"key", "value": {"stringValue": …}}], or a map, as strings."""
    plain = holder.get("attributes") if isinstance(holder, dict) else None
    if isinstance(plain, dict):
        return {name: value if isinstance(value, str) else json.dumps(value) for name, value in plain.items()}
    found = {}
    for attribute in _list(holder, "attributes") or ():
        if isinstance(attribute, dict) and isinstance(attribute.get("value"), dict):
            value = next(iter(attribute["value"].values()), "")
            found[str(attribute.get("key"))] = value if isinstance(value, str) else json.dumps(value)
    return found


def drafts(file: str, number: int, facts: dict[str, str], span: Any) -> Iterator[Draft | QuarantinedRecord]:
    """The draft of an OTLP span of a resource with these facts."""

    def rejected(field: str | None, reason: str) -> QuarantinedRecord:
        return QuarantinedRecord(file, number, field, reason, excerpt(json.dumps(span)))

    trace, id = (
        (_id(span.get(name)) for name in ("traceId", "spanId")) if isinstance(span, dict) else ("", "")
    )
    if not trace or not id:
        yield rejected("spanId", "no span with traceId and spanId, in resourceSpans, scopeSpans, spans")
        return
    parent = _id(span.get("parentSpanId"))
    parents = (span_id(trace, parent),) if parent else ()
    service = facts.get("service.name")
    if not service:
        problem = rejected("service.name", "is missing from the resource; it names the process")
        yield from set_aside(problem, trace, id, parents)
        return
    try:
        start, end = _nanoseconds(span.get("startTimeUnixNano")), _nanoseconds(span.get("endTimeUnixNano"))
    except (TypeError, ValueError, OverflowError):
        problem = rejected("startTimeUnixNano", "start and end are not nanoseconds since 1970")
        yield from set_aside(problem, trace, id, parents)
        return
    told, kind, status = attributes(span), known_kind(span.get("kind")), span.get("status")
    links = [link for link in _list(span, "links") or () if isinstance(link, dict)]
    yield Span(
        trace,
        id,
        Instance.of(service, facts),
        str(span.get("name") or ""),
        kind,
        start,
        end,
        told,
        parents,
        tuple(span_id(_id(link.get("traceId")), _id(link.get("spanId"))) for link in links),
        shared=kind == "server",
        error=isinstance(status, dict) and status.get("code") in (2, "2", "STATUS_CODE_ERROR"),
    ).draft(file, number)


def _id(value: Any) -> str:
    """An id as written, hexadecimal digits in small letters; "" for what is none, as zeros are."""
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not text.strip("0"):
        return ""
    return text.lower() if len(text) in HEXADECIMAL and not text.strip(string.hexdigits) else text


def _nanoseconds(value: Any) -> int | None:
    """A time; OTLP writes 0 where there is none."""
    return int(value) or None if value is not None else None
