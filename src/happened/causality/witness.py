"""The causal path between two events, for people to read."""

import numpy as np

from .computation import Computation
from .linearization import Ints


def causal_path(c: Computation, vectors: Ints, first: int, last: int) -> list[int]:
    """Events from `first` to `last`, each after the one before it on the same process, or the delivery of
    its message, or naming it as a cause. Requires first happened-before last.
    """
    p = c.process[first]
    return path_by_column(c, vectors[:, p - c.first[p]], first, last)


def path_by_column(c: Computation, known: Ints, first: int, last: int) -> list[int]:
    """The same, from what each event knows of the process of `first` alone (`reach.known_of`).

    Walking back from `last`, the earliest event of a process that knows of `first` must have learnt of
    it from elsewhere; so each process is visited once and the path has at most two events per process.
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
