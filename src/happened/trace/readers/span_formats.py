"""Spans as tracing systems write them: Jaeger, Zipkin, AWS X-Ray and Datadog as JSON, Nezha as CSV.

Each format has a function that turns a record into a Span, or raises NoSpan.
"""

import json
from collections.abc import Iterator
from typing import Any

from .draft import Options, Parsed, QuarantinedRecord, excerpt
from .json_documents import as_object, objects_in, records
from .source import Source
from .span_drafts import Instance, NoSpan, Span, SpanNames, at, drafted, known_kind, span_id

# Jaeger: {"data": [trace, …]} as its API gives it, a trace by itself, or one span per line. A trace is
# {"traceID", "spans", "processes"}. CHILD_OF references are parents, FOLLOWS_FROM references are links;
# either may point into another trace. Times are microseconds. A process is a serviceName together with the
# pod, host and pid, or address in the tags of its process. Jaeger v2 answers in OTLP.


def parse_jaeger(source: Source, options: Options) -> Parsed:
    for number, span, holder in records(source, ("data", "spans")):
        yield from drafted(source.file, number, span, jaeger_span, holder.get("processes"))


def jaeger_span(span: Any, processes: Any) -> Span:
    """`processes` are those of the span's trace, by id."""
    if not isinstance(span, dict) or not {"traceID", "spanID"} <= span.keys():
        raise NoSpan("spanID", "no span with traceID and spanID, in a trace with spans")
    trace, id = str(span["traceID"]), str(span["spanID"])
    parents, links = _jaeger_references(trace, span)
    names = SpanNames(trace, id, parents)
    process = as_object(span.get("process"))
    if not process.get("serviceName"):
        process = as_object(as_object(processes).get(str(span.get("processID"))))
    if not process.get("serviceName"):
        reason = f"{span.get('processID')!r} is none of the trace's processes"
        if processes is None:
            reason += ": it has none, and they follow its spans; the file may have been cut"
        raise NoSpan("processID", reason, names)
    start, duration = span.get("startTime"), span.get("duration")
    if not isinstance(start, int) or not isinstance(duration, int):
        raise NoSpan("startTime", "start and duration are not whole microseconds", names)
    tags = _jaeger_tags(span.get("tags"))
    kind = tags.pop("span.kind", "")
    return Span(
        trace,
        id,
        Instance.of(str(process["serviceName"]), _jaeger_tags(process.get("tags"))),
        str(span.get("operationName") or ""),
        kind,
        start * 1000,
        (start + duration) * 1000,
        tags,
        parents,
        links,
        shared=kind == "server",
        error=tags.get("error", "false").lower() not in ("", "false"),
    )


def _jaeger_references(trace: str, span: dict[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    parents: list[str] = []
    links: list[str] = []
    for reference in objects_in(span.get("references")):
        id = span_id(str(reference.get("traceID", trace)), str(reference.get("spanID")))
        (links if reference.get("refType") == "FOLLOWS_FROM" else parents).append(id)
    if not parents and span.get("parentSpanID"):
        parents.append(span_id(trace, str(span["parentSpanID"])))
    return tuple(parents), tuple(links)


def _jaeger_tags(tags: Any) -> dict[str, str]:
    if isinstance(tags, dict):  # as Elasticsearch stores them
        return _as_texts(tags)
    return {str(tag["key"]): str(tag.get("value")) for tag in objects_in(tags) if "key" in tag}


def _as_texts(values: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in as_object(values).items()}


# Zipkin, v1 and v2: a list of spans, or of traces, which are lists of spans. Client and server may share a
# span's id; the server's half then says `shared`. Times are microseconds; a span may lack them. A process is
# the local endpoint: a service at an address.
#
# v1 has annotations with endpoints instead of a kind: cs and cr are a client's start and end, sr and ss a
# server's, ms and mr are when a message left its producer and reached its consumer. A v1 record that has
# annotations of both sides is two halves.

ZIPKIN_SIDES = (
    ("client", "cs", "cr"),
    ("server", "sr", "ss"),
    ("producer", "ms", ""),
    ("consumer", "mr", ""),
)


def parse_zipkin(source: Source, options: Options) -> Parsed:
    for number, record, _ in records(source, ("traces", "data")):
        yield from zipkin_drafts(source.file, number, record)


def zipkin_drafts(file: str, number: int, record: Any) -> Parsed:
    """The draft of a span of either version; of a v1 span with both sides, two."""
    for half in _zipkin_version_2(record):
        yield from drafted(file, number, half, _zipkin_span)


def _zipkin_span(span: Any) -> Span:
    if not isinstance(span, dict) or not {"traceId", "id"} <= span.keys():
        raise NoSpan("id", "is no span with traceId and id")
    trace, id, parent = str(span["traceId"]), str(span["id"]), span.get("parentId")
    names = SpanNames(trace, id, (span_id(trace, str(parent)),) if parent else ())
    place = _zipkin_place(span.get("localEndpoint"))
    if place is None:
        reason = "is missing, and so is an address; it names the process"
        raise NoSpan("localEndpoint.serviceName", reason, names)
    start, duration = span.get("timestamp"), span.get("duration")
    if not isinstance(start, int | None) or not isinstance(duration, int | None):
        raise NoSpan("timestamp", "timestamp and duration are not whole microseconds", names)
    attributes = _as_texts(span.get("tags"))
    remote = _zipkin_place(span.get("remoteEndpoint"))
    if remote is not None:
        attributes["peer"] = remote.service
    kind = known_kind(span.get("kind"))
    return Span(
        trace,
        id,
        place,
        str(span.get("name") or ""),
        kind,
        start * 1000 if start is not None else None,
        (start + duration) * 1000 if start is not None and duration is not None else None,
        attributes,
        names.parents,
        shared=bool(span.get("shared")) or kind == "server",
        error="error" in attributes,
        took=duration * 1000 if start is None and duration is not None else None,
    )


def _zipkin_place(endpoint: Any) -> Instance | None:
    """The service and address of an endpoint; only the address if it names no service."""
    found = as_object(endpoint)
    address, port = str(found.get("ipv4") or found.get("ipv6") or ""), found.get("port")
    where = f"{address}:{port}" if address and port else address
    service = str(found.get("serviceName") or "")
    if service:
        return Instance(service, at(service, where))
    return Instance(where, at(where, "")) if where else None


def _zipkin_version_2(span: Any) -> Iterator[Any]:
    """A v2 span unchanged, or the halves of a v1 span converted to v2."""
    old = isinstance(span, dict) and "localEndpoint" not in span
    if not old or not ("annotations" in span or "binaryAnnotations" in span):
        yield span
        return
    marks = [mark for mark in span.get("annotations") or () if isinstance(mark, dict)]
    facts = [fact for fact in span.get("binaryAnnotations") or () if isinstance(fact, dict)]
    addresses = {fact.get("key"): fact.get("endpoint") for fact in reversed(facts)}
    times = {mark.get("value"): mark for mark in marks}
    sides = [side for side in ZIPKIN_SIDES if side[1] in times or side[2] in times]
    for kind, begins, ends in sides or [("", "", "")]:
        first, last = times.get(begins), times.get(ends)
        local = (first or last or next(iter(facts or marks), {})).get("endpoint")
        half = {name: span[name] for name in ("traceId", "id", "parentId", "name") if name in span}
        half |= {"kind": kind.upper(), "localEndpoint": local}
        half["tags"] = {
            str(fact["key"]): str(fact.get("value"))
            for fact in facts
            if fact.get("key") not in (None, "sa", "ca", "lc")
            and (len(sides) < 2 or fact.get("endpoint") == local)
        }
        half["remoteEndpoint"] = addresses.get("sa" if kind == "client" else "ca")
        half["shared"] = kind == "server" and ("cs" in times or not span.get("timestamp"))
        if first is not None and last is not None:
            a, b = first.get("timestamp"), last.get("timestamp")
            length = b - a if isinstance(a, int) and isinstance(b, int) else None
            half |= {"timestamp": a, "duration": length}
        elif kind and first is not None:
            half["timestamp"] = first.get("timestamp")
        else:
            half |= {name: span[name] for name in ("timestamp", "duration") if name in span}
        yield half


# AWS X-Ray segment documents: as the daemon accepts them, one per line or in a list; or as `aws xray
# batch-get-traces` returns them, as strings within {"Traces": [{"Segments": [{"Document"}]}]}. A segment is
# the server's side of a call, its subsegments are its activities; a subsegment with a namespace is the
# client's side of a call, and names the called segment as its child. Times are seconds since 1970.

XRAY_PLACES = (("ec2", "instance_id"), ("ecs", "container"), ("ecs", "container_id"), ("eks", "pod"))


def parse_xray(source: Source, options: Options) -> Parsed:
    for number, record, _ in records(source, ("Traces", "Segments")):
        if isinstance(record, QuarantinedRecord):
            yield record
            continue
        document = record.get("Document", record) if isinstance(record, dict) else record
        try:
            segment = json.loads(document) if isinstance(document, str) else document
        except ValueError as error:
            yield source.quarantined(number, document, "Document", f"is not JSON ({error})")
        else:
            yield from _xray_drafts(source, number, segment)


def _xray_drafts(source: Source, number: int, segment: Any) -> Parsed:
    if not isinstance(segment, dict) or not {"trace_id", "id"} <= segment.keys():
        yield source.quarantined(number, segment, "id", "is no segment with trace_id and id")
        return
    trace, aws = str(segment["trace_id"]), as_object(segment.get("aws"))
    ids = (as_object(aws.get(group)).get(name) for group, name in XRAY_PLACES)
    instance = next((str(id) for id in ids if id), "")
    place = Instance.of(str(segment.get("name") or "unnamed"), {"service.instance.id": instance})
    waiting = [(segment, segment.get("parent_id"), True)]
    while waiting:
        part, parent, is_whole = waiting.pop()
        parents = (span_id(trace, str(parent)),) if parent else ()
        yield from drafted(source.file, number, part, _xray_span, trace, place, parents, is_whole)
        waiting += [(each, str(part.get("id")), False) for each in objects_in(part.get("subsegments"))]


def _xray_span(
    part: dict[str, Any], trace: str, place: Instance, parents: tuple[str, ...], is_whole: bool
) -> Span:
    times = [part.get(name) for name in ("start_time", "end_time")]
    if "id" not in part or not all(isinstance(time, int | float | None) for time in times):
        names = SpanNames(trace, str(part["id"]), parents) if part.get("id") is not None else None
        raise NoSpan("start_time", "no id, or times that are no numbers", names)
    start, end = (None if time is None else round(time * 1_000_000) * 1000 for time in times)
    attributes = {str(k): str(v) for k, v in (part.get("annotations") or {}).items()}
    name, is_remote = str(part.get("name") or ""), part.get("namespace") in ("remote", "aws")
    if is_remote:
        attributes["peer"] = str(part.get("name"))
    kind = "server" if is_whole else "client" if is_remote else "internal"
    failed = any(part.get(fault) for fault in ("error", "fault", "throttle"))
    return Span(trace, str(part["id"]), place, name, kind, start, end, attributes, parents, error=failed)


# Datadog's spans, as its agents take them: a list of traces, which are lists of spans, or {"spans": […]}.
# {"trace_id", "span_id", "parent_id", "name", "resource", "service", "start", "duration", "error", "meta"}:
# ids are numbers, a parent of 0 is none, times are nanoseconds. A process is a service at the host or runtime
# that `meta` names.


def parse_datadog(source: Source, options: Options) -> Parsed:
    for number, record, _ in records(source, ("traces", "spans", "data")):
        yield from drafted(source.file, number, record, _datadog_span)


def _datadog_span(span: Any) -> Span:
    wrapped = as_object(as_object(span).get("attributes"))
    span = wrapped if "trace_id" in wrapped else span  # the search API wraps spans
    if not isinstance(span, dict) or not {"trace_id", "span_id"} <= span.keys():
        raise NoSpan("span_id", "is no span with trace_id and span_id")
    trace, id, parent = str(span["trace_id"]), str(span["span_id"]), span.get("parent_id")
    parents = (span_id(trace, str(parent)),) if parent not in (None, 0, "0", "") else ()
    start, duration, service = span.get("start"), span.get("duration"), span.get("service")
    if not isinstance(start, int | None) or not isinstance(duration, int | None) or not service:
        reason = "no service, or start and duration are not whole nanoseconds"
        raise NoSpan("start", reason, SpanNames(trace, id, parents))
    attributes = _as_texts(span.get("meta"))
    facts = {
        "service.instance.id": attributes.get("runtime-id", ""),
        "host.name": attributes.get("_dd.hostname", ""),
    }
    links = (
        span_id(str(link.get("trace_id")), str(link.get("span_id")))
        for link in objects_in(span.get("span_links"))
    )
    return Span(
        trace,
        id,
        Instance.of(str(service), facts),
        str(span.get("resource") or span.get("name") or ""),
        known_kind(attributes.get("span.kind")),
        start,
        start + duration if start is not None and duration is not None else None,
        attributes,
        parents,
        tuple(links),
        error=bool(span.get("error")),
    )


# Span tables of the Nezha data sets: CSV lines, one span each, a pod as process. The header may be absent (a
# part of a larger file); ParentID is `root`, or empty, where there is none. Times are nanoseconds.

NEZHA_COLUMNS = (
    "TraceID", "SpanID", "ParentID", "PodName", "OperationName",
    "StartTimeUnixNano", "EndTimeUnixNano", "Duration",
)  # fmt: skip
NEZHA_TIMES = ("StartTimeUnixNano", "EndTimeUnixNano")
NEZHA_NEEDED = ("TraceID", "SpanID", "PodName", *NEZHA_TIMES)


def parse_nezha(source: Source, options: Options) -> Parsed:
    columns: tuple[str, ...] = NEZHA_COLUMNS
    for number, text in source.lines():
        fields = source.fields(number, text)
        if isinstance(fields, QuarantinedRecord):
            yield fields
        elif "TraceID" in fields:
            columns = tuple(fields)
        else:
            yield from drafted(source.file, number, ",".join(fields), _nezha_span, columns, fields)


def _nezha_span(text: str, columns: tuple[str, ...], fields: list[str]) -> Span:
    if len(fields) != len(columns):
        reason = f"has {len(fields)} fields, not {len(columns)}; the line may have been cut"
        raise NoSpan(None, reason)
    record = dict(zip(columns, fields, strict=True))
    trace, id, parent = record.get("TraceID", ""), record.get("SpanID", ""), record.get("ParentID", "")
    parents = (span_id(trace, parent),) if parent not in ("", "root") else ()
    names = SpanNames(trace, id, parents) if trace and id else None
    for name in NEZHA_NEEDED:
        if not record.get(name):
            raise NoSpan(name, "is missing", names)
    for name in NEZHA_TIMES:
        value = record[name]
        if not value.isascii() or not value.isdigit() or len(value) > 1000:
            raise NoSpan(name, f"is {excerpt(value)!r}, not nanoseconds since 1970", names)
    pod = record["PodName"]
    start, end = (int(record[name]) for name in NEZHA_TIMES)
    return Span(
        trace,
        id,
        Instance(pod, at(pod, "")),
        record.get("OperationName", ""),
        start=start,
        end=end,
        parents=parents,
    )
