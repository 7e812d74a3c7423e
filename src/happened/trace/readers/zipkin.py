"""Zipkin JSON, v1 and v2: a list of spans, or of traces, which are lists of spans.

Client and server may share a span's id; the server's half then says `shared`. Times are microseconds; a span
may lack them. A process is the local endpoint: a service at an address.

v1 has annotations with endpoints instead of a kind: cs and cr are a client's start and end, sr and ss a
server's, ms and mr are when a message left its producer and reached its consumer. A v1 record that has
annotations of both sides is two halves.
"""

import json
from collections.abc import Iterator
from typing import Any

from .draft import Options, Parsed, QuarantinedRecord, excerpt
from .json_documents import records
from .source import Source
from .span_drafts import Instance, Span, at, known_kind, set_aside, span_id

SIDES = (("client", "cs", "cr"), ("server", "sr", "ss"), ("producer", "ms", ""), ("consumer", "mr", ""))


def parse(source: Source, options: Options) -> Parsed:
    for number, document, _ in records(source, ("traces", "data")):
        if isinstance(document, QuarantinedRecord):
            yield document
            continue
        yield from drafts(source.file, number, document)


def drafts(file: str, number: int, span: Any) -> Parsed:
    """The draft of a span of either version; of a v1 span with both sides, two."""
    for half in _version_2(span):
        yield from _drafts(file, number, half)


def _drafts(file: str, number: int, span: Any) -> Parsed:
    def rejected(field: str, reason: str) -> QuarantinedRecord:
        return QuarantinedRecord(file, number, field, reason, excerpt(json.dumps(span)))

    if not isinstance(span, dict) or not {"traceId", "id"} <= span.keys():
        yield rejected("id", "is no span with traceId and id")
        return
    trace, id, parent = str(span["traceId"]), str(span["id"]), span.get("parentId")
    parents = (span_id(trace, str(parent)),) if parent else ()
    place = _place(span.get("localEndpoint"))
    if place is None:
        problem = rejected(
            "localEndpoint.serviceName", "is missing, and so is an address; it names the process"
        )
        yield from set_aside(problem, trace, id, parents)
        return
    start, duration = span.get("timestamp"), span.get("duration")
    if not isinstance(start, int | None) or not isinstance(duration, int | None):
        problem = rejected("timestamp", "timestamp and duration are not whole microseconds")
        yield from set_aside(problem, trace, id, parents)
        return
    tags = span.get("tags")
    attributes = {name: str(value) for name, value in (tags if isinstance(tags, dict) else {}).items()}
    remote = _place(span.get("remoteEndpoint"))
    if remote is not None:
        attributes["peer"] = remote.service
    kind = known_kind(span.get("kind"))
    yield Span(
        trace,
        id,
        place,
        str(span.get("name") or ""),
        kind,
        start * 1000 if start is not None else None,
        (start + duration) * 1000 if start is not None and duration is not None else None,
        attributes,
        parents,
        shared=bool(span.get("shared")) or kind == "server",
        error="error" in attributes,
        took=duration * 1000 if start is None and duration is not None else None,
    ).draft(file, number)


def _place(endpoint: Any) -> Instance | None:
    """The service and address of an endpoint; the address alone if no service is named."""
    if not isinstance(endpoint, dict):
        return None
    address = str(endpoint.get("ipv4") or endpoint.get("ipv6") or "")
    port = endpoint.get("port")
    where = f"{address}:{port}" if address and port else address
    service = str(endpoint.get("serviceName") or "")
    if not service and not where:
        return None
    return Instance(service or where, at(service, where) if service else at(where, ""))


def _version_2(span: Any) -> Iterator[Any]:
    """The span as it is, or the halves of a v1 span as v2 has them."""
    old = isinstance(span, dict) and "localEndpoint" not in span
    if not old or not ("annotations" in span or "binaryAnnotations" in span):
        yield span
        return
    marks = [mark for mark in span.get("annotations") or () if isinstance(mark, dict)]
    facts = [fact for fact in span.get("binaryAnnotations") or () if isinstance(fact, dict)]
    times = {mark.get("value"): mark for mark in marks}
    sides = [side for side in SIDES if side[1] in times or side[2] in times]
    for kind, begins, ends in sides or [("", "", "")]:
        first, last = times.get(begins), times.get(ends)
        local = (first or last or next(iter(facts or marks), {})).get("endpoint")
        half = {name: span[name] for name in ("traceId", "id", "parentId", "name") if name in span}
        half |= {"kind": kind.upper(), "localEndpoint": local, "tags": _tags(facts, local, len(sides) < 2)}
        half |= {"remoteEndpoint": _address(facts, "sa" if kind == "client" else "ca")}
        half["shared"] = kind == "server" and ("cs" in times or not span.get("timestamp"))
        if first is not None and last is not None:
            half |= {"timestamp": first.get("timestamp"), "duration": _difference(first, last)}
        elif kind and first is not None:
            half["timestamp"] = first.get("timestamp")
        else:
            half |= {name: span[name] for name in ("timestamp", "duration") if name in span}
        yield half


def _difference(first: dict[str, Any], last: dict[str, Any]) -> Any:
    a, b = first.get("timestamp"), last.get("timestamp")
    return b - a if isinstance(a, int) and isinstance(b, int) else None


def _tags(facts: list[dict[str, Any]], local: Any, all_of_them: bool) -> dict[str, str]:
    return {
        str(fact["key"]): str(fact.get("value"))
        for fact in facts
        if fact.get("key") not in (None, "sa", "ca", "lc") and (all_of_them or fact.get("endpoint") == local)
    }


def _address(facts: list[dict[str, Any]], key: str) -> Any:
    return next((fact.get("endpoint") for fact in facts if fact.get("key") == key), None)
