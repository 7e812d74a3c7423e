"""Which events can be reached along happened-before, and which cause each event waited for last.

Kernels over a computation, or a union, in its topological order. An event's direct causes are the event
before it on its process, its `source` and its `causes`. Cost of each kernel: linear in events and edges.

For computations whose vectors would be too wide (commit graphs and other DAGs), bit sets compute
reachability. A pass assigns one bit to each of 64 events. Each later event gets a word: the bits of those
among the 64 that are in its past, which is the union of its direct causes' words. So a pass costs one step
for each edge between its first event and its last question. For an edge u -> v, the reduction asks whether
another direct cause of v has u in its past. Only events with several direct causes ask, and never about their
newest cause. The events asked about are grouped into passes by the span of the questions about them, then in
topological order: branches that were merged soon share short passes, and only long-lived branches need long
passes. Memory: a few words for each event.

The causal past of an event is a prefix of every process and its future a suffix, so two numbers per process
describe such a part of a computation (`Extent`).
"""

from typing import NamedTuple

import numpy as np

from .compiled import compiled
from .computation import Computation
from .linearization import Ints, members, offsets_of

NEVER = np.iinfo(np.int64).min  # The time of an event without a time if no event before it has one

WORD = 64
MOST_WORDS = 8  # Words per event in one counting pass: as many as a cache line holds

CELLS = 8_000_000  # Words, over all events, that a counting pass may hold: 64 MB


def before_on_process(c: Computation) -> Ints:
    """For each event, the event before it on its process; -1 for the first."""
    before = np.full(c.events, -1, np.int64)
    before[c.chain[1:]] = c.chain[:-1]
    before[c.chain[c.chain_offsets[:-1][np.diff(c.chain_offsets) > 0]]] = -1
    return before


class Edges(NamedTuple):
    """The direct causes of events in topological order, by their numbers in that order.

    offsets, causes   event e has causes[offsets[e]:offsets[e + 1]]: the event before it on its process, then
                      the send that it delivers, then its recorded causes
    """

    before: Ints  # for each event, the event before it on its process; -1 means none
    offsets: Ints
    causes: Ints

    @property
    def events(self) -> int:
        return self.before.size

    @property
    def effects(self) -> Ints:
        """The effect of each edge, in the order of `causes`."""
        return np.repeat(np.arange(self.events), np.diff(self.offsets))

    def crossing(self, group: Ints) -> tuple[Ints, Ints]:
        """(causes, effects) of the edges that lead from one group of events into another group."""
        across = group[self.causes] != group[self.effects]
        return self.causes[across], self.effects[across]

    def within(self, group: Ints) -> "Edges":
        """The edges whose two events are in the same group."""
        same = group[self.causes] == group[self.effects]
        before = np.where((self.before >= 0) & (group[self.before] == group), self.before, -1)
        return Edges(before, offsets_of(same)[self.offsets], self.causes[same])

    def part(self, first: int, end: int) -> "Edges":
        """The edges among the events first to end - 1, renumbered; no edge may enter from outside."""
        offsets, before = self.offsets[first : end + 1], self.before[first:end]
        causes = self.causes[offsets[0] : offsets[-1]] - first
        return Edges(np.where(before >= 0, before - first, -1), offsets - offsets[0], causes)

    def in_order(self) -> "Edges":
        """The same edges with each event's causes in increasing order and without repetitions."""
        keys = self.effects * max(self.events, 1) + self.causes
        keys.sort(kind="stable")  # the runs are sorted already
        effect, cause = np.divmod(keys[np.diff(keys, prepend=-1) != 0], max(self.events, 1))
        return Edges(self.before, np.searchsorted(effect, np.arange(self.events + 1)), cause)


def edges_of(c: Computation) -> Edges:
    before, lengths = before_on_process(c), np.diff(c.cause_offsets)
    follows, delivers = before >= 0, c.source >= 0
    offsets = offsets_of(follows.astype(np.int64) + delivers + lengths)
    causes = np.empty(offsets[-1], np.int64)
    causes[offsets[:-1][follows]] = before[follows]
    causes[(offsets[:-1] + follows)[delivers]] = c.source[delivers]
    causes[members(offsets[1:] - lengths, lengths)] = c.causes
    return Edges(before, offsets, causes)


def past_of(edges: Edges, events: Ints) -> Ints:
    """Whether each event is one of the given events or happened before one of them."""
    marked = np.zeros(edges.events, bool)
    marked[events] = True
    _mark_past(marked, edges.offsets, edges.causes)
    return marked


def future_of(edges: Edges, events: Ints) -> Ints:
    """Whether each event is one of the given events or one of them happened before it."""
    marked = np.zeros(edges.events, bool)
    marked[events] = True
    _mark_future(marked, edges.offsets, edges.causes)
    return marked


def known_of(c: Computation, edges: Edges, process: int) -> Ints:
    """For each event, how many events of `process` are in its past, itself included: a column of vectors."""
    known = np.where(c.process == process, c.seq, 0).astype(np.int32)
    _known(known, edges.offsets, edges.causes)
    return known


def last_causes(edges: Edges, time: Ints, timed: Ints) -> tuple[Ints, Ints]:
    """(since, waited): the earliest possible time of each event as far as known, and which of its direct
    causes was the last (-1: it has none).

    An event without a time gets the time of its last cause, or NEVER if no cause has a time. Of causes at the
    same time, the one that itself had to wait longer counts as the last, then one on another process.
    """
    since, waited = np.empty(edges.events, np.int64), np.empty(edges.events, np.int64)
    _last_causes(since, waited, time, timed, *edges)
    return since, waited


def waited_chain(since: Ints, waited: Ints, end: int, begin: int = -1) -> list[int]:
    """The critical path to an event: a chain in which each event is the one that the next waited for last.

    It starts at `begin`, or at an event without a known cause, or without one since `begin`. The arrays are
    those of `last_causes`.
    """
    earliest = max(NEVER + 1, int(since[begin])) if begin >= 0 else NEVER + 1
    path = [end]
    while path[-1] != begin and (u := int(waited[path[-1]])) >= 0 and since[u] >= earliest:
        path.append(u)
    return path[::-1]


def replay(edges: Edges, since: Ints, work: Ints, pinned: Ints) -> Ints:
    """The time of each event if it took `work` after the last of its causes.

    Pinned events, and events of which no cause has a time, keep their times.
    """
    then = np.empty(edges.events, np.int64)
    _replay(then, since, work, pinned, edges.offsets, edges.causes)
    return then


def causal_path(c: Computation, vectors: Ints, first: int, last: int) -> list[int]:
    """A chain of events from `first` to `last`: each follows the previous one on its process, delivers its
    message or records it as a cause. Requires that `first` happened before `last`."""
    p = c.process[first]
    return path_by_column(c, vectors[:, p - c.first[p]], first, last)


def path_by_column(c: Computation, known: Ints, first: int, last: int) -> list[int]:
    """Like `causal_path`, from each event's knowledge of the process of `first` alone (`reach.known_of`).

    Walking back from `last`, the earliest event of a process that knows of `first` must have learnt of it
    from another process; so each process is visited once and the path has at most two events per process.
    """
    p, seq = c.process[first], c.seq[first]
    path = [last]
    while c.process[path[-1]] != p:
        q = c.process[path[-1]]
        chain = c.chain[c.chain_offsets[q] : c.chain_offsets[q + 1]]
        learnt = int(chain[np.searchsorted(known[chain], seq)])
        if learnt != path[-1]:
            path.append(learnt)
        path.append(_informant(c, known, learnt, seq))
    if path[-1] != first:
        path.append(first)
    return path[::-1]


def _informant(c: Computation, known: Ints, e: int, seq: int) -> int:
    """A predecessor of e on another process that knows of event `seq`."""
    causes = c.causes[c.cause_offsets[e] : c.cause_offsets[e + 1]]
    return next(int(u) for u in (c.source[e], *causes) if u >= 0 and known[u] >= seq)


class Extent(NamedTuple):
    """Events begin[p] + 1, …, end[p] of each process p, by seq; none where end[p] <= begin[p]."""

    begin: Ints
    end: Ints

    def mask(self, c: Computation) -> Ints:
        """Whether each event is inside the extent."""
        inside: Ints = (c.seq > self.begin[c.process]) & (c.seq <= self.end[c.process])
        return inside

    @property
    def events(self) -> int:
        return int(np.maximum(self.end - self.begin, 0).sum())


def everything(c: Computation) -> Extent:
    return Extent(np.zeros(c.processes, np.int64), np.diff(c.chain_offsets).astype(np.int64))


def past(c: Computation, e: int) -> Extent:
    """The causal past of an event, itself included."""
    return hull(c, past_of(edges_of(c), np.array([e])))


def future(c: Computation, e: int) -> Extent:
    """The causal future of an event, itself included."""
    return hull(c, future_of(edges_of(c), np.array([e])))


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
def level_rows(levels, entering, last, process, edge_offsets, edges):  # type: ignore[no-untyped-def]
    """Fill levels[entering:], one per event in topological order; rows and `last` are as in stamp_rows."""
    for e in range(process.size):
        level = 0
        if last[process[e]] >= 0:
            level = levels[last[process[e]]]
        for k in range(edge_offsets[e], edge_offsets[e + 1]):
            level = max(level, levels[edges[k]])
        levels[entering + e] = level + 1
        last[process[e]] = entering + e


def levels_of(c: Computation) -> Ints:
    """The level of every event: how many events the longest chain that ends with it has."""
    levels, edges = np.empty(c.events, np.int64), edges_of(c)
    level_rows(levels, 0, np.full(c.processes, -1, np.int64), c.process, edges.offsets, edges.causes)
    return levels


@compiled
def _mark_past(marked, offsets, causes):  # type: ignore[no-untyped-def]
    for e in range(marked.size - 1, -1, -1):
        if marked[e]:
            for k in range(offsets[e], offsets[e + 1]):
                marked[causes[k]] = True


@compiled
def _mark_future(marked, offsets, causes):  # type: ignore[no-untyped-def]
    for e in range(marked.size):
        for k in range(offsets[e], offsets[e + 1]):
            marked[e] = marked[e] or marked[causes[k]]


@compiled
def _known(known, offsets, causes):  # type: ignore[no-untyped-def]
    for e in range(known.size):
        for k in range(offsets[e], offsets[e + 1]):
            known[e] = max(known[e], known[causes[k]])


@compiled
def _is_later(u, than, since, waited, before):  # type: ignore[no-untyped-def]
    """Whether cause u was waited for rather than cause `than` (-1: none); `before` is the event before on the
    process."""
    if than < 0 or since[u] != since[than]:
        return than < 0 or since[u] > since[than]
    ours = since[waited[u]] if waited[u] >= 0 else NEVER
    theirs = since[waited[than]] if waited[than] >= 0 else NEVER
    return ours > theirs or (ours == theirs and than == before)


@compiled
def _last_causes(since, waited, time, timed, before, offsets, causes):  # type: ignore[no-untyped-def]
    for e in range(since.size):
        last = -1
        for k in range(offsets[e], offsets[e + 1]):
            if _is_later(causes[k], last, since, waited, before[e]):
                last = causes[k]
        waited[e] = last
        since[e] = time[e] if timed[e] else since[last] if last >= 0 else NEVER


@compiled
def _replay(then, since, work, pinned, offsets, causes):  # type: ignore[no-untyped-def]
    for e in range(then.size):
        at = NEVER
        for k in range(offsets[e], offsets[e + 1]):
            at = max(at, then[causes[k]])
        then[e] = since[e] if pinned[e] or at == NEVER else at + work[e]


class Passes(NamedTuple):
    """Pass k has bits for the events asked[64 * k : 64 * (k + 1)] and goes from event first[k] to last[k]."""

    asked: Ints
    first: Ints
    last: Ints
    steps: int  # edges that all passes traverse


def passes_of(graph: Edges) -> Passes:
    """The passes that reduce edges prepared with `in_order`, and their cost."""
    effects = graph.effects
    older = np.flatnonzero(np.arange(graph.causes.size) + 1 < graph.offsets[effects + 1])
    until = np.zeros(graph.events, np.int64)
    until[graph.causes[older]] = effects[older]  # effects increase: the last assignment wins
    asked = np.flatnonzero(until)
    length = np.frexp(until[asked] - asked)[1]
    asked = asked[np.lexsort((asked, length))]
    begins = np.arange(0, asked.size, WORD)
    if not begins.size:
        return Passes(asked, begins, begins, 0)
    first, last = np.minimum.reduceat(asked, begins), np.maximum.reduceat(until[asked], begins)
    return Passes(asked, first, last, int((graph.offsets[last + 1] - graph.offsets[first]).sum()))


def reduce(graph: Edges, passes: Passes) -> tuple[Ints, Ints]:
    """The edges (effects, causes) of the transitive reduction; each effect's edges are consecutive."""
    redundant = np.zeros(graph.causes.size, bool)
    _find_redundant(graph.offsets, graph.causes, passes.asked, passes.first, passes.last, redundant)
    return graph.effects[~redundant], graph.causes[~redundant]


@compiled
def _find_redundant(offsets, causes, asked, first, last, redundant):  # type: ignore[no-untyped-def]
    words = np.zeros(offsets.size, np.uint64)
    own = np.zeros(offsets.size, np.uint64)  # the bits of the events of a pass
    for k in range(first.size):
        begin, end = 64 * k, min(64 * (k + 1), asked.size)
        for at in range(begin, end):
            own[asked[at]] = np.uint64(1) << np.uint64(at - begin)
        for e in range(first[k], last[k] + 1):
            word = np.uint64(0)
            for edge in range(offsets[e + 1] - 1, offsets[e] - 1, -1):
                u = causes[edge]
                if u < first[k]:
                    break
                # Only newer causes can have u in their past, and `word` has the bits of their pasts.
                if word & own[u]:
                    redundant[edge] = True
                word |= words[u]
            words[e] = word | own[e]
        for at in range(begin, end):
            own[asked[at]] = 0


def count_ordered(graph: Edges) -> int:
    """The number of pairs of events that are ordered by happened-before."""
    words = max(1, min(MOST_WORDS, CELLS // max(1, graph.events)))
    return int(_count_ordered(graph.offsets, graph.causes, words))


@compiled
def _count_ordered(offsets, causes, words):  # type: ignore[no-untyped-def]
    events = offsets.size - 1
    known = np.empty((events, words), np.uint64)
    total = 0
    for first in range(0, events, 64 * words):
        for e in range(first, events):
            row = known[e]
            row[:] = 0
            for edge in range(offsets[e + 1] - 1, offsets[e] - 1, -1):
                if causes[edge] < first:
                    break
                cause = known[causes[edge]]
                for w in range(words):
                    row[w] |= cause[w]
            for w in range(words):
                total += _ones(row[w])
            if e < first + 64 * words:  # set after counting: no event is in its own past
                row[(e - first) >> 6] |= np.uint64(1) << np.uint64((e - first) & 63)
    return total


@compiled
def _ones(word):  # type: ignore[no-untyped-def]
    """The number of bits that are set (Warren, Hacker's Delight, figure 5-2)."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))
