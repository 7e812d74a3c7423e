"""AWS X-Ray segment documents: as the daemon takes them, one per line or in a list, or as `aws xray
batch-get-traces` gives them, in strings within {"Traces": [{"Segments": [{"Document"}]}]}.

A segment is the server's side of a call, its subsegments are what it did; those with a namespace are the
client's side of calls, and name the segment they called as their child. Times are seconds since 1970.
"""

import json
from collections.abc import Iterator
from typing import Any

from .draft import Options, Parsed, QuarantinedRecord, excerpt
from .json_documents import records
from .source import Source
from .span_drafts import Instance, Span, set_aside, span_id

FACTS = (("ec2", "instance_id"), ("ecs", "container"), ("ecs", "container_id"), ("eks", "pod"))


def parse(source: Source, options: Options) -> Parsed:
    for number, record, _ in records(source, ("Traces", "Segments")):
        if isinstance(record, QuarantinedRecord):
            yield record
            continue
        document = record.get("Document", record) if isinstance(record, dict) else record
        if isinstance(document, str):
            try:
                document = json.loads(document)
            except ValueError as error:
                yield QuarantinedRecord(
                    source.file, number, "Document", f"is not JSON ({error})", excerpt(document)
                )
                continue
        yield from _segment(source, number, document)


def _segment(source: Source, number: int, segment: Any) -> Parsed:
    if not isinstance(segment, dict) or not {"trace_id", "id"} <= segment.keys():
        reason = "is no segment with trace_id and id"
        yield source.quarantined(number, segment, "id", reason)
        return
    place = Instance.of(str(segment.get("name") or "unnamed"), _facts(segment.get("aws")))
    parent = segment.get("parent_id")
    waiting = [(segment, str(parent) if parent else None, True)]
    while waiting:
        part, above, whole = waiting.pop()
        yield from _draft(source, number, str(segment["trace_id"]), place, part, above, whole)
        below = part.get("subsegments")
        waiting += [
            (each, str(part.get("id")), False)
            for each in (below if isinstance(below, list) else ())
            if isinstance(each, dict)
        ]


def _draft(
    source: Source,
    number: int,
    trace: str,
    place: Instance,
    part: dict[str, Any],
    parent: str | None,
    whole: bool,
) -> Iterator[Any]:
    parents = (span_id(trace, parent),) if parent else ()
    times = [part.get(name) for name in ("start_time", "end_time")]
    if "id" not in part or not all(isinstance(time, int | float | None) for time in times):
        problem = QuarantinedRecord(
            source.file,
            number,
            "start_time",
            "no id, or times that are no numbers",
            excerpt(json.dumps(part)),
        )
        yield from set_aside(problem, trace, part.get("id"), parents)
        return
    start, end = (None if time is None else round(time * 1_000_000) * 1000 for time in times)
    attributes = {str(k): str(v) for k, v in (part.get("annotations") or {}).items()}
    remote = part.get("namespace") in ("remote", "aws")
    if remote:
        attributes["peer"] = str(part.get("name"))
    kind = "server" if whole else "client" if remote else "internal"
    failed = any(part.get(name) for name in ("error", "fault", "throttle"))
    name = str(part.get("name") or "")
    yield Span(
        trace, str(part["id"]), place, name, kind, start, end, attributes, parents, error=failed
    ).draft(source.file, number)


def _facts(aws: Any) -> dict[str, str]:
    held = aws if isinstance(aws, dict) else {}
    for group, name in FACTS:
        of = held.get(group)
        if isinstance(of, dict) and of.get(name):
            return {"service.instance.id": str(of[name])}
    return {}
