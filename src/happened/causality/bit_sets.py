"""Reachability by bit sets, for computations whose vectors would be too wide: commit graphs and other DAGs.

Events are in topological order, each with its direct causes. A pass gives a bit to each of 64 events, and a
word to each later event: the bits of those among the 64 that are in its past, which is the union of its
direct causes' words. So a pass costs one step for each edge between its first event and its last question.

The reduction asks of an edge u -> v whether another direct cause of v has u in its past. Only events with
several direct causes ask, and never about their newest one. The events asked about are put into passes by
how long questions about them last, and then in topological order: branches that were merged soon share
short passes, and only the long-lived ones need long passes.
Memory: a few words for each event.
"""

from typing import NamedTuple

import numpy as np

from .compiled import compiled
from .linearization import Ints
from .reach import Edges

WORD = 64
MOST_WORDS = 8
"""Words of an event that are counted in one pass: as many as a cache line holds."""

CELLS = 8_000_000
"""Words, of all events together, that a pass which counts may hold: 64 MB."""


class Graph(NamedTuple):
    """The direct causes of event e are causes[offsets[e] : offsets[e + 1]], increasing, each once."""

    offsets: Ints
    causes: Ints

    @property
    def events(self) -> int:
        return int(self.offsets.size) - 1

    @property
    def effects(self) -> Ints:
        """The effect of each edge."""
        return np.repeat(np.arange(self.events), np.diff(self.offsets))


def graph_of(edges: Edges) -> Graph:
    events = edges.events
    effects = [np.repeat(np.arange(events), np.diff(edges.cause_offsets))]
    causes = [edges.causes.astype(np.int64)]
    for one in (edges.before, edges.source):
        known = np.flatnonzero(one >= 0)
        effects.append(known)
        causes.append(one[known].astype(np.int64))
    keys = np.concatenate(effects) * max(events, 1) + np.concatenate(causes)
    keys.sort(kind="stable")  # of runs that are sorted already
    effect, cause = np.divmod(keys[np.diff(keys, prepend=-1) != 0], max(events, 1))
    return Graph(np.searchsorted(effect, np.arange(events + 1)), cause)


class Passes(NamedTuple):
    """Pass k has bits for the events asked[64 * k : 64 * (k + 1)] and goes from event first[k] to last[k]."""

    asked: Ints
    first: Ints
    last: Ints
    steps: int  # edges that all passes go over


def passes_of(graph: Graph) -> Passes:
    """How to reduce a graph, and what that will cost."""
    effects = graph.effects
    older = np.flatnonzero(np.arange(graph.causes.size) + 1 < graph.offsets[effects + 1])
    until = np.zeros(graph.events, np.int64)
    until[graph.causes[older]] = effects[older]  # effects increase: the last one stays
    asked = np.flatnonzero(until)
    length = np.frexp(until[asked] - asked)[1]
    asked = asked[np.lexsort((asked, length))]
    begins = np.arange(0, asked.size, WORD)
    if not begins.size:
        return Passes(asked, begins, begins, 0)
    first, last = np.minimum.reduceat(asked, begins), np.maximum.reduceat(until[asked], begins)
    return Passes(asked, first, last, int((graph.offsets[last + 1] - graph.offsets[first]).sum()))


def reduce(graph: Graph, passes: Passes) -> tuple[Ints, Ints]:
    """The edges (effects, causes) of the transitive reduction, each effect's together."""
    redundant = np.zeros(graph.causes.size, bool)
    _find_redundant(graph.offsets, graph.causes, passes.asked, passes.first, passes.last, redundant)
    return graph.effects[~redundant], graph.causes[~redundant]


@compiled
def _find_redundant(offsets, causes, asked, first, last, redundant):  # type: ignore[no-untyped-def]
    words = np.zeros(offsets.size, np.uint64)
    own = np.zeros(offsets.size, np.uint64)  # of the events of a pass, their bits
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
                # Only newer causes can have u in their past, and `word` is what those know.
                if word & own[u]:
                    redundant[edge] = True
                word |= words[u]
            words[e] = word | own[e]
        for at in range(begin, end):
            own[asked[at]] = 0


def count_ordered(graph: Graph) -> int:
    """How many pairs of events are ordered."""
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
            if e < first + 64 * words:  # after counting: no event is in its own past
                row[(e - first) >> 6] |= np.uint64(1) << np.uint64((e - first) & 63)
    return total


@compiled
def _ones(word):  # type: ignore[no-untyped-def]
    """How many bits are set (Warren, Hacker's Delight, figure 5-2)."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))
