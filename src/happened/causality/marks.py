"""Immediate predecessors and levels as folds over epochs: the state after one epoch enters the next.

For an event and a process k, let S[k] be the newest relevant event of k in the event's past, and IP[k]
whether no relevant event lies between S[k] and the event. One number, the *mark* 2·S[k] + 1 - IP[k] (0:
none), encodes both: joining two pasts is then a maximum, since the newer event wins, and of equal ones the
side that knows of an event in between (Hélary, Melideo & Raynal's P3, seen as a semilattice). A relevant
event's immediate predecessors are the even marks before it; after it, all marks except its own are odd.

Columns are independent, so that blocks of columns can be processed separately.
Cost: events x processes. State: a row for each process and each event that has effects still to come.

Necessary information: for an event, let L[i, x] be the last message from i to x in its past, and P[i, x]
whether the unit of that message is necessary there: neither known to be delivered at x, nor followed by
another message to x. By Lemma 1 of Kshemkalyani & Singhal no other unit of that pair can be necessary. The
mark 2·L + 1 - P encodes both: joining two pasts is a maximum, since for a newer message the side without it
adds nothing, and for the same message the unit is settled if either side knows so. A send to x makes all
marks of column x odd and its own even; a delivery of M(i, a) at x joins 2a + 1. Counts of blocks of columns x
are added. Cost: events x n² in time; n² numbers for each process and each event with effects still to come.
"""

from dataclasses import dataclass

import numpy as np

from .compiled import compiled
from .computation import Computation
from .epochs import NONE, Arranged, Epoch, Frontier, arrange, event_keys, leave, own_columns, split_keys
from .linearization import Ints
from .reach import edges_of, level_rows
from .stamps import MOST_CELLS


def no_marks(processes: int, columns: range | None = None) -> Frontier:
    """The state before any event: a frontier whose vectors are marks, with a column for each of the given (or
    all) processes and one meaningless column."""
    width = 1 + (processes if columns is None else len(columns))
    return Frontier(np.zeros(processes, np.int64), NONE, NONE, np.empty((0, width), np.int64))


def mark_epoch(
    epoch: Epoch,
    relevant: Ints,
    state: Frontier,
    kept_process: Ints,
    kept_seq: Ints,
    arranged: Arranged | None = None,
    columns: range | None = None,
) -> tuple[tuple[Ints, Ints, Ints], Frontier]:
    """((effects, cause processes, cause seqs), next state); effects are indices of the epoch's events, and
    the edges of one effect are consecutive.

    kept       (process, seq) of the events, old or new, that have effects after this epoch
    arranged   the result of `arrange` for the epoch, if it exists
    columns    the processes whose events are sought as causes; all if None
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
    """The reduction's edges (effects, causes), by index, among the relevant events of a whole computation."""
    edges = edges_of(c)
    width = max(1, MOST_CELLS // (8 * max(1, c.events)))
    found = [(NONE, NONE)]
    for begin in range(0, c.processes, width):
        columns = range(begin, min(begin + width, c.processes))
        marks = np.empty((c.events, len(columns) + 1), np.int64)
        effects, column, seq = mark_rows(
            marks, 0, np.full(c.processes, -1, np.int64), own_columns(c.processes, columns), c.process, c.seq,
            relevant, edges.offsets, edges.causes,
        )  # fmt: skip
        found.append((effects, c.chain[c.chain_offsets[column + begin] + seq - 1]))
    effects, causes = (np.concatenate(part) for part in zip(*found, strict=True))
    order = np.argsort(effects, kind="stable")
    return effects[order], causes[order].astype(np.int64)


def level_epoch(
    epoch: Epoch, state: Frontier, kept_process: Ints, kept_seq: Ints, arranged: Arranged | None = None
) -> tuple[Ints, Frontier]:
    """(levels of the epoch's events, next state); the vectors of a state have one column, the level."""
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

    own[p] is process p's column; the last column is meaningless.
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


MOST_PROCESSES = 1024  # With more processes, events x n² steps would take hours


@dataclass(frozen=True, slots=True, eq=False)
class UnitState:
    """The current marks (n x columns) of each process, and those of the kept events, named by process and
    seq."""

    last: Ints
    current: Ints  # processes x (n x columns)
    process: Ints
    seq: Ints
    marks: Ints

    @classmethod
    def beginning(cls, n: int, columns: range | None = None) -> "UnitState":
        width = n * (n if columns is None else len(columns))
        current, marks = np.zeros((n, width), np.int32), np.empty((0, width), np.int32)
        return cls(np.zeros(n, np.int64), current, NONE, NONE, marks)


def count_units(
    epoch: Epoch,
    is_slot: Ints,
    dest_offsets: Ints,
    dests: Ints,
    state: UnitState,
    kept: tuple[Ints, Ints],
    arranged: Arranged | None = None,
    columns: range | None = None,
) -> tuple[Ints, UnitState]:
    """The number of units on each edge of each send of the epoch, and the state after the epoch.

    is_slot        for each edge into an event, whether it is the first delivery at a destination
    dest_offsets   for each event, its range in `dests`: its destinations, reached or not
    kept           (process, seq) of the events, old or new, that have effects after this epoch
    arranged       the result of `arrange` for the epoch, if it exists
    columns        the destinations whose messages count; all if None
    """
    n = epoch.processes
    columns = range(n) if columns is None else columns
    keys = event_keys(state.process, state.seq)
    present = np.flatnonzero(state.last > 0)  # each process's last event is an old row too
    old_keys = np.unique(np.concatenate([keys, event_keys(present, state.last[present])]))
    old = Frontier(state.last, *split_keys(old_keys), np.empty((old_keys.size, 0), np.int32))
    a = arrange(epoch, old, arranged)
    rows = old.process.size + epoch.events
    row_process = np.concatenate([old.process, epoch.process[a.order]])
    row_seq = np.concatenate([old.seq, epoch.seq[a.order]])
    kept_keys = np.unique(event_keys(*kept))
    row_keys = event_keys(row_process, row_seq)
    is_kept = np.isin(row_keys, kept_keys)
    uses = np.bincount(a.edge_rows, minlength=rows) + is_kept
    slots_in_order = is_slot[epoch.edges_in(a.order)]
    held = np.full(rows, -1, np.int64)
    present = np.searchsorted(row_keys[: old.process.size], keys)
    capacity = keys.size + most_open(old.process.size, epoch.events, a.edge_offsets, a.edge_rows, uses)
    pool = np.empty((capacity, n * len(columns)), np.int32)
    pool[: keys.size] = state.marks
    held[present] = np.arange(keys.size)
    current = state.current.copy()
    counts = np.zeros(dests.size, np.int64)
    fold(
        epoch.process[a.order], epoch.seq[a.order], a.order, old.process.size, a.edge_offsets, a.edge_rows,
        slots_in_order, row_process, row_seq, uses, held, pool, keys.size, current, own_columns(n, columns),
        len(columns), dest_offsets, dests, counts,
    )  # fmt: skip
    chosen = np.flatnonzero(is_kept)
    chosen = chosen[np.argsort(row_keys[chosen])]
    after = UnitState(a.last, current, row_process[chosen], row_seq[chosen], pool[held[chosen]])
    return counts, after


@compiled
def most_open(entering, events, edge_offsets, edges, uses):  # type: ignore[no-untyped-def]
    """The largest number of the epoch's events that have effects still to come at one moment."""
    left = uses.copy()
    count = most = 0
    for e in range(events):
        for k in range(edge_offsets[e], edge_offsets[e + 1]):
            left[edges[k]] -= 1
            if left[edges[k]] == 0 and edges[k] >= entering:
                count -= 1
        if left[entering + e] > 0:
            count += 1
            most = max(most, count)
    return most + 1


@compiled
def fold(  # type: ignore[no-untyped-def]
    process, seq, event, entering, edge_offsets, edges, is_slot, row_process, row_seq, uses, held, pool, used,
    current, own, width, dest_offsets, dests, counts,
):  # fmt: skip
    """Mark [i, x] is at i * width + own[x]; own[x] is `width` if x is not among the columns."""
    n = current.shape[0]
    size = current.shape[1]
    free = np.empty(pool.shape[0], np.int64)
    available = 0
    for slot in range(pool.shape[0] - 1, used - 1, -1):
        free[available] = slot
        available += 1
    left = uses.copy()
    necessary = np.zeros(width + 1, np.int32)  # last entry: for destinations without a column, never counted
    for e in range(process.size):
        p = process[e]
        mine = current[p]
        for k in range(edge_offsets[e], edge_offsets[e + 1]):
            source = edges[k]
            theirs = pool[held[source]]
            for at in range(size):  # without a branch: one instruction joins several marks
                mine[at] = max(mine[at], theirs[at])
            if is_slot[k] and own[p] < width:
                at, settled = row_process[source] * width + own[p], 2 * row_seq[source] + 1
                if mine[at] < settled:
                    mine[at] = settled
            left[source] -= 1
            if left[source] == 0:
                free[available] = held[source]
                available += 1
        first, end = dest_offsets[event[e]], dest_offsets[event[e] + 1]
        if first < end:
            necessary[:] = 0
            for i in range(n):
                row = mine[i * width : (i + 1) * width]
                for x in range(width):  # in 32 bits and without a branch: one instruction counts several
                    necessary[x] += np.int32(row[x] > 0) & (~row[x] & np.int32(1))
            everywhere = necessary.sum()
            for k in range(first, end):
                everywhere -= necessary[own[dests[k]]]
            for k in range(first, end):
                counts[k] = everywhere + necessary[own[dests[k]]]
            for k in range(first, end):
                x = own[dests[k]]
                if x < width:
                    for i in range(n):
                        if mine[i * width + x] > 0:
                            mine[i * width + x] |= 1
                    mine[p * width + x] = 2 * seq[e]
        if left[entering + e] > 0:
            available -= 1
            held[entering + e] = free[available]
            pool[free[available]] = mine
