"""Spans of request tracing: two events each, a start and an end, and calls between instances as messages.

docs/spans.md draws the model; span_graph.py defines the edges and their evidence, span_lanes.py puts events
on lanes, and span_joins.py finds the traces that form one computation.

In the trace, an event's process is its lane. Its attributes describe the span: `trace`, `span`, `service`,
`kind`, and

    event     start or end; or send, deliver or return, where a message has an event of its own
    edge      the kinds of the edges to it, see span_graph.py
    implied   those of the event's `causes` that are implied, not recorded, as `process#seq`
    caller    the service that a delivery came from; on a start also one that recorded nothing
    caller_failed   `true` on a delivery whose caller's span says that the call failed
    callee    on a start, the called service that recorded nothing

What else the source says of a span is on its start. With --clock-order the clock of an instance orders all
of its events that have a time; the edges say so.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from .cycles import trace_parents
from .draft import Assembly, Draft, Options, Row, by_computation
from .span_graph import RECORDED, SpanGraph
from .span_lanes import LanePlacement, place

ON_EVERY_EVENT = ("trace", "span", "service", "kind", "error")
OURS = frozenset({"event", "edge", "implied", "caller", "caller_failed", "callee"})


def assemble(drafts: Iterable[Draft], options: Options) -> Assembly:
    """The rows of drafts whose computations have been joined (span_joins.py)."""
    result = Assembly()
    for group in by_computation(drafts).values():
        group.sort(key=_content)  # makes lanes independent of the order of the input
        spans = distinct_spans(group, result)
        parentage = trace_parents(spans, Finder(spans, [draft for draft in group if draft.absent]))
        result.quarantined += parentage.quarantined
        graph = SpanGraph(spans, parentage)
        result.rows += _rows(graph, place(graph, clock_order=options.clock_order))
        result.facts["detached_spans"] += graph.detached
        result.facts["contradicted_orders"] += graph.dropped
        result.facts["untimed_spans"] += sum(span.time is None for span in spans)
    return result


def _content(span: Draft) -> tuple[Any, ...]:
    """A span's content as a sort key: only records with equal content have equal keys."""
    times = (span.time is None, span.time or 0, span.end is None, span.end or 0, span.took or 0)
    names = (span.id or "", span.process, span.shared, span.label or "", span.parents, span.links)
    return *times, *names, sorted(span.attributes.items())


def counts(spans: list[Draft], place: str = "service") -> dict[str, int | set[str]]:
    """Counts of one file, for people to compare; an edge is a pair of records; halves count separately."""
    spans = [span for span in spans if not span.absent]
    halves = halves_of(spans)
    pairs = [(span, spans[i]) for span in spans for id in span.parents for i in halves.get(id, ())]
    return {
        "spans": len(spans),
        "span_ids": len(halves),
        "traces": {span.attributes["trace"] for span in spans},
        f"{place}s": {span.attributes["service"] for span in spans},
        "instances": {span.process for span in spans},
        "shared_ids": sum(len(of) > 1 for of in halves.values()),
        "duplicate_ids": sum(_repetitions(spans, of) for of in halves.values()),
        "links": sum(len(span.links) for span in spans),
        "no_parent_in_file": sum(not any(id in halves for id in span.parents) for span in spans),
        f"cross_{place}_edges": sum(_service(child) != _service(parent) for child, parent in pairs),
        "child_starts_before_parent": sum(_precedes(child.time, parent.time) for child, parent in pairs),
        "child_ends_after_parent": sum(_precedes(parent.end, child.end) for child, parent in pairs),
    }


def _service(span: Draft) -> str:
    return span.attributes["service"]


def _repetitions(spans: Sequence[Draft], of_one_id: list[int]) -> int:
    """The number of repeated records of one id; a server's half of a client's span is no repetition."""
    clients = sum(not spans[i].shared for i in of_one_id)
    return (clients or len(of_one_id)) - 1


def _precedes(a: int | None, b: int | None) -> bool:
    return a is not None and b is not None and a < b


def _rows(graph: SpanGraph, placed: LanePlacement) -> list[Row]:
    """The rows of one computation, span by span."""
    to: dict[str, list[str]] = {}
    for e, event in enumerate(graph.events):
        if event.kind == "deliver" and event.message is not None:
            lane = placed.names[e][0]
            if lane not in (lanes := to.setdefault(event.message, [])):
                lanes.append(lane)
    order = sorted(range(len(graph.events)), key=lambda e: (graph.events[e].span, placed.names[e], e))
    return [_row(graph, placed, e, to) for e in order]


def _row(graph: SpanGraph, placed: LanePlacement, e: int, to: dict[str, list[str]]) -> Row:
    event = graph.events[e]
    span = graph.spans[event.span]
    process, seq = placed.names[e]
    # Only a delivery is connected with its send by the message: a receive names its send as a cause.
    sent = graph.senders.get(event.message or "", -1) if event.kind == "deliver" else -1
    causes: dict[tuple[str, int], bool] = {}  # whether each is recorded
    for earlier, kind in placed.edges[e]:
        name = placed.names[earlier]
        if earlier != sent and name != (process, seq - 1):
            causes[name] = causes.get(name, False) or kind in RECORDED
    kinds = sorted({kind for _, kind in placed.edges[e]})
    implied = [f"{name}#{number}" for (name, number), recorded in causes.items() if not recorded]
    start = event.what == "start"
    told = span.attributes
    if start:  # other attributes with one of our names become `source.name`
        attributes = {f"source.{name}" if name in OURS else name: value for name, value in told.items()}
    else:
        attributes = {name: told[name] for name in ON_EVERY_EVENT if name in told}
    attributes |= event.notes | {"event": event.what}
    if kinds:
        attributes["edge"] = " ".join(kinds)
    if implied:
        attributes["implied"] = " ".join(implied)
    return {
        "computation": span.computation,
        "process": process,
        "seq": seq,
        "kind": event.kind,
        "message": event.message,
        "to": sorted(to.get(event.message or "", [])) if event.kind == "send" else None,
        "time": event.time,
        "relevant": True,
        "causes": [{"process": name, "seq": number} for name, number in causes] or None,
        "label": span.label if start else f"{span.label or ''} ({event.what})".lstrip(),
        "attributes": attributes,
    }


def distinct_spans(drafts: Sequence[Draft], result: Assembly) -> list[Draft]:
    """Each span once; what was merged is counted, what was left out is quarantined.

    A tracer may report a span in pieces: records of one id by one instance, on one side of a call, each with
    fields that the others lack. Pieces are merged. Two complete records with equal content are a repetition;
    two different ones are two spans with one id, and the second is quarantined. Client and server may record
    one id, as two halves of a call: the server's half is then the callee of the client's half.
    """
    spans = [draft for draft in drafts if not draft.absent]
    _add_ports(spans)
    seen: dict[tuple[str | None, str, bool], Draft] = {}
    clients = {span.id for span in spans if not span.shared}
    distinct = []
    for span in spans:
        first = seen.setdefault((span.id, span.process, span.shared), span)
        if first is span:
            distinct.append(span)
            continue
        same = (first.time, first.end, first.label) == (span.time, span.end, span.label)
        whole = None not in (first.time, first.end, span.time, span.end)
        if not same and not whole and (first.label or span.label) == (span.label or first.label):
            _merge(first, span)
            result.facts["pieces_merged"] += 1
        elif same or not (span.shared and span.id in clients):
            reason = "is recorded twice" if same else "is the id of two different spans of this service"
            result.quarantined.append(
                span.quarantined("id", f"{reason}, first {first.place}", imported=False)
            )
        else:  # a call that was tried again with the same id
            distinct.append(span)
    for span in distinct:
        if span.shared and span.id in clients:
            span.parents = (span.id or "",)
    return distinct


def _add_ports(spans: Sequence[Draft]) -> None:
    """An address without a port means the instance with a port at that address, if there is only one."""
    ported: dict[str, set[str]] = {}
    for span in spans:
        address, colon, port = span.process.rpartition(":")
        if colon and port.isdigit() and "@" in address:
            ported.setdefault(address, set()).add(span.process)
    for span in spans:
        known = ported.get(span.process, set())
        if len(known) == 1:
            span.process = next(iter(known))


def _merge(first: Draft, again: Draft) -> None:
    first.label = first.label or again.label
    first.time = min((time for time in (first.time, again.time) if time is not None), default=None)
    first.end = max((time for time in (first.end, again.end) if time is not None), default=None)
    first.took = again.took if first.took is None else first.took
    if first.end is None and first.time is not None and first.took is not None:
        first.end = min(first.time + first.took, (1 << 63) - 1)
    first.attributes = again.attributes | first.attributes
    first.parents = first.parents or again.parents
    first.links = tuple(dict.fromkeys(first.links + again.links))
    first.channel = first.channel or again.channel


def halves_of(spans: Sequence[Draft]) -> dict[str, list[int]]:
    """The spans of each id."""
    halves: dict[str, list[int]] = {}
    for i, span in enumerate(spans):
        halves.setdefault(span.id or "", []).append(i)
    return halves


class Finder:
    """Resolves the parent ids that spans name to spans.

    A child belongs to the half of its own instance, or to the client's half if its instance has none.
    References to a span that was set aside (`Draft.absent`) mean the span's own parents.
    """

    def __init__(self, spans: Sequence[Draft], absent: Sequence[Draft]) -> None:
        self._spans = spans
        self._halves = halves_of(spans)
        self._absent = {draft.id or "": draft.parents for draft in absent if draft.id not in self._halves}

    def __call__(self, span: Draft, id: str) -> int | None:
        passed: set[str] = set()
        while id in self._absent and id not in passed and self._absent[id]:
            passed.add(id)
            id = self._absent[id][0]
        candidates = self._halves.get(id, [])
        if id == span.id:  # a server's half names its client's; a span that names itself is a circle
            clients = [i for i in candidates if self._spans[i] is not span and not self._spans[i].shared]
            candidates = clients or candidates
        local = [i for i in candidates if self._spans[i].process == span.process]
        servers = [i for i in local if self._spans[i].shared]
        for choice in (servers, local):
            if len(choice) == 1:
                return choice[0]
        # The client's half happened before the others, so it is a cause whichever half was meant.
        clients = [i for i in candidates if not self._spans[i].shared]
        return next(iter(clients or candidates), None)
