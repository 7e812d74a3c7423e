"""Jaeger's JSON: {"data": [trace, …]} as its API gives it, a trace by itself, or one span per line.

A trace is {"traceID", "spans", "processes"}. CHILD_OF references are parents, FOLLOWS_FROM references are
links; either may point into another trace. Times are microseconds. A process is a serviceName at what its
process's tags tell: a pod, a host and pid, an address. Jaeger v2 answers in OTLP (`{"result":
{"resourceSpans": …}}`).
"""

import json
from typing import Any

from .draft import Options, Parsed, QuarantinedRecord, excerpt
from .json_documents import records
from .source import Source
from .span_drafts import Instance, Span, set_aside, span_id


def parse(source: Source, options: Options) -> Parsed:
    for number, span, holder in records(source, ("data", "spans")):
        if isinstance(span, QuarantinedRecord):
            yield span
        else:
            yield from drafts(source.file, number, holder.get("processes"), span)


def drafts(file: str, number: int, processes: Any, span: Any) -> Parsed:
    """The draft of a span; `processes` are those of its trace, by id."""

    def rejected(field: str, reason: str) -> QuarantinedRecord:
        return QuarantinedRecord(file, number, field, reason, excerpt(json.dumps(span)))

    if not isinstance(span, dict) or not {"traceID", "spanID"} <= span.keys():
        yield rejected("spanID", "no span with traceID and spanID, in a trace with spans")
        return
    trace, id = str(span["traceID"]), str(span["spanID"])
    parents, links = _references(trace, span)
    process = span.get("process")
    if not (isinstance(process, dict) and process.get("serviceName")):
        process = processes.get(str(span.get("processID"))) if isinstance(processes, dict) else None
    if not isinstance(process, dict) or not process.get("serviceName"):
        reason = f"{span.get('processID')!r} is none of the trace's processes"
        if processes is None:
            reason += ": it has none, and they follow its spans; the file may have been cut"
        problem = rejected("processID", reason)
        yield from set_aside(problem, trace, id, parents)
        return
    start, duration = span.get("startTime"), span.get("duration")
    if not isinstance(start, int) or not isinstance(duration, int):
        problem = rejected("startTime", "start and duration are not whole microseconds")
        yield from set_aside(problem, trace, id, parents)
        return
    tags = _tags(span.get("tags"))
    kind = tags.pop("span.kind", "")
    yield Span(
        trace,
        id,
        Instance.of(str(process["serviceName"]), _tags(process.get("tags"))),
        str(span.get("operationName") or ""),
        kind,
        start * 1000,
        (start + duration) * 1000,
        tags,
        parents,
        links,
        shared=kind == "server",
        error=tags.get("error", "false").lower() not in ("", "false"),
    ).draft(file, number)


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
    if isinstance(tags, dict):  # as Elasticsearch stores them
        return {str(name): str(value) for name, value in tags.items()}
    return {
        str(tag["key"]): str(tag.get("value"))
        for tag in (tags if isinstance(tags, list) else ())
        if isinstance(tag, dict) and "key" in tag
    }
