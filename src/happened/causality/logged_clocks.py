"""Vector clocks that a source logged, against the ones that follow from its events.

A logged clock is right if it says, for each process, how many of its events are in the past, the event
itself included; absent means zero. A *regression* is a clock that does not exceed the one logged before it on
its process; an *impossible* entry names a process of which the trace has no event, or counts events there are
not.

In a window of a trace, events outside it may account for a larger entry. There a clock is a mismatch if its
own entry is not the event's seq, or another entry is below the last seq that the window shows to be in the
past; no entry is impossible.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .computation import Computation
from .epochs import event_keys, own_columns
from .linearization import Ints


@dataclass(frozen=True, slots=True)
class LoggedClocks:
    """How the logged clocks of one computation fare, by event index."""

    logged: int
    mismatches: Ints
    regressions: Ints
    impossible: Ints


def verify_clocks(c: Computation, blocks: Iterable[tuple[range, Ints]], table: pa.Table) -> LoggedClocks:
    """`table` is the one the computation was encoded from, `blocks` are columns of its vectors, all together;
    they are not looked at if there are no clocks."""
    clocks = table["clock"].take(pa.array(c.row)).combine_chunks()
    known = pc.is_valid(clocks).to_numpy(zero_copy_only=False)
    if not known.any():
        nothing = np.empty(0, np.int64)
        return LoggedClocks(0, nothing, nothing, nothing)
    event = np.repeat(np.arange(c.events), np.diff(clocks.offsets.to_numpy()))
    first = clocks.offsets[0].as_py()
    names = clocks.keys.slice(first, len(event))
    count = clocks.items.slice(first, len(event)).fill_null(0).to_numpy(zero_copy_only=False)
    process = processes_named(c, event, names)
    named = process >= 0
    lengths = np.diff(c.chain_offsets)
    impossible = np.unique(event[np.where(named, count > lengths[process], count != 0)])
    entry = np.where(named, process - c.first[process], -1)
    previous, current = _successive(c, known)
    own = c.process[current] - c.first[c.process[current]]
    wrong, back = np.zeros(c.events, bool), np.zeros(current.size, bool)
    if c.is_window:  # seldom as wide as to come in blocks
        parts = [part for _, part in blocks]
        blocks, impossible = [(range(c.width), np.concatenate(parts, axis=1))], impossible[:0]
    for columns, vectors in blocks:
        logged = np.zeros((c.events, len(columns)), np.int64)
        here = (entry >= columns.start) & (entry < columns.stop)
        logged[event[here], entry[here] - columns.start] = count[here]
        wrong |= _contradicted(c, vectors, logged) if c.is_window else (logged != vectors).any(axis=1)
        back |= (logged[current] < logged[previous]).any(axis=1)
        mine = np.flatnonzero((own >= columns.start) & (own < columns.stop))
        at = own[mine] - columns.start
        back[mine] |= logged[current[mine], at] <= logged[previous[mine], at]
    wrong &= known
    wrong[impossible] = True
    return LoggedClocks(int(known.sum()), np.flatnonzero(wrong), np.sort(current[back]), impossible)


def _contradicted(c: Computation, vectors: Ints, logged: Ints) -> Ints:
    """Whether each clock cannot be right, whatever happened outside of the window."""
    every = np.arange(c.events)
    own = c.process - c.first[c.process]
    wrong: Ints = np.any(logged < c.recorded_vectors(vectors, every), axis=1)
    wrong |= logged[every, own] != c.recorded_seq
    return wrong


def compare_logged(
    logged: Ints, entries: Ints, vectors: Ints, rows: Ints, columns: Sequence[int], counts: Ints
) -> tuple[Ints, Ints]:
    """Which of the clocks logged in an epoch differ from vectors, and which are impossible, in some columns.

    logged, entries   as in questions.EpochView
    rows              of each of these clocks' events in `vectors`, whose first columns these are
    counts            how many events each process has
    """
    clocks = dense_clocks(logged, entries, len(counts), columns)
    impossible = (logged[:, 2] > 0) | (clocks > counts[columns]).any(axis=1)
    differs = impossible | (clocks != vectors[rows, : len(columns)]).any(axis=1)
    return np.flatnonzero(differs), np.flatnonzero(impossible)


def dense_clocks(logged: Ints, entries: Ints, processes: int, columns: Sequence[int]) -> Ints:
    """Logged clocks as rows, with these of all columns."""
    own = own_columns(processes, columns)
    clocks = np.zeros((len(logged), len(columns) + 1), np.int64)
    row = np.searchsorted(event_keys(logged[:, 0], logged[:, 1]), event_keys(entries[:, 0], entries[:, 1]))
    clocks[row, own[entries[:, 2]]] = entries[:, 3]
    return clocks[:, :-1]


class Regressions:
    """Finds clocks that do not exceed the one logged before on their process, in some columns, epoch by
    epoch."""

    def __init__(self, processes: int, columns: Sequence[int]) -> None:
        self._columns = columns
        self._own = own_columns(processes, columns)
        self._last = np.zeros((processes, len(columns)), np.int64)
        self._known = np.zeros(processes, bool)

    def step(self, logged: Ints, entries: Ints) -> Ints:
        """Which of the clocks logged in the next epoch are such; `logged` and `entries` as an EpochView's."""
        if not len(logged):
            return np.empty(0, np.int64)
        process = logged[:, 0]
        clocks = dense_clocks(logged, entries, self._known.size, self._columns)
        begins = np.diff(process, prepend=-1) != 0
        before = np.concatenate([clocks[:1], clocks[:-1]])
        before[begins] = self._last[process[begins]]
        back: Ints = np.any(clocks < before, axis=1)
        mine = np.flatnonzero(self._own[process] < len(self._columns))
        own = self._own[process[mine]]
        back[mine] |= clocks[mine, own] <= before[mine, own]
        back[begins] &= self._known[process[begins]]
        ends = np.diff(process, append=-1) != 0
        self._last[process[ends]], self._known[process[ends]] = clocks[ends], True
        return np.flatnonzero(back)


def processes_named(c: Computation, event: Ints, names: pa.Array) -> Ints:
    """Which process of its event's computation each name stands for; -1 for none."""
    own = pa.array(c.process_names, pa.string())
    known = pc.unique(own)
    ids = c.owner * len(known) + pc.index_in(own, value_set=known).to_numpy()
    order = np.argsort(ids)
    code = pc.index_in(names, value_set=known).fill_null(-1).to_numpy(zero_copy_only=False)
    wanted = c.owner[c.process[event]] * len(known) + code
    at = order[np.minimum(np.searchsorted(ids[order], wanted), len(ids) - 1)]
    return np.where((code >= 0) & (ids[at] == wanted), at, -1)


def _successive(c: Computation, known: Ints) -> tuple[Ints, Ints]:
    """(earlier, later): the events with logged clocks that follow one another on a process."""
    chain = c.chain[known[c.chain]]
    previous, current = chain[:-1], chain[1:]
    same = c.process[previous] == c.process[current]
    return previous[same], current[same]
