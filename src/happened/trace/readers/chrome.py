"""Chrome and Perfetto trace events, JSON: {"traceEvents": […]}, or the list by itself.

A slice is a span of the process `pid`, run by the thread `tid`: a complete event (X) or a begin and an end
(B, E). Slices that are open on a thread when another slice begins there are its ancestors. Asynchronous
slices (b, e) are paired by category and id, run on no thread and nest by their id. A flow (s, t, f) is a
message from the slice that is open where the flow starts to the slice that is open where it ends, or begins
next there. Instants (i) are slices of length 0; counters and other events are left out. Times are
microseconds. A file is one trace.
"""

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Any

from .draft import Options, Parsed, QuarantinedRecord
from .json_documents import as_object, records
from .source import Source
from .span_drafts import Instance, Span, at, span_id

NAMING, IGNORED = "M", frozenset("CRPNODSTpFvVcn(),=")
FLOWS = {"s": "start", "t": "step", "f": "end"}


@dataclass(slots=True)
class _Slice:
    number: int
    name: str
    where: tuple[str, str]  # process and thread
    start: int
    end: int | None
    facts: dict[str, str]
    parent: "_Slice | None" = None
    links: list[str] = field(default_factory=list)
    sends: bool = False


def parse(source: Source, options: Options) -> Parsed:
    names: dict[str, str] = {}
    events: list[tuple[int, dict[str, Any]]] = []
    for number, event, _ in records(source, ("traceEvents",)):
        if isinstance(event, QuarantinedRecord):
            yield event
        elif not isinstance(event, dict) or not isinstance(event.get("ph"), str):
            yield source.quarantined(number, event, "ph", "is no trace event: it has no phase")
        elif event["ph"] == NAMING:
            name = (event.get("args") or {}).get("name")
            if event.get("name") == "process_name" and name:
                names[str(event.get("pid"))] = str(name)
        elif event["ph"] not in IGNORED:
            if isinstance(event.get("ts"), int | float) and not isinstance(event["ts"], bool):
                events.append((number, event))
            else:
                yield source.quarantined(number, event, "ts", "is no time in microseconds")
    events.sort(key=lambda each: each[1]["ts"])
    slices, problems = _slices(source, events)
    yield from problems
    _flow(events, slices)
    trace = source.computation or source.file
    for each in sorted(slices, key=lambda each: each.number):
        yield _span(trace, each, names).draft(source.file, each.number)


def _nanoseconds(value: float) -> int:
    return round(value * 1000)


def _slices(
    source: Source, events: list[tuple[int, dict[str, Any]]]
) -> tuple[list[_Slice], list[QuarantinedRecord]]:
    """All slices with their parents, and the end events without a slice."""
    slices: list[_Slice] = []
    problems: list[QuarantinedRecord] = []
    stacks: dict[tuple[str, ...], list[_Slice]] = {}
    for number, event in events:
        phase, time = event["ph"], _nanoseconds(event["ts"])
        where = (str(event.get("pid")), str(event.get("tid")))
        asynchronous = phase in "be"
        key = ("async", where[0], str(event.get("cat")), str(event.get("id"))) if asynchronous else where
        stack = stacks.setdefault(key, [])
        if not asynchronous:
            while stack and stack[-1].end is not None and stack[-1].end < time:
                stack.pop()
        if phase in ("X", "B", "b", "i", "I"):
            duration = event.get("dur", 0)
            length = _nanoseconds(duration) if isinstance(duration, int | float) else 0
            end = None if phase in "Bb" else time + length
            facts = {str(k): str(v) for k, v in as_object(event.get("args")).items()}
            facts |= {} if asynchronous else {"thread.id": where[1]}
            parent = stack[-1] if stack else None
            new = _Slice(number, str(event.get("name", "")), where, time, end, facts, parent)
            slices.append(new)
            if phase not in ("i", "I"):
                stack.append(new)
        elif phase in "Ee":
            opened = next((each for each in reversed(stack) if each.end is None), None)
            if opened is None:
                problems.append(source.quarantined(number, event, "ph", "ends a slice that did not begin"))
            else:
                opened.end = time
                stack.remove(opened)
    return slices, problems


def _flow(events: list[tuple[int, dict[str, Any]]], slices: list[_Slice]) -> None:
    """Link the slices that flows lead to with those they come from.

    A flow is identified by category, id and name; by category and id alone if no other flow has the same two.
    """
    by_thread: dict[tuple[str, str], list[_Slice]] = {}
    for each in sorted(slices, key=lambda each: each.start):
        if "thread.id" in each.facts:
            by_thread.setdefault(each.where, []).append(each)
    last: dict[tuple[str, str], dict[str, _Slice]] = {}
    for _, event in events:
        if event["ph"] not in FLOWS:
            continue
        flows = last.setdefault((str(event.get("cat")), str(event.get("id"))), {})
        name = str(event.get("name"))
        on_thread = by_thread.get((str(event.get("pid")), str(event.get("tid"))), [])
        time = _nanoseconds(event["ts"])
        encloses = event["ph"] != "f" or event.get("bp") == "e"
        found = _enclosing(on_thread, time) if encloses else None
        if found is None:
            following = bisect_left(on_thread, time, key=lambda each: each.start)
            if following == len(on_thread):
                continue
            found = on_thread[following]
        before = flows.get(name)
        if before is None and len(flows) == 1 and event["ph"] != "s":
            (name, before) = next(iter(flows.items()))
        if before is not None and event["ph"] != "s" and before is not found:
            before.sends = True
            found.links.append(str(before.number))
        flows[name] = found


def _enclosing(slices: list[_Slice], time: int) -> _Slice | None:
    """The innermost slice of a thread that is open at a time."""
    at_most = bisect_left(slices, time + 1, key=lambda each: each.start)
    candidate = slices[at_most - 1] if at_most else None
    while candidate is not None and candidate.end is not None and candidate.end < time:
        candidate = candidate.parent
    return candidate


def _span(trace: str, each: _Slice, names: dict[str, str]) -> Span:
    pid, _ = each.where
    service = names.get(pid, pid)
    kind = "consumer" if each.links else "producer" if each.sends else "internal"
    return Span(
        trace,
        str(each.number),
        Instance(service, at(service, pid) if pid in names else at(pid, "")),
        each.name,
        kind,
        each.start,
        each.end,
        each.facts,
        (span_id(trace, str(each.parent.number)),) if each.parent is not None else (),
        tuple(span_id(trace, link) for link in each.links),
    )
