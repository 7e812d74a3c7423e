"""What can be reached from events along happened-before, and which cause each event waited for last.

Kernels over a computation, or a union, in its topological order. An event's direct causes are the event
before it on its process, its `source` and its `causes`.
Cost: linear in events and edges, each.
"""

from typing import NamedTuple

import numpy as np

from .compiled import compiled
from .computation import Computation
from .linearization import Ints

NEVER = np.iinfo(np.int64).min
"""The time of an event that has none, nor has anything before it."""


def before_on_process(c: Computation) -> Ints:
    """Of each event, the one before it on its process; -1 for the first."""
    before = np.full(c.events, -1, np.int64)
    before[c.chain[1:]] = c.chain[:-1]
    before[c.chain[c.chain_offsets[:-1][np.diff(c.chain_offsets) > 0]]] = -1
    return before


class Edges(NamedTuple):
    """The direct causes of events in a topological order, by their numbers there; -1 means none.

    before, source   of each event, the one before it on its process, and the send that it delivers
    causes           those recorded, of event e from cause_offsets[e] on
    """

    before: Ints
    source: Ints
    cause_offsets: Ints
    causes: Ints

    @property
    def events(self) -> int:
        return self.before.size

    def crossing(self, group: Ints) -> tuple[Ints, Ints]:
        """(causes, effects) of the edges that lead from one group of events to another."""
        effects = np.repeat(np.arange(self.events), np.diff(self.cause_offsets))
        ends = [(self.causes, effects)]
        for one in (self.before, self.source):
            known = np.flatnonzero(one >= 0)
            ends.append((one[known], known))
        u, v = (np.concatenate(part) for part in zip(*ends, strict=True))
        across = group[u] != group[v]
        return u[across], v[across]

    def within(self, group: Ints) -> "Edges":
        """The edges within groups of events."""
        same = group[self.causes] == np.repeat(group, np.diff(self.cause_offsets))
        offsets = np.concatenate([[0], np.cumsum(same)])[self.cause_offsets]
        before, source = (
            np.where((one >= 0) & (group[one] == group), one, -1) for one in (self.before, self.source)
        )
        return Edges(before, source, offsets, self.causes[same])

    def part(self, first: int, end: int) -> "Edges":
        """Of the events from one number to another, into which no edge leads from outside; renumbered."""
        offsets = self.cause_offsets[first : end + 1]
        before, source = (
            np.where(one[first:end] >= 0, one[first:end] - first, -1) for one in (self.before, self.source)
        )
        return Edges(before, source, offsets - offsets[0], self.causes[offsets[0] : offsets[-1]] - first)


def edges_of(c: Computation) -> Edges:
    return Edges(before_on_process(c), c.source, c.cause_offsets, c.causes)


def direct_causes(c: Computation, before: Ints, e: int) -> list[int]:
    """The direct causes of an event, each once: on its own process first, then the send, then the
    recorded."""
    recorded = c.causes[c.cause_offsets[e] : c.cause_offsets[e + 1]].tolist()
    return [*dict.fromkeys(u for u in (int(before[e]), int(c.source[e]), *recorded) if u >= 0)]


def past_of(edges: Edges, events: Ints) -> Ints:
    """Whether each event is one of these or happened before one of them."""
    marked = np.zeros(edges.events, bool)
    marked[events] = True
    _mark_past(marked, *edges)
    return marked


def future_of(edges: Edges, events: Ints) -> Ints:
    """Whether each event is one of these or one of them happened before it."""
    marked = np.zeros(edges.events, bool)
    marked[events] = True
    _mark_future(marked, *edges)
    return marked


def known_of(c: Computation, before: Ints, process: int) -> Ints:
    """Of each event, how many events of one process are in its past, itself included: a column of vectors."""
    known = np.zeros(c.events, np.int32)
    _known(known, process, c.process, c.seq, before, c.source, c.cause_offsets, c.causes)
    return known


def last_causes(edges: Edges, time: Ints, timed: Ints) -> tuple[Ints, Ints]:
    """(since, waited): when each event can have happened at the earliest that is known, and which of its
    direct causes was the last (-1: it has none).

    An event without a time is as late as the last of its causes, and NEVER if they have none either. Of
    causes at the same time, the one that itself had to wait the longer counts as the last, then one on
    another process.
    """
    since, waited = np.empty(edges.events, np.int64), np.empty(edges.events, np.int64)
    _last_causes(since, waited, time, timed, *edges)
    return since, waited


def waited_chain(since: Ints, waited: Ints, end: int, begin: int = -1) -> list[int]:
    """The critical path to an event: the chain of events each of which the next one waited for last.

    It leads from `begin`, or from an event of which no cause is known, or none since `begin`. The arrays are
    those of `last_causes`.
    """
    earliest = max(NEVER + 1, int(since[begin])) if begin >= 0 else NEVER + 1
    path = [end]
    while path[-1] != begin and (u := int(waited[path[-1]])) >= 0 and since[u] >= earliest:
        path.append(u)
    return path[::-1]


def replay(edges: Edges, since: Ints, work: Ints, pinned: Ints) -> Ints:
    """When each event would have happened if it took `work` after the last of its causes.

    Pinned events, and those without a cause that has a time, stay where they are.
    """
    then = np.empty(edges.events, np.int64)
    _replay(then, since, work, pinned, *edges)
    return then


@compiled
def _mark_past(marked, before, source, cause_offsets, causes):  # type: ignore[no-untyped-def]
    for e in range(marked.size - 1, -1, -1):
        if marked[e]:
            if before[e] >= 0:
                marked[before[e]] = True
            if source[e] >= 0:
                marked[source[e]] = True
            for k in range(cause_offsets[e], cause_offsets[e + 1]):
                marked[causes[k]] = True


@compiled
def _mark_future(marked, before, source, cause_offsets, causes):  # type: ignore[no-untyped-def]
    for e in range(marked.size):
        found = marked[e] or (before[e] >= 0 and marked[before[e]]) or (source[e] >= 0 and marked[source[e]])
        for k in range(cause_offsets[e], cause_offsets[e + 1]):
            found = found or marked[causes[k]]
        marked[e] = found


@compiled
def _known(known, of, process, seq, before, source, cause_offsets, causes):  # type: ignore[no-untyped-def]
    for e in range(process.size):
        if process[e] == of:
            known[e] = seq[e]
            continue
        if before[e] >= 0:
            known[e] = known[before[e]]
        if source[e] >= 0:
            known[e] = max(known[e], known[source[e]])
        for k in range(cause_offsets[e], cause_offsets[e + 1]):
            known[e] = max(known[e], known[causes[k]])


@compiled
def _is_later(u, than, since, waited, before):  # type: ignore[no-untyped-def]
    """Whether cause u was waited for rather than another one, -1 if there is none; `before` is on the
    process.
    """
    if than < 0 or since[u] != since[than]:
        return than < 0 or since[u] > since[than]
    ours = since[waited[u]] if waited[u] >= 0 else NEVER
    theirs = since[waited[than]] if waited[than] >= 0 else NEVER
    return ours > theirs or (ours == theirs and than == before)


@compiled
def _last_causes(since, waited, time, timed, before, source, cause_offsets, causes):  # type: ignore[no-untyped-def]
    for e in range(since.size):
        last = before[e]
        if source[e] >= 0 and _is_later(source[e], last, since, waited, before[e]):
            last = source[e]
        for k in range(cause_offsets[e], cause_offsets[e + 1]):
            if _is_later(causes[k], last, since, waited, before[e]):
                last = causes[k]
        waited[e] = last
        since[e] = time[e] if timed[e] else since[last] if last >= 0 else NEVER


@compiled
def _replay(then, since, work, pinned, before, source, cause_offsets, causes):  # type: ignore[no-untyped-def]
    for e in range(then.size):
        at = NEVER
        if before[e] >= 0:
            at = then[before[e]]
        if source[e] >= 0:
            at = max(at, then[source[e]])
        for k in range(cause_offsets[e], cause_offsets[e + 1]):
            at = max(at, then[causes[k]])
        then[e] = since[e] if pinned[e] or at == NEVER else at + work[e]
