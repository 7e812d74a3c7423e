"""Estimate how far clocks disagree, and correct times so that no message arrives before it is sent.

Each edge from an event of p to one of q implies offset[q] - offset[p] <= time at q - time at p, where an
offset is how far a process's clock is ahead. Only the tightest edge of each pair counts, so there are at most
n² constraints, and a shortest-path solution satisfies them all if any does: a cycle of negative length means
that offsets alone cannot explain the times. The lanes of a process (trace/schema.py) share its clock: a
constraint on one lane holds for all. So both directions of a call bound the offset of two clocks, whichever
lanes the request and its return were on. A send without a time was later than the last time that its own
clock showed before it, and an arrival without a time earlier than the next time that its clock showed.

Clocks may also drift. Over a stretch of time the smallest gap one way minus the smallest gap back is twice
the difference of two clocks (as in NTP); the change of this difference between stretches gives the difference
of the drifts, and the drifts are the least-squares solution over all pairs. They are accepted if fewer
messages arrive before they are sent once the drifts are removed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..trace.schema import instance_of
from .compiled import compiled
from .computation import SEND, Computation
from .linearization import Ints
from .reach import before_on_process

WINDOWS = 16

LONGEST = np.iinfo(np.int64).max // 2
"""Times that are further apart than this (146 years in ns) are not corrected: differences would overflow."""

MOST_DRIFTS = 1024
"""Drifts are not estimated for more processes: the equations grow with the square of their number."""


class Skew(NamedTuple):
    """Per process: how far its clock is ahead, in the unit of the times given, how much faster it runs, and
    whether its computation's constraints are all satisfied."""

    offsets: Ints
    drifts: Ints
    feasible: Ints

    def of(self, processes: Ints) -> "Skew":
        return Skew(*(part[processes] for part in self))

    def ahead(self, process: Ints, since: Ints) -> Ints:
        """How far each clock is ahead when it shows the time `since` after the origin."""
        ahead: Ints = self.offsets[process] + np.rint(self.drifts[process] * since).astype(np.int64)
        return ahead


@dataclass(frozen=True, slots=True, eq=False)
class Times:
    """The physical times of the events of a computation or union, and how far the clocks disagree."""

    time: Ints  # the time of each event, 0 if it has none
    timed: Ints  # whether an event has a time
    sent: Ints  # the send of each message edge whose two ends have times
    received: Ints  # the delivery of each such edge
    earlier: Ints  # for each message edge, the send or the last event with a time before it by the
    later: Ints  # sender's clock; and the first at or after the delivery: these bound offsets
    origin: Ints  # for each process, the earliest time in its computation
    skew: Skew
    corrected: Ints  # the times minus the clocks' offsets

    @property
    def gap(self) -> Ints:
        """The duration of each message edge, after correction."""
        return self.corrected[self.received] - self.corrected[self.sent]

    def backwards(self, c: Computation) -> Ints:
        """For each process, how often its clock went back between consecutive events with a time."""
        chain = c.chain[self.timed[c.chain]]
        earlier, later = chain[:-1], chain[1:]
        back = (c.process[earlier] == c.process[later]) & (self.time[later] < self.time[earlier])
        return np.bincount(c.process[later[back]], minlength=c.processes)


def times_of(c: Computation, column: pa.ChunkedArray) -> Times | None:
    """Times from the column `time` of the encoded table; None if it has no time."""
    times = column.take(pa.array(c.row))
    timed = pc.is_valid(times).to_numpy()
    if not timed.any():
        return None
    time = pc.fill_null(times, 0).to_numpy()
    clocks = clocks_of(c.process_names, c.owner)
    received = np.flatnonzero(c.source >= 0)
    received = received[c.kind[c.source[received]] == SEND]
    sent = c.source[received]
    both = timed[sent] & timed[received]
    earlier, later = sent, received
    if not both.all():
        since, until = np.full(c.events, -1, np.int64), np.full(c.events, -1, np.int64)
        before = before_on_process(c)
        timed_around(since, until, clocks[c.process], time, timed, before, c.cause_offsets, c.causes)
        earlier, later = since[sent], until[received]
        bounded = (earlier >= 0) & (later >= 0)
        earlier, later = earlier[bounded], later[bounded]
    sent, received = sent[both], received[both]
    source, target = c.process[earlier], c.process[later]
    earliest = np.full(len(c.computation_names), np.iinfo(np.int64).max)
    np.minimum.at(earliest, c.owner[c.process[timed]], time[timed])
    origin = earliest[c.owner]
    gap = time[later] - time[earlier]
    if int(time[timed].max()) - int(time[timed].min()) > LONGEST:
        skew = Skew(np.zeros(c.processes, np.int64), np.zeros(c.processes), np.zeros(c.processes, bool))
    else:
        sent_at = time[earlier] - origin[source]
        skew = estimate(c.owner, clocks[source], clocks[target], sent_at, gap).of(clocks)
    corrected = time - skew.ahead(c.process, time - origin[c.process])
    return Times(time, timed, sent, received, earlier, later, origin, skew, corrected)


@compiled
def timed_around(since, until, clock, time, timed, before, cause_offsets, causes):  # type: ignore[no-untyped-def]
    """Fill since and until (initially -1): for each event, the last event with a time before it by its own
    clock, and the first one after it; the event itself if it has a time."""
    for e in range(clock.size):
        if timed[e]:
            since[e] = until[e] = e
            continue
        if before[e] >= 0:
            since[e] = since[before[e]]
        for k in range(cause_offsets[e], cause_offsets[e + 1]):
            u = since[causes[k]] if clock[causes[k]] == clock[e] else -1
            if u >= 0 and (since[e] < 0 or time[u] > time[since[e]]):
                since[e] = u
    for e in range(clock.size - 1, -1, -1):
        v = until[e]
        if v < 0:
            continue
        u = before[e]
        if u >= 0 and not timed[u] and (until[u] < 0 or time[v] < time[until[u]]):
            until[u] = v
        for k in range(cause_offsets[e], cause_offsets[e + 1]):
            u = causes[k]
            if clock[u] == clock[e] and not timed[u] and (until[u] < 0 or time[v] < time[until[u]]):
                until[u] = v


def clocks_of(names: Sequence[str], owner: Ints) -> Ints:
    """For each process, the first process of its computation that has the same clock."""
    first: dict[tuple[int, str], int] = {}
    of = zip(owner.tolist(), names, strict=True)
    return np.array(
        [first.setdefault((computation, instance_of(name)), i) for i, (computation, name) in enumerate(of)],
        np.int64,
    )


def instance_skew(c: Computation, times: Times) -> tuple[list[str], Skew, int]:
    """The clock skew between instances, from all computations of a union together; and the origin.

    Names are in alphabetical order; a process without lanes is an instance itself. An instance's clock is
    ahead by `Skew.ahead` of the time since the origin.
    """
    names = sorted({instance_of(name) for name in c.process_names})
    number = {name: i for i, name in enumerate(names)}
    clock = np.array([number[instance_of(name)] for name in c.process_names], np.int64)
    origin = int(times.time[times.timed].min())
    source, target = clock[c.process[times.earlier]], clock[c.process[times.later]]
    sent, gap = times.time[times.earlier] - origin, times.time[times.later] - times.time[times.earlier]
    return names, estimate(np.zeros(len(names), np.int64), source, target, sent, gap), origin


def tightest(*columns: Ints) -> tuple[Ints, ...]:
    """(source, target, smallest time difference from source to target) of each pair of processes; or, from
    (source, target, window, time difference), the smallest one of each pair in each window."""
    rows = np.stack(columns)[:, np.lexsort(columns[::-1])]
    first = np.flatnonzero((np.diff(rows[:-1], prepend=-1) != 0).any(axis=0))
    return tuple(rows[:, first])


def correct(owner: Ints, source: Ints, target: Ints, gap: Ints) -> Skew:
    """Offsets from the tightest gaps (Bellman–Ford from all processes at once); 0 unless a constraint forces
    more.

    `owner` is the computation of each process. If a computation's constraints contradict each other, its
    offsets are those reached after one more round than it has processes, the best known.
    """
    offsets = np.zeros(len(owner), np.int64)
    size = np.bincount(owner)[owner[target]]
    for rounds in range(size.max(initial=0) + 1):
        live = size >= rounds
        bound = offsets.copy()
        np.minimum.at(bound, target[live], offsets[source[live]] + gap[live])
        if np.array_equal(bound, offsets):
            break
        offsets = bound
    broken = offsets[target] - offsets[source] > gap
    return Skew(offsets, np.zeros(len(owner)), ~np.isin(owner, owner[target[broken]]))


def estimate(owner: Ints, source: Ints, target: Ints, sent: Ints, gap: Ints) -> Skew:
    """Estimate offsets, and also drifts if with offsets alone some messages arrive before they are sent.

    `sent` is the time since the earliest time of the edge's computation.
    """
    skew = correct(owner, *tightest(source, target, gap))
    for computation in np.unique(owner[~skew.feasible]):
        processes = np.flatnonzero(owner == computation)
        if len(processes) > MOST_DRIFTS:
            continue
        of = np.flatnonzero(owner[source] == computation)
        local = source[of] - processes[0], target[of] - processes[0]
        better = with_drifts(len(processes), *local, sent[of], gap[of])
        before = skew.offsets[target[of]] - skew.offsets[source[of]] > gap[of]
        if better is not None and better[1] < before.sum():
            for mine, new in zip(skew, better[0], strict=True):
                mine[processes] = new
    return skew


def with_drifts(n: int, source: Ints, target: Ints, sent: Ints, gap: Ints) -> tuple[Skew, int] | None:
    """The correction of one computation's clocks with drift, and how many edges still run backwards."""
    windows = window_of(sent, sent.max())
    drifts = solve_drifts(n, window_width(sent.max()), *tightest(source, target, windows, gap))
    if drifts is None:
        return None
    left = gap - removed(drifts, source, target, sent, gap)
    skew = correct(np.zeros(n, np.int64), *tightest(source, target, left))
    backwards = int((skew.offsets[target] - skew.offsets[source] > left).sum())
    return skew._replace(drifts=drifts), backwards


def window_of(sent: Ints, last: int) -> Ints:
    return sent // window_width(last)


def window_width(last: int) -> int:
    """The width of WINDOWS equal windows, the last of which contains the time `last`.

    Times are never multiplied, since they may need all 64 bits.
    """
    return int(last) // WINDOWS + 1


def removed(drifts: Ints, source: Ints, target: Ints, sent: Ints, gap: Ints) -> Ints:
    """The part of each gap that is due to drift."""
    there = np.rint(drifts[target] * (sent + gap)).astype(np.int64)
    here = np.rint(drifts[source] * sent).astype(np.int64)
    added: Ints = there - here
    return added


def solve_drifts(n: int, width: float, source: Ints, target: Ints, window: Ints, gap: Ints) -> Ints | None:
    """How much faster each clock runs than the average, from the smallest gap of each pair in each window.

    None if no pair was seen in two windows. The last bits depend on the order of the processes: both callers
    number processes by name.
    """
    least: dict[tuple[int, int], dict[int, int]] = {}
    for s, t, w, g in zip(source.tolist(), target.tolist(), window.tolist(), gap.tolist(), strict=True):
        if s != t:
            least.setdefault((s, t), {})[w] = g
    ends, slopes, weights = [], [], []
    for (s, t), there in sorted(least.items()):
        back = least.get((t, s), {})
        both = sorted(there.keys() & back.keys())
        if s > t and len(both) >= 2:
            continue  # this pair was already handled from its other end
        at = both if len(both) >= 2 else sorted(there)
        if len(at) < 2:
            continue
        difference = [(there[w] - back[w]) / 2 if len(both) >= 2 else there[w] for w in at]
        slopes.append(np.polyfit(np.array(at) * width, difference, 1)[0])
        ends.append((s, t))
        weights.append(len(at) * (2 if len(both) >= 2 else 1))
    if not ends:
        return None
    equations = np.zeros((len(ends), n))
    rows = np.arange(len(ends))
    equations[rows, [t for _, t in ends]] += weights
    equations[rows, [s for s, _ in ends]] -= weights
    drifts = np.linalg.lstsq(equations, np.array(slopes) * weights, rcond=None)[0]
    return np.round(drifts, 12)  # the last bits come from the solver, not from the clocks
