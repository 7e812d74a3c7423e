"""One epoch of a computation too large to process whole, and the frontier that connects it to the past.

An epoch is the set of events between two consistent cuts. The only part of the past that the future needs is
the *frontier*: the vectors of each process's last event and of those events whose message or effect comes
later. So an epoch can be stamped as soon as its entering frontier is known, on any machine. The frontiers can
be computed without stamping the epochs one after another:

    summarise   stamp each epoch as if each old event's past were only the event itself: a vector then names
                the latest event of each process, old or new, in the past
    scan        complete the few vectors that leave an epoch with those of the old events that they name
    stamp       stamp each epoch exactly, from its entering frontier

The first and the last step are independent per epoch; the scan touches only frontiers. In a stream, an epoch
is a batch, and `stamp` is the only step, with the frontier as its state.

Columns of vectors are independent of one another. If there are so many processes that frontiers would be
larger than epochs, each block of columns is stamped alone, epoch after epoch, blocks in parallel.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..core.errors import TraceFormatError
from .compiled import compiled
from .computation import MOST_EVENTS, too_long
from .linearization import Ints, find, linearize, members, offsets_of
from .stamps import stamp_rows

NONE: Ints = np.empty(0, np.int64)
_SEQ_BITS = 40


def event_keys(process: Ints, seq: Ints) -> Ints:
    """Events encoded as integers that sort by process, then seq; seq stays below 2^40."""
    return (process.astype(np.int64) << _SEQ_BITS) | seq


def split_keys(keys: Ints) -> tuple[Ints, Ints]:
    """(process, seq) of event keys."""
    return keys >> _SEQ_BITS, keys & ((1 << _SEQ_BITS) - 1)


@dataclass(frozen=True, slots=True, eq=False)
class Epoch:
    """Events by process, then seq, without gaps, with the edges that lead into them.

    The predecessors of event e, besides the event before it on its process, are
    (edge_process, edge_seq)[edge_offsets[e]:edge_offsets[e + 1]], each in this epoch or an earlier one.
    """

    processes: int
    process: Ints
    seq: Ints
    edge_offsets: Ints
    edge_process: Ints
    edge_seq: Ints
    names: tuple[str, ...] = ()  # the processes' names, for error messages

    def name(self, process: int, seq: int) -> str:
        return f"{self.names[process] if self.names else f'process {process}'}#{seq}"

    @property
    def events(self) -> int:
        return int(self.process.size)

    def edges_in(self, order: Ints) -> Ints:
        """The edges into these events, event by event."""
        return members(self.edge_offsets[:-1][order], np.diff(self.edge_offsets)[order])


def places(epoch: Epoch, process: Ints, seq: Ints) -> Ints:
    """The index in the epoch of each of these events, which must all belong to the epoch."""
    if not len(process):
        return np.empty(0, np.int64)
    first = np.searchsorted(epoch.process, np.arange(epoch.processes))
    begins = epoch.seq[np.minimum(first, epoch.events - 1)]
    return first[process] + seq - begins[process]


@dataclass(frozen=True, slots=True, eq=False)
class Frontier:
    """The part of the past that later epochs need: some old events, by process and seq, and their vectors.

    `last` is the seq of each process's last event, 0 for none; these last events are among the kept events.
    """

    last: Ints
    process: Ints
    seq: Ints
    vectors: Ints

    @classmethod
    def beginning(cls, processes: int, width: int | None = None) -> "Frontier":
        """The empty frontier of an empty past; vectors have `width` entries, None: one per process."""
        width = processes if width is None else width
        return cls(np.zeros(processes, np.int64), NONE, NONE, np.empty((0, width), np.int32))

    def rows(self, process: Ints, seq: Ints) -> Ints:
        """The row of each of these old events in the frontier; -1 for events that it did not keep."""
        return find(event_keys(self.process, self.seq), event_keys(process, seq))

    def widened(self, more: int, at: int) -> "Frontier":
        """The frontier with `more` new processes, whose columns of zeros are inserted at `at`."""
        vectors = np.insert(self.vectors, [at] * more, 0, axis=1)
        last = np.concatenate([self.last, np.zeros(more, np.int64)])
        return Frontier(last, self.process, self.seq, vectors)

    def names_only(self) -> "Frontier":
        """The same events, with vectors that contain only the event itself: the input of `summarise`."""
        vectors = np.zeros_like(self.vectors)
        vectors[np.arange(len(vectors)), self.process] = self.seq
        return replace(self, vectors=vectors)


@dataclass(frozen=True, slots=True, eq=False)
class Arranged:
    """An epoch in topological order; edges name rows: first the frontier's old events, then the epoch's."""

    entering: int  # number of old events
    order: Ints
    row_of: Ints  # the row of each event of the epoch
    edge_offsets: Ints  # by event in topological order
    edge_rows: Ints
    last: Ints  # for each process, the seq of its last event up to the end of the epoch


def arrange(epoch: Epoch, frontier: Frontier, known: Arranged | None = None) -> Arranged:
    """Put an epoch in order. TraceFormatError on a cycle, gap, long process or cause outside the frontier.

    `known` is an earlier result for this epoch; it is returned unchanged if the same old events enter.
    """
    if known is not None:
        if (known.entering, known.order.size) != (frontier.process.size, epoch.events):
            raise ValueError("an epoch was arranged for another frontier than the one that enters it")
        return known
    starts = _chain_offsets(epoch, frontier)
    last = frontier.last + np.diff(starts)
    if last.max(initial=0) > MOST_EVENTS:
        longest = int(np.argmax(last))
        raise too_long(epoch.names[longest] if epoch.names else str(longest), int(last[longest]))
    # A local event's place is its chain position; frontier rows count as already placed.
    edge_place = _places(epoch, frontier, starts)
    local = edge_place >= 0
    owner = np.repeat(np.arange(epoch.events), np.diff(epoch.edge_offsets))
    local_offsets = offsets_of(np.bincount(owner[local], minlength=epoch.events))
    nothing = np.full(epoch.events, -1, np.int64)
    everyone = np.array([0, epoch.processes])
    order, position = linearize(everyone, starts, epoch.process, nothing, local_offsets, edge_place[local])
    if order.size < epoch.events:
        stuck = np.flatnonzero(position < 0)[:5]
        names = ", ".join(epoch.name(int(epoch.process[e]), int(epoch.seq[e])) for e in stuck)
        raise TraceFormatError(
            f"happened-before has a cycle; among the events that wait for one another: {names}. No "
            "computation can do that: a delivery is recorded before its send, or a cause after its effect; "
            "correct the seq, message or causes of one of these events"
        )
    row_of = position + frontier.process.size
    edge_rows = _rows(epoch, frontier, row_of, epoch.edge_process, epoch.edge_seq)
    if (edge_rows < 0).any():
        at = int(np.argmax(edge_rows < 0))
        raise TraceFormatError(
            f"{epoch.name(int(epoch.edge_process[at]), int(epoch.edge_seq[at]))} is the cause of a later one "
            "and the frontier has forgotten it"
        )
    picked = epoch.edges_in(order)
    offsets = offsets_of(np.diff(epoch.edge_offsets)[order])
    return Arranged(frontier.process.size, order, row_of, offsets, edge_rows[picked], last)


def own_columns(processes: int, columns: Sequence[int]) -> Ints:
    """Each process's index in `columns`; all other processes share one extra, meaningless last column."""
    own = np.full(processes, len(columns))
    own[columns] = np.arange(len(columns))
    return own


@dataclass(frozen=True, slots=True, eq=False)
class Stamped:
    """An epoch with the vectors of the frontier's events and of its own, by row of `Arranged`.

    columns   the processes that the vectors cover; unless all are covered, a meaningless column follows
    """

    epoch: Epoch
    arranged: Arranged
    vectors: Ints
    columns: Sequence[int]

    def event_vectors(self) -> Ints:
        """One row per event, in the epoch's own order."""
        return self.vectors[self.arranged.row_of]

    def rows(self, frontier: Frontier, process: Ints, seq: Ints) -> Ints:
        """The row in `vectors` of each of these events, old or new; -1 for old events that were not kept."""
        return _rows(self.epoch, frontier, self.arranged.row_of, process, seq)


def stamp_epoch(
    epoch: Epoch, frontier: Frontier, arranged: Arranged | None = None, columns: Sequence[int] | None = None
) -> Stamped:
    """Stamp every event of the epoch. The vectors are exact if the entering frontier's vectors are.

    arranged   the epoch, if it has been arranged already
    columns    the processes that the vectors cover, as in the frontier; all if None
    """
    a = arrange(epoch, frontier, arranged)
    n, entering = epoch.processes, frontier.process.size
    columns = range(n) if columns is None else columns
    vectors = np.empty((entering + epoch.events, frontier.vectors.shape[1]), np.int32)
    vectors[:entering] = frontier.vectors
    last_row = frontier.rows(np.arange(n), frontier.last)
    nothing = np.full(epoch.events, -1, np.int64)
    first = np.arange(n) - own_columns(n, columns)
    stamp_rows(
        vectors, entering, last_row, first, epoch.process[a.order], nothing, a.edge_offsets, a.edge_rows
    )
    return Stamped(epoch, a, vectors, columns)


def leave(epoch: Epoch, a: Arranged, frontier: Frontier, rows: Ints, process: Ints, seq: Ints) -> Frontier:
    """The frontier after the epoch: every process's last event, and the given events, old or new.

    `rows` holds each row's state to pass on: vectors, or another value that is folded over epochs.
    """
    present = np.flatnonzero(a.last > 0)
    lasts = event_keys(present, a.last[present])
    kept_process, kept_seq = split_keys(np.unique(np.concatenate([lasts, event_keys(process, seq)])))
    at = _rows(epoch, frontier, a.row_of, kept_process, kept_seq)
    if (at < 0).any():
        raise TraceFormatError("an event to be kept is neither in the epoch nor in its frontier")
    return Frontier(a.last, kept_process, kept_seq, rows[at])


def stamp(
    epoch: Epoch,
    frontier: Frontier,
    process: Ints = NONE,
    seq: Ints = NONE,
    arranged: Arranged | None = None,
    columns: Sequence[int] | None = None,
) -> tuple[Stamped, Frontier]:
    """Stamp an epoch and advance the frontier past it; besides last events, it keeps the named events."""
    stamped = stamp_epoch(epoch, frontier, arranged, columns)
    return stamped, leave(epoch, stamped.arranged, frontier, stamped.vectors, process, seq)


def complete(summary: Frontier, frontier: Frontier) -> Frontier:
    """The exact leaving frontier, from the one summarised from `frontier.names_only()` and the entering one.

    For each process p, a summarised vector names the latest event of p in the past. If that event is old,
    join its vector; if it is new, join the vector of p's last old event, which came before it.
    """
    vectors = summary.vectors.copy()
    if frontier.process.size:
        keys = event_keys(frontier.process, frontier.seq)
        if not complete_rows(vectors, frontier.last, keys, frontier.vectors, _SEQ_BITS):
            raise TraceFormatError("a summary names an old event that is not in the entering frontier")
    return replace(summary, vectors=vectors)


@compiled
def complete_rows(vectors, last, keys, old, seq_bits):  # type: ignore[no-untyped-def]
    n = last.size
    known = np.empty(n, vectors.dtype)  # entries of all joined vectors; they cover older events
    for r in range(vectors.shape[0]):
        known[:] = 0
        for p in range(n):
            seq = min(np.int64(vectors[r, p]), last[p])
            if seq > known[p]:
                row = np.searchsorted(keys, (np.int64(p) << seq_bits) | seq)
                if row == keys.size or keys[row] != (np.int64(p) << seq_bits) | seq:
                    return False
                joined = old[row]
                for q in range(n):  # without a branch: one instruction joins several entries
                    known[q] = max(known[q], joined[q])
        for q in range(n):
            vectors[r, q] = max(vectors[r, q], known[q])
    return True


def _chain_offsets(epoch: Epoch, frontier: Frontier) -> Ints:
    counts = np.bincount(epoch.process, minlength=epoch.processes)
    starts = offsets_of(counts)
    expected = np.arange(epoch.events) - starts[epoch.process] + frontier.last[epoch.process] + 1
    if not np.array_equal(expected, epoch.seq):
        at = int(np.argmax(expected != epoch.seq))
        raise TraceFormatError(
            f"{epoch.name(int(epoch.process[at]), int(epoch.seq[at]))} follows #{expected[at] - 1}: the "
            "events of an epoch are given by process and seq, from where the frontier ends"
        )
    return starts


def _places(epoch: Epoch, frontier: Frontier, starts: Ints) -> Ints:
    """The chain position of each edge's cause; -1 if the cause is an old event."""
    p = epoch.edge_process
    place = starts[p] + epoch.edge_seq - frontier.last[p] - 1
    beyond = place >= starts[p + 1]
    if beyond.any():
        at = int(np.argmax(beyond))
        raise TraceFormatError(
            f"{epoch.name(int(p[at]), int(epoch.edge_seq[at]))} is named as a cause and lies in no epoch so "
            "far: the cuts are not consistent, or the event is missing"
        )
    return np.where(epoch.edge_seq > frontier.last[p], place, -1)


def _rows(epoch: Epoch, frontier: Frontier, row_of: Ints, process: Ints, seq: Ints) -> Ints:
    process, seq = np.asarray(process), np.asarray(seq)
    rows = frontier.rows(process, seq)
    new = seq > frontier.last[process]
    if new.any():
        keys = event_keys(epoch.process, epoch.seq)
        rows[new] = row_of[np.searchsorted(keys, event_keys(process[new], seq[new]))]
    return rows
