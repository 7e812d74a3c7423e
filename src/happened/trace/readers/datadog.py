"""Datadog's JSON spans, as its agents take them: a list of traces, which are lists of spans, or {"spans":
[…]}.

{"trace_id", "span_id", "parent_id", "name", "resource", "service", "start", "duration", "error", "meta"}:
ids are numbers, a parent of 0 is none, times are nanoseconds. A process is a service at the host or runtime
that `meta` names.
"""

from functools import partial
from typing import Any

from .draft import Options, Parsed, QuarantinedRecord
from .json_documents import records
from .source import Source
from .span_drafts import Instance, Span, known_kind, set_aside, span_id


def parse(source: Source, options: Options) -> Parsed:
    for number, span, _ in records(source, ("traces", "spans", "data")):
        if isinstance(span, QuarantinedRecord):
            yield span
        else:
            yield from _drafts(source, number, span)


def _drafts(source: Source, number: int, span: Any) -> Parsed:
    rejected = partial(source.quarantined, number, span)
    if (
        isinstance(span, dict)
        and isinstance(span.get("attributes"), dict)
        and "trace_id" in span["attributes"]
    ):
        span = span["attributes"]  # as the search of the API wraps it
    if not isinstance(span, dict) or not {"trace_id", "span_id"} <= span.keys():
        yield rejected("span_id", "is no span with trace_id and span_id")
        return
    trace, id, parent = str(span["trace_id"]), str(span["span_id"]), span.get("parent_id")
    parents = (span_id(trace, str(parent)),) if parent not in (None, 0, "0", "") else ()
    start, duration, service = span.get("start"), span.get("duration"), span.get("service")
    if not isinstance(start, int | None) or not isinstance(duration, int | None) or not service:
        problem = rejected("start", "no service, or start and duration are not whole nanoseconds")
        yield from set_aside(problem, trace, id, parents)
        return
    meta = span.get("meta")
    attributes = {str(k): str(v) for k, v in (meta if isinstance(meta, dict) else {}).items()}
    facts = {
        "service.instance.id": attributes.get("runtime-id", ""),
        "host.name": attributes.get("_dd.hostname", ""),
    }
    links = span.get("span_links")
    yield Span(
        trace,
        id,
        Instance.of(str(service), facts),
        str(span.get("resource") or span.get("name") or ""),
        known_kind(attributes.get("span.kind")),
        start,
        start + duration if start is not None and duration is not None else None,
        attributes,
        parents,
        tuple(
            span_id(str(link.get("trace_id")), str(link.get("span_id")))
            for link in (links if isinstance(links, list) else ())
            if isinstance(link, dict)
        ),
        error=bool(span.get("error")),
    ).draft(source.file, number)
