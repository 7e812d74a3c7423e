"""Put the events of spans on lanes: a process of a trace is sequential, but an instance runs many spans.

An event may continue a lane whose last event is in its past, so that the order along a lane adds nothing to
the edges of the graph. While a span is open, its lane is reserved for the span and for the children that it
waits for; any event of the instance can continue a lane without open spans. The first lane has the
instance's own name, the others are called `instance~2`, `instance~3`, … and the queues of an instance
`instance~[channel]`.

An event's past is a set of bits, by place in the topological order; it is dropped with the event's last
effect. Cost: events x (events / 64) in the worst case, a few operations per event for a request trace.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from ..schema import LANE, instance_of
from .span_graph import RECORDED, SpanEvent, SpanGraph, causes_first, effects_of

MOST_TRIED = 64
"""How many lanes without open spans are tried, the last used first, before a new lane begins."""


@dataclass(slots=True, eq=False)
class Lane:
    name: str
    events: list[int] = field(default_factory=list)
    open: list[int] = field(default_factory=list)  # spans, the innermost last


@dataclass(slots=True)
class LanePlacement:
    """The process and seq of each event, and its edges (cause, kind): recorded ones, and implied ones that do
    not follow from other edges."""

    names: list[tuple[str, int]]
    edges: list[list[tuple[int, str]]]


def place(graph: SpanGraph, *, clock_order: bool = False) -> LanePlacement:
    """Put every event on a lane, after removing implied edges that contradict the record.

    clock_order   order all events of an instance by its clock; open spans then reserve no lanes
    """
    events = graph.events
    order = causes_first(events)
    if len(order) < len(events):
        graph.drop_contradictions()
        order = causes_first(events)
    if clock_order:
        follow_clocks(events)
        order = causes_first(events)
    at = {event: position for position, event in enumerate(order)}
    awaited = [0] * len(events)
    for event in events:
        for earlier, _ in event.before:
            awaited[earlier] += 1
    lanes = _Lanes(graph, nesting=not clock_order)
    past: dict[int, int] = {}
    edges: list[list[tuple[int, str]]] = [[] for _ in events]
    for e in order:
        before = events[e].before
        known = 0  # what lies before the events before this one
        for earlier, _ in before:
            known |= past[earlier]
        edges[e] = [edge for edge in before if edge[1] in RECORDED or not known >> at[edge[0]] & 1]
        for earlier, _ in before:
            known |= 1 << at[earlier]
        lanes.put(e, known, at)
        past[e] = known
        for done in (e, *(earlier for earlier, _ in before)):
            awaited[done] -= done != e
            if awaited[done] == 0:
                past.pop(done, None)
    return LanePlacement(lanes.names(), edges)


class _Lanes:
    def __init__(self, graph: SpanGraph, nesting: bool) -> None:
        self._nesting = nesting
        self._events = graph.events
        self._lane_of: list[Lane | None] = [None] * len(graph.events)
        self._opened: dict[int, Lane] = {}  # span -> the lane that it opened
        self._free: dict[str, dict[Lane, None]] = {}  # of each owner, where nothing is open; last used last
        self._count: dict[str, int] = {}

    def put(self, e: int, past: int, at: dict[int, int]) -> None:
        event = self._events[e]
        lane = self._choose(event, past, at)
        lane.events.append(e)
        self._lane_of[e] = lane
        free = self._free.setdefault(event.owner, {})
        free.pop(lane, None)
        if self._nesting and event.what == "start" and LANE not in event.owner:
            lane.open.append(event.span)
            self._opened[event.span] = lane
        elif lane.open and event.what == "end" and lane.open[-1] == event.span:
            lane.open.pop()
        if not lane.open:
            free[lane] = None

    def _choose(self, event: SpanEvent, past: int, at: dict[int, int]) -> Lane:
        own = self._opened.get(event.within)
        if own is not None and own.open and own.open[-1] == event.within and past >> at[own.events[-1]] & 1:
            return own
        for lane in islice(reversed(self._free.get(event.owner, {})), MOST_TRIED):
            if past >> at[lane.events[-1]] & 1:
                return lane
        number = self._count[event.owner] = self._count.get(event.owner, 0) + 1
        return Lane(event.owner if number == 1 else f"{event.owner}{LANE}{number}")

    def names(self) -> list[tuple[str, int]]:
        names: list[tuple[str, int]] = [("", 0)] * len(self._lane_of)
        for lane in {lane for lane in self._lane_of if lane is not None}:
            for seq, e in enumerate(lane.events, start=1):
                names[e] = (lane.name, seq)
        return names


def follow_clocks(events: Sequence[SpanEvent]) -> None:
    """Add edges that order the timed events of each instance by its clock, as far as causes allow, and give
    queues no lanes of their own.

    An instance's earliest event waits for its causes. When every instance waits, clocks and causes
    contradict each other: the earliest event whose causes are all there goes out of turn.
    """
    for event in events:
        event.owner = instance_of(event.owner)
    turn = {e: (event.time, e) for e, event in enumerate(events) if event.time is not None}
    owner = [event.owner for event in events]
    queues: dict[str, list[int]] = {}
    for e in sorted(turn, key=turn.__getitem__, reverse=True):
        queues.setdefault(owner[e], []).append(e)
    effects = effects_of(events)
    unmet = [len(event.before) for event in events]
    placed = [False] * len(events)
    last: dict[str, int] = {}
    ready = [turn[e] for e in turn if unmet[e] == 0]
    heapq.heapify(ready)
    movable = list(queues)
    untimed = [e for e in range(len(events)) if e not in turn and unmet[e] == 0]

    def put(e: int) -> None:
        placed[e] = True
        if e in turn:
            if owner[e] in last:
                events[e].before.insert(0, (last[owner[e]], "clock"))
            last[owner[e]] = e
        for effect in effects[e]:
            unmet[effect] -= 1
            if unmet[effect] == 0 and effect in turn:
                heapq.heappush(ready, turn[effect])
                movable.append(owner[effect])
            elif unmet[effect] == 0:
                untimed.append(effect)

    while untimed or movable or ready:
        while untimed:
            put(untimed.pop())
        while movable and not untimed:
            queue = queues[movable.pop()]
            while queue and (placed[queue[-1]] or unmet[queue[-1]] == 0):
                e = queue.pop()
                if not placed[e]:
                    put(e)
        while ready and placed[ready[0][1]]:
            heapq.heappop(ready)
        if ready and not untimed and not movable:
            put(heapq.heappop(ready)[1])
