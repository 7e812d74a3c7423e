"""Necessary information epoch by epoch, as a fold, for computations too large to be looked at whole.

Let L[i, x] be the last message from i to x in the past of an event, and P[i, x] whether the unit it makes is
necessary there: not known to be delivered at x, nor followed by another message to x. By Lemma 1 of
Kshemkalyani & Singhal no other unit of that pair can be. Both travel as one *mark* 2·L + 1 - P (0: none):
joining two pasts is a maximum, since of a newer message the older side can know nothing, and of the same
one it is settled if either side knows so. A send to x makes all marks of column x odd and its own even; a
delivery of M(i, a) at x joins 2a + 1.

Column x needs no other, so that blocks of columns can be gone through by themselves, and their counts added.
Cost: n² numbers for each process and each event whose effects are still to come; events x n² in time.
"""

from dataclasses import dataclass

import numpy as np

from .compiled import compiled
from .epochs import Arranged, Epoch, Frontier, arrange, event_keys, own_columns, split_keys
from .linearization import Ints

MOST_PROCESSES = 1024
"""With more processes, events x n² steps would take hours."""


@dataclass(frozen=True, slots=True, eq=False)
class UnitState:
    """The marks (n x columns) that each process has now, and those of the kept events, which are named by
    process and seq."""

    last: Ints
    current: Ints  # processes x (n x columns)
    process: Ints
    seq: Ints
    marks: Ints

    @classmethod
    def beginning(cls, n: int, columns: range | None = None) -> "UnitState":
        none = np.empty(0, np.int64)
        width = n * (n if columns is None else len(columns))
        return cls(
            np.zeros(n, np.int64), np.zeros((n, width), np.int32), none, none, np.empty((0, width), np.int32)
        )


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
    """Units on each edge of each send of the epoch, and the state after it.

    is_slot        of each edge into an event: whether it is the first delivery at a destination
    dest_offsets   of each event into `dests`, its destinations whether or not they were reached
    kept           the (process, seq) of the events, old or new, whose effects come after this epoch
    arranged       the epoch, if it has been arranged already
    columns        the destinations whose messages count; all if None
    """
    n = epoch.processes
    columns = range(n) if columns is None else columns
    keys = event_keys(state.process, state.seq)
    old = _old_rows(state)
    a = arrange(epoch, old, arranged)
    rows = old.process.size + epoch.events
    row_process = np.concatenate([old.process, epoch.process[a.order]])
    row_seq = np.concatenate([old.seq, epoch.seq[a.order]])
    kept_keys = np.unique(event_keys(*kept))
    row_keys = event_keys(row_process, row_seq)
    is_kept = np.isin(row_keys, kept_keys)
    uses = np.bincount(a.edge_rows, minlength=rows) + is_kept
    lengths = np.diff(epoch.edge_offsets)[a.order]
    picked = np.repeat(epoch.edge_offsets[:-1][a.order] - a.edge_offsets[:-1], lengths)
    slots_in_order = is_slot[picked + np.arange(a.edge_rows.size)]
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


def _old_rows(state: UnitState) -> Frontier:
    """The kept events and every process's last one, as `arrange` numbers rows."""
    present = np.flatnonzero(state.last > 0)
    lasts = event_keys(present, state.last[present])
    keys = np.unique(np.concatenate([event_keys(state.process, state.seq), lasts]))
    return Frontier(state.last, *split_keys(keys), np.empty((keys.size, 0), np.int32))


@compiled
def most_open(entering, events, edge_offsets, edges, uses):  # type: ignore[no-untyped-def]
    """The largest number of the epoch's events that have, at one moment, effects still to come."""
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
    """Mark [i, x] is at i * width + own[x]; own[x] is `width` for an x that is not among the columns."""
    n = current.shape[0]
    size = current.shape[1]
    free = np.empty(pool.shape[0], np.int64)
    available = 0
    for slot in range(pool.shape[0] - 1, used - 1, -1):
        free[available] = slot
        available += 1
    left = uses.copy()
    necessary = np.zeros(width + 1, np.int32)  # the last: of an x that is not here, nothing
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
