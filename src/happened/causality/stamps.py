"""Exact vector timestamps (Fidge 1988, Mattern 1989), from events in topological order.

Component q of an event's vector is the number of q's events in its causal past, itself included, so e
happened before f iff e is another event and f's vector covers e's seq at e's process.
Cost: events x processes, in time and in memory.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .compiled import compiled
from .computation import Computation, Trace, encode
from .linearization import Ints

MOST_CELLS = 50_000_000
"""Largest events x processes for which vectors are held: 500 MB at the kernels' peak of 10 bytes each."""

MANY_PROCESSES = 1024
"""With more processes, Spark writes no whole vectors of a computation that exceeds MOST_CELLS."""


@compiled
def stamp_rows(vectors, entering, last, first, process, source, cause_offsets, causes):  # type: ignore[no-untyped-def]
    """Fill vectors[entering:], one row per event in topological order.

    vectors[:entering] is the frontier: the rows of earlier epochs that are still needed. `last` is each
    process's newest row (-1: none) and is updated; entry p - first[p] is process p's own; `source` and
    `causes` are rows, of the frontier or of the events, with -1 for none.
    """
    n = vectors.shape[1]
    for e in range(process.size):
        row = entering + e
        p = process[e]
        own = 0
        if last[p] >= 0:
            own = vectors[last[p], p - first[p]]
            for q in range(n):
                vectors[row, q] = vectors[last[p], q]
        else:
            vectors[row, :] = 0
        if source[e] >= 0:
            for q in range(n):
                vectors[row, q] = max(vectors[row, q], vectors[source[e], q])
        for k in range(cause_offsets[e], cause_offsets[e + 1]):
            for q in range(n):
                vectors[row, q] = max(vectors[row, q], vectors[causes[k], q])
        vectors[row, p - first[p]] = own + 1
        last[p] = row


def stamp_computation(computation: Computation) -> Ints:
    """The vectors of all events, one row each in the computation's own order."""
    c = computation
    vectors = np.empty((c.events, c.width), np.int32)
    last = np.full(c.processes, -1, np.int64)
    stamp_rows(vectors, 0, last, c.first, c.process, c.source, c.cause_offsets, c.causes)
    return vectors


def stamp_columns(computation: Computation) -> Iterator[tuple[range, Ints]]:
    """The vectors in blocks of columns: (entries, events x entries). Columns do not depend on one another."""
    c = computation
    entry = np.arange(c.processes) - c.first
    width = max(1, MOST_CELLS // (4 * max(1, c.events)))
    for begin in range(0, c.width, width):
        columns = range(begin, min(begin + width, c.width))
        # Processes without a column here share one extra, meaningless column.
        shared = (entry < columns.start) | (entry >= columns.stop)
        own = np.where(shared, len(columns), entry - columns.start)
        vectors = np.empty((c.events, len(columns) + 1), np.int32)
        last = np.full(c.processes, -1, np.int64)
        stamp_rows(
            vectors, 0, last, np.arange(c.processes) - own, c.process, c.source, c.cause_offsets, c.causes
        )
        yield columns, vectors[:, :-1]


@dataclass(frozen=True, slots=True)
class Stamps:
    """The vectors of every computation of a trace, each computed independently.

    Methods about an event also take its computation, which is optional if there is only one.
    """

    computations: Sequence[Computation]
    vectors: Sequence[Ints]

    def matrix(self, computation: str | None = None) -> Ints:
        """Events x processes; rows ordered as `Computation.row`, columns as `Computation.process_names`."""
        return self.vectors[self._position(computation)]

    def vector(self, process: str, seq: int, computation: str | None = None) -> dict[str, int]:
        """The number of events of each process in the event's past, itself included; zeros are left out."""
        i = self._position(computation)
        c = self.computations[i]
        counts = self.vectors[i][c.index(process, seq)]
        return {name: int(count) for name, count in zip(c.process_names, counts, strict=True) if count}

    def happened_before(self, e: tuple[str, int], f: tuple[str, int], computation: str | None = None) -> bool:
        """Whether event e = (process, seq) is in the causal past of f."""
        i = self._position(computation)
        c = self.computations[i]
        a, b = c.index(*e), c.index(*f)
        return a != b and bool(self.vectors[i][b, c.process[a]] >= c.seq[a])

    @property
    def ordered_pairs(self) -> int:
        """The number of pairs of events of one computation that happened-before orders."""
        # An event's vector sums to the number of events in its past, itself included.
        return sum(int(vectors.sum(dtype=np.int64)) - len(vectors) for vectors in self.vectors)

    @property
    def concurrent_pairs(self) -> int:
        """The number of pairs of events of one computation that happened-before does not order."""
        return sum(len(v) * (len(v) - 1) // 2 for v in self.vectors) - self.ordered_pairs

    def _position(self, computation: str | None) -> int:
        names = [c.name for c in self.computations]
        if computation is None and len(names) == 1:
            return 0
        if computation not in names:
            known = ", ".join(map(repr, names[:10])) or "none"
            raise LookupError(f"say which computation, out of: {known}; not {computation!r}")
        return names.index(computation)


def stamp(trace: Trace) -> Stamps:
    """Vector timestamps of every event."""
    computations = encode(trace)
    return Stamps(computations, [stamp_computation(c) for c in computations])
