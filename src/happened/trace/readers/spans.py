"""Spans of request tracing: one event each, caused by its parent and by what it links to.

A span is the event of its start, on the process (service, or instance) that recorded it. What the record
proves is that the contexts it names existed by then: parent and linked spans had started. That a span
ended, and that a parent went on after its children, are times and not causes: the end is an attribute,
and no edge is made of it.

Traces joined by links are one computation, named after the smallest of their ids. The spans of a service
are put in the order of its own clock, as any log is, except where recorded causes say otherwise; with
--lanes only recorded causes order them, and a service with concurrent spans becomes several processes,
`service`, `service/2`, …

Client and server may record one id, two halves of a span: the server's half is caused by the client's,
and a child belongs to the half of its own service, or to the client's if there is none.
"""

import heapq
from collections.abc import Iterable, Sequence

from .chains import find_chains
from .draft import Assembly, Draft, Options, by_computation
from .parentage import Parentage, trace_parents

Halves = dict[str, list[int]]
"""Drafts by id."""


def span_id(trace: str, span: str) -> str:
    """Span ids are unique within their trace only."""
    return f"{trace}:{span}"


def assemble(drafts: Iterable[Draft], options: Options) -> Assembly:
    result = Assembly()
    spans = list(drafts)
    _join_linked_traces(spans)
    for group in by_computation(spans).values():
        distinct = _leave_out_repeated(group, result)
        parentage = trace_parents(distinct, _Finder(distinct))
        result.quarantined += parentage.quarantined
        names = _lanes(distinct, parentage) if options.lanes else _services(distinct, parentage)
        for i, span in enumerate(distinct):
            process, seq = names[i]
            result.rows.append(span.row(process, seq, [names[parent] for parent in parentage.parents[i]]))
    return result


def counts(spans: list[Draft], place: str = "service") -> dict[str, int]:
    """Totals of one file for people to compare; an edge is a pair of records, and halves count separately."""
    halves = _halves(spans)
    pairs = [(span, spans[i]) for span in spans for id in span.parents for i in halves.get(id, ())]
    return {
        "spans": len(spans),
        "span_ids": len(halves),
        "traces": len({span.attributes["trace"] for span in spans}),
        f"{place}s": len({span.process for span in spans}),
        "shared_ids": sum(len(of) > 1 for of in halves.values()),
        "duplicate_ids": sum(_repetitions(spans, of) for of in halves.values()),
        "links": sum(len(span.links) for span in spans),
        "no_parent_in_file": sum(not any(id in halves for id in span.parents) for span in spans),
        f"cross_{place}_edges": sum(child.process != parent.process for child, parent in pairs),
        "child_starts_before_parent": sum(_precedes(child.time, parent.time) for child, parent in pairs),
        "child_ends_after_parent": sum(_precedes(parent.end, child.end) for child, parent in pairs),
    }


def _repetitions(spans: Sequence[Draft], of_one_id: list[int]) -> int:
    """How many records of one id are repetitions; a server's half of a client's span is not one."""
    clients = sum(not spans[i].shared for i in of_one_id)
    return (clients or len(of_one_id)) - 1


def _precedes(a: int | None, b: int | None) -> bool:
    return a is not None and b is not None and a < b


def _halves(spans: Sequence[Draft]) -> Halves:
    halves: Halves = {}
    for i, span in enumerate(spans):
        halves.setdefault(span.id or "", []).append(i)
    return halves


class _Finder:
    """Which record a parent id means to a span."""

    def __init__(self, spans: Sequence[Draft]) -> None:
        self._spans = spans
        self._halves = _halves(spans)

    def __call__(self, span: Draft, id: str) -> int | None:
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


def _leave_out_repeated(spans: list[Draft], result: Assembly) -> list[Draft]:
    """Each record once. Halves of one id stay, and each server's half is caused by the client's."""
    seen: dict[tuple[str | None, str, bool], Draft] = {}
    clients = {span.id for span in spans if not span.shared}
    distinct = []
    for span in spans:
        first = seen.setdefault((span.id, span.process, span.shared), span)
        same = (first.time, first.end, first.label) == (span.time, span.end, span.label)
        if first is not span and (same or not (span.shared and span.id in clients)):
            reason = "is recorded twice" if same else "is the id of two different spans of this service"
            where = f"first as record {first.line} of {first.file}"
            result.quarantined.append(span.quarantined("id", f"{reason}, {where}", imported=False))
            continue
        if span.shared and span.id in clients:
            span.parents = (span.id or "",)
        distinct.append(span)
    return distinct


def _join_linked_traces(spans: list[Draft]) -> None:
    """Set the computation of all traces that name spans of one another to the smallest of their ids."""
    trace_of = {span.id: span.computation for span in spans}
    leader = {span.computation: span.computation for span in spans}

    def find(trace: str) -> str:
        while leader[trace] != trace:
            leader[trace] = leader[leader[trace]]
            trace = leader[trace]
        return trace

    for span in spans:
        for id in (*span.parents, *span.links):
            a, b = find(span.computation), find(trace_of.get(id, span.computation))
            leader[max(a, b)] = min(a, b)
    for span in spans:
        span.computation = find(span.computation)


def _lanes(spans: Sequence[Draft], parentage: Parentage) -> list[tuple[str, int]]:
    chains = find_chains(parentage.order, parentage.parents, [span.process for span in spans])
    names = chains.names()
    return [(names[chain], seq) for chain, seq in chains.place]


def _services(spans: Sequence[Draft], parentage: Parentage) -> list[tuple[str, int]]:
    names: list[tuple[str, int]] = [("", 0)] * len(spans)
    seq: dict[str, int] = {}
    for i in follow_clocks(spans, parentage.parents):
        process = spans[i].process
        seq[process] = seq.get(process, 0) + 1
        names[i] = (process, seq[process])
    return names


def follow_clocks(spans: Sequence[Draft], parents: Sequence[Sequence[int]]) -> list[int]:
    """Causes first, and each service's spans by its own clock as far as causes allow that.

    A service's earliest span waits for its causes. When every service waits, clocks and causes
    contradict each other: the earliest span whose causes are all there goes out of turn.
    """
    turn = {i: (span.time if span.time is not None else -1, i) for i, span in enumerate(spans)}
    queues: dict[str, list[int]] = {}
    for i in sorted(turn, key=turn.__getitem__, reverse=True):
        queues.setdefault(spans[i].process, []).append(i)
    children: list[list[int]] = [[] for _ in spans]
    for i, of in enumerate(parents):
        for parent in of:
            children[parent].append(i)
    unmet = [len(of) for of in parents]
    placed = [False] * len(spans)
    ready = [turn[i] for i in turn if unmet[i] == 0]
    heapq.heapify(ready)
    movable = list(queues)
    order: list[int] = []

    def place(i: int) -> None:
        placed[i] = True
        order.append(i)
        for child in children[i]:
            unmet[child] -= 1
            if unmet[child] == 0:
                heapq.heappush(ready, turn[child])
                movable.append(spans[child].process)

    while len(order) < len(spans):
        while movable:
            queue = queues[movable.pop()]
            while queue and (placed[queue[-1]] or unmet[queue[-1]] == 0):
                i = queue.pop()
                if not placed[i]:
                    place(i)
        while ready and placed[ready[0][1]]:
            heapq.heappop(ready)
        if ready:
            place(heapq.heappop(ready)[1])
    return order
