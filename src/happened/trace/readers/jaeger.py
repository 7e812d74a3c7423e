"""Jaeger's JSON: {"data": [trace, …]} as its API gives it, or a trace by itself.

A trace is {"traceID", "spans", "processes"}. CHILD_OF references are parents, FOLLOWS_FROM references are
links; either may point into another trace. Times are microseconds. A process is a serviceName.
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
        for services, span in _spans(document):
            number += 1
            yield _draft(source, line or number, services, span)


def _spans(document: Any) -> Iterator[tuple[dict[str, str], Any]]:
    """(service of each process id, span) of every span."""
    traces = document.get("data", [document]) if isinstance(document, dict) else document
    for trace in traces if isinstance(traces, list) else [traces]:
        if not isinstance(trace, dict) or not isinstance(trace.get("spans"), list):
            yield {}, trace
            continue
        processes = trace.get("processes")
        known = processes.items() if isinstance(processes, dict) else ()
        services = {
            id: str(of["serviceName"]) for id, of in known if isinstance(of, dict) and "serviceName" in of
        }
        yield from ((services, span) for span in trace["spans"])


def _draft(source: Source, number: int, services: dict[str, str], span: Any) -> Draft | Quarantined:
    def rejected(field: str, reason: str) -> Quarantined:
        return Quarantined(source.file, number, field, reason, excerpt(json.dumps(span)))

    if not isinstance(span, dict) or not {"traceID", "spanID"} <= span.keys():
        return rejected("spanID", "no span with traceID and spanID, in a trace with spans")
    embedded = span.get("process")
    service = embedded.get("serviceName") if isinstance(embedded, dict) else None
    service = service or services.get(str(span.get("processID")))
    if not service:
        return rejected("processID", f"{span.get('processID')!r} is none of the trace's processes")
    start, duration = span.get("startTime"), span.get("duration")
    if not isinstance(start, int) or not isinstance(duration, int):
        return rejected("startTime", "start and duration are not whole microseconds")
    trace, tags = str(span["traceID"]), _tags(span.get("tags"))
    end = (start + duration) * 1000
    parents, links = _references(trace, span)
    return Draft(
        source.file,
        number,
        trace,
        str(service),
        str(span.get("operationName", "")),
        time=start * 1000,
        end=end,
        attributes=tags | {"trace": trace, "span": str(span["spanID"]), "end": str(end)},
        id=span_id(trace, str(span["spanID"])),
        parents=parents,
        links=links,
        shared=tags.get("span.kind") == "server",
    )


def _references(trace: str, span: dict[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    parents: list[str] = []
    links: list[str] = []
    references = span.get("references")
    for reference in references if isinstance(references, list) else ():
        if isinstance(reference, dict):
            id = span_id(str(reference.get("traceID", trace)), str(reference.get("spanID")))
            (links if reference.get("refType") == "FOLLOWS_FROM" else parents).append(id)
    if not parents and span.get("parentSpanID"):
        parents.append(span_id(trace, str(span["parentSpanID"])))
    return tuple(parents), tuple(links)


def _tags(tags: Any) -> dict[str, str]:
    return {
        str(tag["key"]): str(tag.get("value"))
        for tag in (tags if isinstance(tags, list) else ())
        if isinstance(tag, dict) and "key" in tag
    }
