"""Immediate predecessors and levels epoch by epoch: folds, the state after one epoch entering the next.

For each event and process k, let S[k] be the newest relevant event of k in the past, and IP[k] whether
nothing relevant lies between it and here. Both travel as one number, the *mark* 2·S[k] + 1 - IP[k] (0: none):
joining two pasts is then a maximum, since knowing a newer event wins, and of equal ones the side that
knows of something in between (Hélary, Melideo & Raynal's P3, seen as a semilattice). A relevant event's
immediate predecessors are the even marks before it; after it, all marks are odd but its own.

Column k needs no other, so that blocks of columns can be gone through by themselves.
Cost: events x processes. State: a row for each process and each event whose effects are still to come.
"""

import numpy as np

from .compiled import compiled
from .computation import Computation
from .epochs import Arranged, Epoch, Frontier, arrange, leave, own_columns
from .linearization import Ints
from .measures import level_rows
from .reach import edges_of, graph_of
from .stamps import MOST_CELLS


def no_marks(processes: int, columns: range | None = None) -> Frontier:
    """The state before anything happened; a frontier whose vectors are marks, of these processes or of all,
    and a column of no meaning."""
    none = np.empty(0, np.int64)
    width = 1 + (processes if columns is None else len(columns))
    return Frontier(np.zeros(processes, np.int64), none, none, np.empty((0, width), np.int64))


def mark_epoch(
    epoch: Epoch,
    relevant: Ints,
    state: Frontier,
    kept_process: Ints,
    kept_seq: Ints,
    arranged: Arranged | None = None,
    columns: range | None = None,
) -> tuple[tuple[Ints, Ints, Ints], Frontier]:
    """((effects, cause processes, cause seqs), next state); effects are indices of the epoch's events, those
    of one event next to one another.

    kept       names the events, old or new, whose effects come after this epoch
    arranged   the epoch, if it has been arranged already
    columns    the processes whose events are looked for as causes; all if None
    """
    a = arrange(epoch, state, arranged)
    n, entering = epoch.processes, state.process.size
    columns = range(n) if columns is None else columns
    marks = np.empty((entering + epoch.events, len(columns) + 1), np.int64)
    marks[:entering] = state.vectors
    last_row = state.rows(np.arange(n), state.last)
    order = a.order
    effects, found, seqs = mark_rows(
        marks, entering, last_row, own_columns(n, columns), epoch.process[order], epoch.seq[order],
        relevant[order], a.edge_offsets, a.edge_rows,
    )  # fmt: skip
    after = leave(epoch, a, state, marks, kept_process, kept_seq)
    return (order[effects], found + columns.start, seqs), after


def mark_computation(c: Computation, relevant: Ints) -> tuple[Ints, Ints]:
    """The reduction's edges (effects, causes) among the relevant events of a whole computation, by index."""
    graph = graph_of(edges_of(c))
    none = np.empty(0, np.int64)
    width = max(1, MOST_CELLS // (8 * max(1, c.events)))
    found = [(none, none)]
    for begin in range(0, c.processes, width):
        columns = range(begin, min(begin + width, c.processes))
        marks = np.empty((c.events, len(columns) + 1), np.int64)
        effects, column, seq = mark_rows(
            marks, 0, np.full(c.processes, -1, np.int64), own_columns(c.processes, columns), c.process, c.seq,
            relevant, graph.offsets, graph.causes,
        )  # fmt: skip
        found.append((effects, c.chain[c.chain_offsets[column + begin] + seq - 1]))
    effects, causes = (np.concatenate(part) for part in zip(*found, strict=True))
    order = np.argsort(effects, kind="stable")
    return effects[order], causes[order].astype(np.int64)


def level_epoch(
    epoch: Epoch, state: Frontier, kept_process: Ints, kept_seq: Ints, arranged: Arranged | None = None
) -> tuple[Ints, Frontier]:
    """(levels of the epoch's events, next state); a state's vectors have one column, the level."""
    a = arrange(epoch, state, arranged)
    entering = state.process.size
    levels = np.empty(entering + epoch.events, np.int64)
    levels[:entering] = state.vectors[:, 0]
    last_row = state.rows(np.arange(epoch.processes), state.last)
    level_rows(levels, entering, last_row, epoch.process[a.order], a.edge_offsets, a.edge_rows)
    return levels[a.row_of], leave(epoch, a, state, levels[:, None], kept_process, kept_seq)


@compiled
def mark_rows(marks, entering, last, own, process, seq, relevant, edge_offsets, edges):  # type: ignore[no-untyped-def]
    """Fill marks[entering:] and find the reduction's edges: (effects, columns of causes, seqs of causes).

    own[p] is process p's column; the last column has no meaning.
    """
    n = marks.shape[1] - 1
    capacity = 2 * process.size + n
    effects = np.empty(capacity, np.int64)
    cause_column = np.empty(capacity, np.int64)
    cause_seq = np.empty(capacity, np.int64)
    found = 0
    for e in range(process.size):
        row, p = entering + e, process[e]
        if last[p] >= 0:
            marks[row] = marks[last[p]]
        else:
            marks[row] = 0
        for k in range(edge_offsets[e], edge_offsets[e + 1]):
            for q in range(n):
                marks[row, q] = max(marks[row, q], marks[edges[k], q])
        last[p] = row
        if not relevant[e]:
            continue
        if found + n > capacity:
            capacity *= 2
            effects, cause_column = _longer(effects, capacity), _longer(cause_column, capacity)
            cause_seq = _longer(cause_seq, capacity)
        for q in range(n):
            mark = marks[row, q]
            if mark:
                if mark & 1 == 0:
                    effects[found] = e
                    cause_column[found] = q
                    cause_seq[found] = mark >> 1
                    found += 1
                marks[row, q] = mark | 1
        marks[row, own[p]] = 2 * seq[e]
    return effects[:found], cause_column[:found], cause_seq[:found]


@compiled
def _longer(values, capacity):  # type: ignore[no-untyped-def]
    longer = np.empty(capacity, np.int64)
    longer[: values.size] = values
    return longer
