"""OpenTelemetry spans as OTLP-JSON: one document, or one per line as the collector's file exporter writes.

{"resourceSpans": [{"resource", "scopeSpans": [{"spans"}]}]}; Tempo says "batches" for the first and older
exporters "instrumentationLibrarySpans" for the second. Ids are kept as written, hexadecimal or base64.
A process is a service.name and, where given, its service.instance.id.
"""

import json
from collections.abc import Iterator
from typing import Any

from .draft import Draft, Options, Parsed, Quarantined, excerpt
from .json_documents import document_or_lines
from .source import Source
from .spans import span_id

KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")


def parse(source: Source, options: Options) -> Parsed:
    number = 0
    for line, document in document_or_lines(source):
        if isinstance(document, Quarantined):
            yield document
            continue
        for process, span in _spans(document):
            number += 1
            yield _draft(source, line or number, process, span)


def _spans(document: Any) -> Iterator[tuple[str, Any]]:
    """(process, span) of every span; what has no such structure comes as a span without a process."""
    if isinstance(document, dict) and isinstance(document.get("trace"), dict):
        document = document["trace"]
    resources = _list(document, "resourceSpans", "batches")
    if resources is None:
        yield "", document
    for resource in resources or ():
        facts = _attributes(resource.get("resource") if isinstance(resource, dict) else None)
        service, instance = facts.get("service.name", ""), facts.get("service.instance.id")
        process = f"{service}@{instance}" if instance else service
        scopes = _list(resource, "scopeSpans", "instrumentationLibrarySpans")
        if scopes is None:
            yield process, resource
        for scope in scopes or ():
            spans = _list(scope, "spans")
            yield from ((process, span) for span in (spans if spans is not None else [scope]))


def _list(value: Any, *names: str) -> list[Any] | None:
    if not isinstance(value, dict):
        return None
    return next((value[name] for name in names if isinstance(value.get(name), list)), None)


def _attributes(holder: Any) -> dict[str, str]:
    """OTLP's [{"key", "value": {"stringValue": …}}] as strings."""
    found = {}
    for attribute in _list(holder, "attributes") or ():
        if isinstance(attribute, dict) and isinstance(attribute.get("value"), dict):
            value = next(iter(attribute["value"].values()), "")
            found[str(attribute.get("key"))] = value if isinstance(value, str) else json.dumps(value)
    return found


def _draft(source: Source, number: int, process: str, span: Any) -> Draft | Quarantined:
    def rejected(field: str | None, reason: str) -> Quarantined:
        return Quarantined(source.file, number, field, reason, excerpt(json.dumps(span)))

    if not isinstance(span, dict) or not {"traceId", "spanId"} <= span.keys():
        return rejected("spanId", "no span with traceId and spanId, in resourceSpans, scopeSpans, spans")
    if not process:
        return rejected("service.name", "is missing from the resource; it names the process")
    try:
        start, end = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return rejected("startTimeUnixNano", "start and end are not nanoseconds since 1970")
    trace, parent, kind = str(span["traceId"]), span.get("parentSpanId"), _kind(span.get("kind"))
    links = [link for link in _list(span, "links") or () if isinstance(link, dict)]
    return Draft(
        source.file,
        number,
        trace,
        process,
        str(span.get("name", "")),
        time=start,
        end=end,
        attributes=_attributes(span)
        | {"trace": trace, "span": str(span["spanId"]), "end": str(end), "kind": kind},
        id=span_id(trace, str(span["spanId"])),
        parents=(span_id(trace, str(parent)),) if parent else (),
        links=tuple(span_id(str(link.get("traceId")), str(link.get("spanId"))) for link in links),
        shared=kind == "server",
    )


def _kind(kind: Any) -> str:
    if isinstance(kind, int) and 0 <= kind < len(KINDS):
        return KINDS[kind]
    return str(kind or KINDS[0]).removeprefix("SPAN_KIND_").lower()
