"""Immediate predecessors: the edges of the transitive reduction of happened-before.

e is an immediate predecessor of f iff e happened before f and no third event lies between them; the
events that count are the relevant ones (Hélary, Melideo & Raynal's IPT problem), or all events.

There are three ways to find them, and `choose` takes the cheapest:

vectors   Of each process, only the newest event in f's past that counts can be an immediate predecessor; it
          is one iff it is in the past of no other such candidate. f's predecessor on its own process already
          knew everything before it, so only processes of which f learnt a new event contribute a candidate.
          Cost per event: processes + candidates x immediate predecessors.
bit sets  If all events are relevant: remove each recorded edge that another path makes redundant
          (reach.py). Cost: known beforehand, from how far edges reach over the topological order.
marks     For some events of a computation whose vectors are too wide: blocks of columns (marks.py).
          Cost per event: processes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pyarrow as pa

from ..trace.declared import schema
from .compiled import compiled
from .computation import Computation, Trace, encode
from .linearization import Ints
from .marks import mark_computation
from .reach import WORD, edges_of, passes_of, reduce
from .stamps import MOST_CELLS, stamp_computation

STEP_CELLS = 4  # A step of bit sets follows one edge and costs as much as this many vector entries

PREDECESSORS = schema(
    "computation string, process string, seq int64, event string, "
    "cause_process string, cause_seq int64, cause_event string"
)


@compiled
def newest_relevant(chain_offsets, chain, relevant):  # type: ignore[no-untyped-def]
    """For each place in `chain`, the newest relevant event of that process up to there, itself included."""
    newest = np.full(chain.size, -1, np.int64)
    for p in range(chain_offsets.size - 1):
        current = -1
        for at in range(chain_offsets[p], chain_offsets[p + 1]):
            if relevant[chain[at]]:
                current = chain[at]
            newest[at] = current
    return newest


@compiled
def _keep_maximal(candidate, maximal, count, vectors, entry, seq):  # type: ignore[no-untyped-def]
    """Add a candidate to maximal[:count] unless it happened before one of them; remove those before it."""
    kept = 0
    for k in range(count):
        other = maximal[k]
        if vectors[other, entry[candidate]] >= seq[candidate]:
            return count
        if vectors[candidate, entry[other]] < seq[other]:
            maximal[kept] = other
            kept += 1
    maximal[kept] = candidate
    return kept + 1


@compiled
def reduction_edges(vectors, process, first, seq, relevant, chain_offsets, newest):  # type: ignore[no-untyped-def]
    """(effects, causes) by event index, for events in topological order; causes of one effect are adjacent.

    Entry k of an event's vector is about process first[p] + k, where p is the event's process.
    """
    n = vectors.shape[1]
    entry = process - first[process]
    effects = np.empty(2 * process.size + n, np.int64)
    causes = np.empty(2 * process.size + n, np.int64)
    maximal = np.empty(n, np.int64)
    found = 0
    for e in range(process.size):
        if not relevant[e]:
            continue
        p = process[e]
        own = newest[chain_offsets[p] + seq[e] - 2] if seq[e] > 1 else -1
        count = 0
        if own >= 0:
            maximal[0] = own
            count = 1
        for q in range(n):
            known = vectors[e, q]
            if q == entry[e] or known == 0 or (own >= 0 and vectors[own, q] == known):
                continue
            candidate = newest[chain_offsets[first[p] + q] + known - 1]
            if candidate >= 0:
                count = _keep_maximal(candidate, maximal, count, vectors, entry, seq)
        if found + n > effects.size:
            effects = np.concatenate((effects, np.empty(effects.size, np.int64)))
            causes = np.concatenate((causes, np.empty(causes.size, np.int64)))
        effects[found : found + count] = e
        causes[found : found + count] = maximal[:count]
        found += count
    return effects[:found].copy(), causes[:found].copy()


def computation_predecessors(c: Computation, vectors: Ints, relevant: Ints) -> tuple[Ints, Ints]:
    """The edges (effects, causes) among the relevant events, by index, found with vectors."""
    newest = newest_relevant(c.chain_offsets, c.chain, relevant)
    effects, causes = reduction_edges(vectors, c.process, c.first, c.seq, relevant, c.chain_offsets, newest)
    return effects, causes


class Way(Enum):
    """The ways to find immediate predecessors."""

    VECTORS = "vectors"
    BIT_SETS = "bit sets"
    MARKS = "marks"


def choose(c: Computation, relevant: Ints) -> Way:
    """The cheapest way for a computation or union; never one with more than MOST_CELLS vector entries."""
    cells = c.events * c.width
    if not relevant.all():
        return Way.VECTORS if cells <= MOST_CELLS else Way.MARKS
    if c.width <= WORD and cells <= MOST_CELLS:
        return Way.VECTORS
    steps = passes_of(edges_of(c).in_order()).steps
    return Way.BIT_SETS if cells > min(MOST_CELLS, STEP_CELLS * steps) else Way.VECTORS


def find_predecessors(
    c: Computation,
    relevant: Ints,
    vectors: Callable[[Computation], Ints] = stamp_computation,
    way: Way | None = None,
) -> tuple[Ints, Ints]:
    """The edges (effects, causes) among the relevant events, by index; each effect's edges are consecutive.

    vectors   computes a computation's vectors; called only if they are needed
    way       None: `choose` decides; BIT_SETS only if all events are relevant
    """
    way = choose(c, relevant) if way is None else way
    if way is Way.VECTORS:
        return computation_predecessors(c, vectors(c), relevant)
    if way is Way.MARKS:
        return mark_computation(c, relevant)
    graph = edges_of(c).in_order()
    return reduce(graph, passes_of(graph))


@dataclass(frozen=True, slots=True)
class Predecessors:
    """The reduction of every computation of a trace: causes[i][k] immediately precedes effects[i][k]."""

    computations: Sequence[Computation]
    effects: Sequence[Ints]
    causes: Sequence[Ints]

    @property
    def count(self) -> int:
        return sum(effects.size for effects in self.effects)

    def table(self) -> pa.Table:
        """One row per edge, with the schema PREDECESSORS."""
        edges = zip(self.computations, self.effects, self.causes, strict=True)
        return pa.concat_tables([PREDECESSORS.empty_table(), *(edges_table(*each) for each in edges)])


def edges_table(c: Computation, effects: Ints, causes: Ints) -> pa.Table:
    return pa.table([*c.event_columns(effects), *c.event_columns(causes)[1:]], schema=PREDECESSORS)


def predecessors(trace: Trace, relevant_only: bool = True) -> Predecessors:
    """Immediate predecessors among the relevant events, or among all of them."""
    computations, edges = encode(trace), []
    for c in computations:
        edges.append(find_predecessors(c, c.relevant if relevant_only else np.ones(c.events, bool)))
    return Predecessors(computations, [effects for effects, _ in edges], [causes for _, causes in edges])
