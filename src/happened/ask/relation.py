"""How events and requests are related: a chain between two, and everything before or after one.

A request influenced another if one of its events happened before an event of the other: through messages and
links, or because one process worked on both. Requests are the values of the attribute `trace`, or
computations in which no event has this attribute.

Happened-before never crosses computations. With `by_clock`, the events of processes with one name are also
ordered by that process's own clock, across computations: the trace records that one process worked on both,
but only the process's clock says in which order.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..causality.linearization import Ints
from ..causality.reach import future_of, past_of, path_by_column
from ..core.errors import CausalityError
from .finding import End, find_event, find_request
from .history import Asked, History, Occurrence, load, load_whole


class ChainStep(NamedTuple):
    """An event of a chain, and which edge from the previous one leads to it: `process`, `message`, `cause`,
    `clock` (only a clock says that the previous one came first), or `begin`."""

    edge: str
    event: Occurrence
    took: int | None  # ns since the previous event of the chain, None if one of the two has no time


@dataclass(frozen=True)
class Path:
    """`relation` is `before` (first before second), `after`, `concurrent` or `same`.

    steps    the chain from the earlier event to the later one; empty if they are concurrent
    """

    relation: str
    first: Occurrence
    second: Occurrence
    steps: tuple[ChainStep, ...]
    reason: str  # a sentence: why the events are concurrent, or how they are related


def path(trace: Asked, first: str, second: str) -> Path:
    """The causal chain between two events, in whichever direction it leads, or why there is none."""
    history = load(trace, [first, second], past_only=True)
    ends: tuple[tuple[str, End, End], ...] = (("before", "first", "last"), ("after", "last", "first"))
    for relation, of_first, of_second in ends:
        a, b = find_event(history, first, of_first), find_event(history, second, of_second)
        one, other = history.occurrence(a), history.occurrence(b)
        if a == b:
            return Path("same", one, other, (), f"{one.id} and {other.id} are one event")
        u, v = (a, b) if relation == "before" else (b, a)
        if history.is_before(u, v):
            events = path_by_column(history.union, history.knows(int(history.union.process[u])), u, v)
            ids = (one.id, other.id) if relation == "before" else (other.id, one.id)
            return Path(relation, one, other, chain(history, events), " happened before ".join(ids))
    if one.computation == other.computation:
        reason = f"{_newest_known(history, b, a)}, and {_newest_known(history, a, b)}"
    else:
        reason = (
            f"they belong to two computations, {one.computation!r} and {other.computation!r}, and nothing in "
            "one happened before anything in another"
        )
    return Path("concurrent", one, other, (), reason)


def _newest_known(history: History, e: int, of: int) -> str:
    """The newest event that event e knows of the process of `of`, which is not in the past of e."""
    knower, known = history.occurrence(e), history.occurrence(of)
    count = int(history.knows(int(history.union.process[of]))[e])
    if not count:
        return f"{knower.id} knows of no event of {known.process}"
    return f"the newest event of {known.process} that {knower.id} knows of is {known.process}#{count}"


def chain(
    history: History, events: Sequence[int], edge: Callable[[int, int], str] | None = None
) -> tuple[ChainStep, ...]:
    """A causal chain as steps; of several consecutive events on one process, only the first and the last.

    edge   names the edge from an event to the next; None: `History.edge`
    """
    edges = [(edge or history.edge)(u, v) for u, v in pairwise(events)]
    inner = {at for at, both in enumerate(pairwise(edges), 1) if both == ("process", "process")}
    told = [(at, history.occurrence(e)) for at, e in enumerate(events) if at not in inner]
    steps = [ChainStep("begin", first, None) for _, first in told[:1]]
    for (_, cause), (at, effect) in pairwise(told):
        steps.append(ChainStep(edges[at - 1], effect, since(cause, effect)))
    return tuple(steps)


def since(cause: Occurrence, effect: Occurrence) -> int | None:
    """Nanoseconds from the cause to the effect."""
    return None if cause.time is None or effect.time is None else effect.time - cause.time


def past(trace: Asked, event: str) -> pa.Table:
    """All events that happened before the given one, causes before effects."""
    history = load(trace, [event], past_only=True)
    e = find_event(history, event, "last")
    marked = past_of(history.edges, np.array([e]))
    return history.events_table(np.setdiff1d(np.flatnonzero(marked), e))


def future(trace: Asked, event: str) -> pa.Table:
    """All events that the given one happened before, causes before effects."""
    history = load_whole(trace, [event])
    e = find_event(history, event, "first")
    marked = future_of(history.edges, np.array([e]))
    return history.events_table(np.setdiff1d(np.flatnonzero(marked), e))


@dataclass(frozen=True)
class Influence:
    """A request that influenced the one asked about, or that it influenced."""

    request: str  # its name
    root: Occurrence  # its first event
    events: int  # how many of its events are in the past, or future, of the request asked about
    chain: tuple[ChainStep, ...]  # a shortest chain from one of the two requests to the other


@dataclass(frozen=True)
class Influences:
    """The request asked about, those that influenced it (or that it influenced), and how many there are."""

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
    c, (codes, names) = history.union, history.requests

    def edge(u: int, v: int) -> str:
        p, q = c.process[u], c.process[v]
        only_clock = c.owner[p] != c.owner[q] or (p == q and c.seq[u] > c.seq[v])
        return "clock" if only_clock else history.edge(u, v)

    asked = find_request(history, request)
    mine = np.flatnonzero(codes == asked)
    nexts = _reached(mine, _edges(history, direction, by_clock))
    reached = np.array([e for e in nexts if e < c.events], np.int64)
    begins = dict(zip(*np.unique(codes, return_index=True), strict=True))
    numbers, first, counts = np.unique(codes[reached], return_index=True, return_counts=True)
    others = []
    for at in np.argsort(first).tolist():  # the nearest first
        if numbers[at] in (asked, -1):
            continue
        way = [int(reached[first[at]])]
        while nexts[way[-1]] >= 0:
            way.append(nexts[way[-1]])
        events = [e for e in (way[::-1] if direction == "future" else way) if e < c.events]
        root = history.occurrence(int(begins[numbers[at]]))
        others.append(Influence(names[numbers[at]], root, int(counts[at]), chain(history, events, edge)))
    root = history.occurrence(int(mine[0]))
    every = len(names) if history.requests_in_trace is None else history.requests_in_trace
    return Influences(names[asked], root, direction, tuple(others), every)


def _reached(mine: Ints, edges: Ints) -> dict[int, int]:
    """For each event from which the request can be reached, the next event on a shortest way; -1 in it."""
    order = np.argsort(edges[:, 0], kind="stable")
    others = edges[order, 1].tolist()
    nodes = int(max(mine.max(), edges.max(initial=-1))) + 1
    offsets = np.searchsorted(edges[order, 0], np.arange(nodes + 1)).tolist()
    nexts = dict.fromkeys(mine.tolist(), -1)
    queue = deque(nexts)
    while queue:
        e = queue.popleft()
        for u in others[offsets[e] : offsets[e + 1]]:
            if u not in nexts:
                nexts[u] = e
                queue.append(u)
    return nexts


def _edges(history: History, direction: str, by_clock: bool) -> Ints:
    """(event, its cause), or (event, its effect). Numbers beyond the events are instants: the times that a
    process's clock showed.

    An instant has edges from its events and from the previous instant, and an event has an edge from the
    instant before its own: events at the same time stay concurrent, and there are few edges.
    """
    c, times = history.union, history.times
    own, sent = np.flatnonzero(history.before >= 0), np.flatnonzero(c.source >= 0)
    edges = [
        np.column_stack([sent, c.source[sent]]),
        np.column_stack([np.repeat(np.arange(c.events), np.diff(c.cause_offsets)), c.causes]),
        np.column_stack([own, history.before[own]]),
    ]
    if by_clock and times is not None:
        events = np.flatnonzero(times.timed)
        numbers = {name: number for number, name in enumerate(dict.fromkeys(c.process_names))}
        process = np.array([numbers[name] for name in c.process_names])[c.process[events]]
        instants, of = np.unique(np.column_stack([process, times.time[events]]), axis=0, return_inverse=True)
        of = of.reshape(-1)
        follows = np.flatnonzero(np.diff(instants[:, 0], prepend=-1) == 0)  # has an earlier instant
        later = np.flatnonzero(np.isin(of, follows))
        edges += [
            np.column_stack([c.events + of, events]),
            np.column_stack([c.events + follows, c.events + follows - 1]),
            np.column_stack([events[later], c.events + of[later] - 1]),
        ]
    found: Ints = np.concatenate(edges).astype(np.int64)
    return found[:, ::-1] if direction == "future" else found
