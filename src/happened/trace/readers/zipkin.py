"""Zipkin v2 JSON: a list of spans, or of traces, which are lists of spans.

Client and server may share a span's id; the server's half then says `shared`. Times are microseconds; a
span may lack them. A process is the service name of the local endpoint.
"""

import json
from collections.abc import Iterator
from typing import Any

from .draft import Draft, Options, Parsed, Quarantined, excerpt
from .json_documents import document_or_lines
from .source import Source
from .spans import span_id


def parse(source: Source, options: Options) -> Parsed:
    number = 0
    for line, document in document_or_lines(source):
        if isinstance(document, Quarantined):
            yield document
            continue
        for span in _spans(document):
            number += 1
            yield _draft(source, line or number, span)


def _spans(document: Any) -> Iterator[Any]:
    for member in document if isinstance(document, list) else [document]:
        yield from member if isinstance(member, list) else [member]


def _draft(source: Source, number: int, span: Any) -> Draft | Quarantined:
    def rejected(field: str, reason: str) -> Quarantined:
        return Quarantined(source.file, number, field, reason, excerpt(json.dumps(span)))

    if not isinstance(span, dict) or not {"traceId", "id"} <= span.keys():
        return rejected("id", "is no span with traceId and id")
    endpoint = span.get("localEndpoint")
    service = endpoint.get("serviceName") if isinstance(endpoint, dict) else None
    if not service:
        return rejected("localEndpoint.serviceName", "is missing; it names the process")
    start, duration = span.get("timestamp"), span.get("duration")
    if not isinstance(start, int | None) or not isinstance(duration, int | None):
        return rejected("timestamp", "timestamp and duration are not whole microseconds")
    end = (start + duration) * 1000 if start is not None and duration is not None else None
    trace, parent, tags = str(span["traceId"]), span.get("parentId"), span.get("tags")
    attributes = {name: str(value) for name, value in (tags if isinstance(tags, dict) else {}).items()}
    attributes |= {"trace": trace, "span": str(span["id"]), "kind": str(span.get("kind", "")).lower()}
    if end is not None:
        attributes["end"] = str(end)
    return Draft(
        source.file,
        number,
        trace,
        str(service),
        str(span.get("name", "")),
        time=start * 1000 if start is not None else None,
        end=end,
        attributes=attributes,
        id=span_id(trace, str(span["id"])),
        parents=(span_id(trace, str(parent)),) if parent else (),
        shared=bool(span.get("shared")) or span.get("kind") == "SERVER",
    )
