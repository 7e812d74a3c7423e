"""Which events happened before or after one, as a stretch of each process.

The causal past of an event is a prefix of every process and its future a suffix, so a slice of a computation
is two numbers per process. Each is found in one pass over the events and takes memory for the processes
alone: vectors, which are events x processes, are not needed.
"""

from typing import NamedTuple

import numpy as np

from .compiled import compiled
from .computation import Computation
from .linearization import Ints


class Extent(NamedTuple):
    """Events begin[p] + 1, …, end[p] of each process p, by seq; none where end[p] <= begin[p]."""

    begin: Ints
    end: Ints

    def mask(self, c: Computation) -> Ints:
        """Whether each event is inside."""
        inside: Ints = (c.seq > self.begin[c.process]) & (c.seq <= self.end[c.process])
        return inside

    @property
    def events(self) -> int:
        return int(np.maximum(self.end - self.begin, 0).sum())


def everything(c: Computation) -> Extent:
    return Extent(np.zeros(c.processes, np.int64), np.diff(c.chain_offsets).astype(np.int64))


def past(c: Computation, e: int) -> Extent:
    """The causal past of an event, itself included."""
    end = np.zeros(c.processes, np.int64)
    _reach_back(e, end, c.process, c.seq, c.source, c.cause_offsets, c.causes)
    return Extent(np.zeros(c.processes, np.int64), end)


def future(c: Computation, e: int) -> Extent:
    """The causal future of an event, itself included."""
    lengths = np.diff(c.chain_offsets).astype(np.int64)
    first = lengths + 1
    _reach_on(e, first, c.process, c.seq, c.source, c.cause_offsets, c.causes)
    return Extent(first - 1, lengths)


def between(c: Computation, marks: Ints, low: float, high: float) -> Extent:
    """The smallest extent that contains every event whose mark is in low..high."""
    return hull(c, (marks >= low) & (marks <= high))


def hull(c: Computation, wanted: Ints) -> Extent:
    """The smallest extent that contains every event where `wanted` is true."""
    begin, end = np.diff(c.chain_offsets).astype(np.int64), np.zeros(c.processes, np.int64)
    inside = np.flatnonzero(wanted)
    np.minimum.at(begin, c.process[inside], c.seq[inside] - 1)
    np.maximum.at(end, c.process[inside], c.seq[inside])
    return Extent(np.minimum(begin, end), end)


@compiled
def _reach_back(e, end, process, seq, source, cause_offsets, causes):  # type: ignore[no-untyped-def]
    """Events are in topological order: what follows f and is in the past has been seen when f is."""
    end[process[e]] = seq[e]
    for f in range(e, -1, -1):
        if seq[f] > end[process[f]]:
            continue
        u = source[f]
        if u >= 0:
            end[process[u]] = max(end[process[u]], seq[u])
        for k in range(cause_offsets[f], cause_offsets[f + 1]):
            u = causes[k]
            end[process[u]] = max(end[process[u]], seq[u])


@compiled
def _reach_on(e, first, process, seq, source, cause_offsets, causes):  # type: ignore[no-untyped-def]
    first[process[e]] = seq[e]
    for f in range(e + 1, process.size):
        p = process[f]
        if seq[f] >= first[p]:
            continue
        u = source[f]
        reached = u >= 0 and seq[u] >= first[process[u]]
        for k in range(cause_offsets[f], cause_offsets[f + 1]):
            u = causes[k]
            reached = reached or seq[u] >= first[process[u]]
        if reached:
            first[p] = seq[f]
