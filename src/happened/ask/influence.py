"""Which requests influenced a request, and through what: one chain as the witness of each.

A request influenced another if one of its events happened before one of the other's: through messages and
links, or because one process dealt with both. Requests are the values of the attribute `trace`, or
computations where no event has one.

Nothing in one computation happened before anything in another. With `by_clock`, the events of a process of
one name are taken in the order of that process's own clock as well, whatever computations they are of: that
one process dealt with both is recorded, in which order only its clock says.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..causality.linearization import Ints
from ..core.errors import CausalityError
from .finding import find_request
from .history import Asked, History, Occurrence, load_whole
from .relation import ChainStep, since


@dataclass(frozen=True)
class Influence:
    """A request that is connected with the one asked for.

    request   its name
    root      its first event
    events    how many of its events have part in it
    chain     from one of the two requests to the other, as short as there is
    """

    request: str
    root: Occurrence
    events: int
    chain: tuple[ChainStep, ...]


@dataclass(frozen=True)
class Influences:
    """The request asked for, those that influenced it (or that it influenced), and how many there are."""

    request: str
    root: Occurrence
    direction: str
    others: tuple[Influence, ...]
    requests: int


def influenced(trace: Asked, request: str, *, direction: str = "past", by_clock: bool = False) -> Influences:
    """The requests that influenced this one; with direction `future`, those that it influenced."""
    history = load_whole(trace)
    if by_clock and history.requests_in_trace is not None:
        raise CausalityError(
            "the clock of a process orders all of its computations, and this history has some alone; ask a "
            "part of the trace that is read whole"
        )
    codes, names = history.requests
    asked = find_request(history, request)
    mine = np.flatnonzero(codes == asked)
    nexts = _reached(mine, _Neighbours(history, direction, by_clock))
    reached = np.array([e for e in nexts if e < history.union.events], np.int64)
    begins = dict(zip(*np.unique(codes, return_index=True), strict=True))
    others = []
    for number, first, count in _first_reached(codes, reached, asked):
        way = [e for e in _walk(nexts, first) if e < history.union.events]
        steps = _steps(history, way, direction)
        root = history.occurrence(int(begins[number]))
        others.append(Influence(names[number], root, count, steps))
    root = history.occurrence(int(mine[0]))
    every = len(names) if history.requests_in_trace is None else history.requests_in_trace
    return Influences(names[asked], root, direction, tuple(others), every)


class _Neighbours:
    """The neighbours of an event: its causes, or its effects. Numbers beyond the events are instants."""

    def __init__(self, history: History, direction: str, by_clock: bool) -> None:
        c = history.union
        own, sent = np.flatnonzero(history.before >= 0), np.flatnonzero(c.source >= 0)
        edges = np.concatenate(
            [
                np.column_stack([sent, c.source[sent]]),
                np.column_stack([np.repeat(np.arange(c.events), np.diff(c.cause_offsets)), c.causes]),
                np.column_stack([own, history.before[own]]),
                *(_clock_order(history) if by_clock else ()),
            ]
        ).astype(np.int64)
        if direction == "future":
            edges = edges[:, ::-1]
        order = np.argsort(edges[:, 0], kind="stable")
        nodes = max(c.events, int(edges.max(initial=-1)) + 1)
        self.others: list[int] = edges[order, 1].tolist()
        self.offsets: list[int] = np.searchsorted(edges[order, 0], np.arange(nodes + 1)).tolist()

    def __call__(self, e: int) -> list[int]:
        return self.others[self.offsets[e] : self.offsets[e + 1]]


def _clock_order(history: History) -> list[Ints]:
    """(effect, cause) by the clocks of processes, through instants: the times that a process's clock showed.

    An instant follows its events and the instant before it, and an event follows the instant before its
    own: so events at the same time stay concurrent, and edges are few.
    """
    c, times = history.union, history.times
    if times is None:
        return []
    events = np.flatnonzero(times.timed)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(c.process_names))}
    process = np.array([numbers[name] for name in c.process_names])[c.process[events]]
    instants, of = np.unique(np.column_stack([process, times.time[events]]), axis=0, return_inverse=True)
    of = of.reshape(-1)
    follows = np.flatnonzero(np.diff(instants[:, 0], prepend=-1) == 0)  # an instant before it, on its process
    later = np.flatnonzero(np.isin(of, follows))
    first = c.events
    return [
        np.column_stack([first + of, events]),
        np.column_stack([first + follows, first + follows - 1]),
        np.column_stack([events[later], first + of[later] - 1]),
    ]


def _reached(mine: Ints, edges: _Neighbours) -> dict[int, int]:
    """Of every event that can be reached, the next one on a shortest way to the request; -1 in it."""
    nexts = dict.fromkeys(mine.tolist(), -1)
    queue = deque(nexts)
    while queue:
        e = queue.popleft()
        for u in edges(e):
            if u not in nexts:
                nexts[u] = e
                queue.append(u)
    return nexts


def _first_reached(codes: Ints, reached: Ints, asked: int) -> Iterator[tuple[int, int, int]]:
    """(request, its event that was reached first, how many were) of the other requests, the nearest first."""
    numbers, first, counts = np.unique(codes[reached], return_index=True, return_counts=True)
    for at in np.argsort(first).tolist():
        if numbers[at] not in (asked, -1):
            yield int(numbers[at]), int(reached[first[at]]), int(counts[at])


def _walk(nexts: dict[int, int], e: int) -> Iterator[int]:
    while e >= 0:
        yield e
        e = nexts[e]


def _steps(history: History, events: list[int], direction: str) -> tuple[ChainStep, ...]:
    """The chain in the order in which it happened; of a stretch on one process only the ends."""
    if direction == "future":
        events = events[::-1]
    edges = [_edge(history, u, v) for u, v in pairwise(events)]
    kept = [
        at
        for at in range(len(events))
        if not (0 < at < len(events) - 1 and edges[at - 1] == edges[at] == "process")
    ]
    told = [history.occurrence(events[at]) for at in kept]
    steps = [ChainStep("begin", told[0], None)]
    for (_, cause), (at, effect) in pairwise(zip(kept, told, strict=True)):
        steps.append(ChainStep(edges[at - 1], effect, since(cause, effect)))
    return tuple(steps)


def _edge(history: History, u: int, v: int) -> str:
    """As `History.edge`, and `clock` where only a clock says that one was before the other."""
    c = history.union
    p, q = c.process[u], c.process[v]
    by_clock = c.owner[p] != c.owner[q] or (p == q and c.seq[u] > c.seq[v])
    return "clock" if by_clock else history.edge(u, v)
