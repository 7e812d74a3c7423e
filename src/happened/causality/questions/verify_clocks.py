"""Compare the vector clocks that a source logged with those that follow from its events.

A logged clock is right if it gives, for each process, the number of its events in the event's past, itself
included; absent means zero. A *regression* is a clock that does not exceed the previous logged clock of its
process; an *impossible* entry names a process without events in the trace, or counts more events than
the process has.

In a window of a trace, events outside it may explain a larger entry. There a clock is a mismatch if its own
entry is not the event's seq, or if another entry is below the last seq that the window shows to be in the
past; no entry is impossible.
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...trace.declared import schema
from ..epochs import Frontier, Stamped, event_keys, own_columns
from ..linearization import Ints
from .question import EVENT, Answers, Arrays, EpochView, Question, Subject

CLOCKS = pa.schema([*EVENT, *schema("fault string")])
CLOCK_TOTALS = {
    "mismatch": "clock_mismatches",
    "regression": "clock_regressions",
    "impossible": "clock_impossible",
}
"""The faults of a logged clock, and the totals that count them."""


class VerifyClocks(Question):
    """For computations cut into epochs, the Spark code compares each clock with the previous logged one."""

    name = "verify-clocks"
    help = "compares the vector clocks that a source logged with those that follow from its events"
    tables: ClassVar = {"clocks": CLOCKS}
    totals = (*CLOCK_TOTALS.values(), "clocks_logged")

    def whole(self, subject: Subject, answers: Answers) -> None:
        c = subject.computation
        known = pc.is_valid(subject.table["clock"]).to_numpy()[c.row[c.chain]]
        if not known.any():
            return
        events = c.chain[known]  # by process and seq
        clocks = subject.table["clock"].take(pa.array(c.row[events])).combine_chunks()
        row, first = (
            np.repeat(np.arange(events.size), np.diff(clocks.offsets.to_numpy())),
            clocks.offsets[0].as_py(),
        )
        count = clocks.items.slice(first, row.size).fill_null(0).to_numpy(zero_copy_only=False)
        process = c.processes_named(events[row], clocks.keys.slice(first, row.size))
        named = process >= 0
        impossible = row[np.where(named, count > np.diff(c.chain_offsets)[process], count != 0)]
        logged = np.column_stack([c.process[events], c.seq[events]])
        entries = np.column_stack([logged[row], process, count])[named]
        entry, blocks = np.arange(c.processes) - c.first, subject.columns()
        if c.is_window:  # seldom wide enough to come in blocks
            impossible = impossible[:0]
            blocks = iter([(range(c.width), np.concatenate([part for _, part in blocks], axis=1))])
        wrong, back = np.zeros(events.size, bool), np.zeros(events.size, bool)
        wrong[impossible] = True
        for columns, vectors in blocks:
            here = (entry >= columns.start) & (entry < columns.stop)
            own = np.where(here, entry - columns.start, len(columns))
            dense = dense_clocks(logged, entries, own, len(columns))
            if c.is_window:
                wrong |= (dense < c.recorded_vectors(vectors, events)).any(axis=1)
                wrong |= dense[np.arange(events.size), own[c.process[events]]] != c.recorded_seq[events]
            else:
                wrong |= (dense != vectors[events]).any(axis=1)
            back[Regressions(own, len(columns)).step(logged, entries)] = True
        answers.totals["clocks_logged"] += events.size
        found = {"mismatch": wrong, "regression": back, "impossible": np.unique(impossible)}
        for fault, which in found.items():
            faulty = np.sort(events[which])
            _tell(fault, subject.names_of(faulty), answers)

    def look(self, view: EpochView, stamped: Stamped, frontier: Frontier) -> Arrays:
        logged, entries, columns = view.logged, view.clocks, stamped.columns
        dense = dense_clocks(logged, entries, own_columns(len(view.counts), columns), len(columns))
        rows = stamped.rows(frontier, logged[:, 0], logged[:, 1])
        impossible = logged[:, 2] > 0
        impossible[_rows(logged, entries[entries[:, 3] > view.counts[entries[:, 2]]])] = True
        differs = impossible | (dense != stamped.vectors[rows, : len(columns)]).any(axis=1)
        return {"mismatch": np.flatnonzero(differs), "impossible": np.flatnonzero(impossible)}

    def tell(self, view: EpochView, seen: Sequence[Arrays], answers: Answers) -> None:
        answers.totals["clocks_logged"] += len(view.logged)
        for fault in ("mismatch", "impossible"):
            found = np.unique(np.concatenate([each[fault] for each in seen]))
            add_clock_faults(view, fault, view.logged[found], answers)


def add_clock_faults(view: EpochView, fault: str, events: Ints, answers: Answers) -> None:
    """Report a fault of the clocks logged at these events, which are given by process and seq."""
    _tell(fault, view.event_columns(events[:, 0], events[:, 1]), answers)


def _tell(fault: str, names: list[pa.Array], answers: Answers) -> None:
    answers.totals[CLOCK_TOTALS[fault]] += len(names[0])
    answers.add("clocks", pa.table([*names, pa.repeat(fault, len(names[0]))], schema=CLOCKS))


def _rows(logged: Ints, entries: Ints) -> Ints:
    """The index of each entry's event among the logged ones."""
    return np.searchsorted(event_keys(logged[:, 0], logged[:, 1]), event_keys(entries[:, 0], entries[:, 1]))


def dense_clocks(logged: Ints, entries: Ints, own: Ints, width: int) -> Ints:
    """Logged clocks as rows; `own` is the column of each process, `width` for those without one here.

    logged    (process, seq) of each event with a clock, by process and seq
    entries   (process, seq, another process, count) of the clocks' entries, with or without zeros
    """
    clocks = np.zeros((len(logged), width + 1), np.int64)
    clocks[_rows(logged, entries), own[entries[:, 2]]] = entries[:, 3]
    return clocks[:, :-1]


class Regressions:
    """Finds clocks that do not exceed the previous logged clock of their process, in some columns, epoch by
    epoch; `own` and `width` as in `dense_clocks`."""

    def __init__(self, own: Ints, width: int) -> None:
        self._own, self._width = own, width
        self._last = np.zeros((own.size, width), np.int64)
        self._known = np.zeros(own.size, bool)

    def step(self, logged: Ints, entries: Ints) -> Ints:
        """The indices of the clocks logged in the next epoch that do not exceed the previous ones."""
        if not len(logged):
            return np.empty(0, np.int64)
        process = logged[:, 0]
        clocks = dense_clocks(logged, entries, self._own, self._width)
        begins = np.diff(process, prepend=-1) != 0
        before = np.concatenate([clocks[:1], clocks[:-1]])
        before[begins] = self._last[process[begins]]
        back: Ints = np.any(clocks < before, axis=1)
        mine = np.flatnonzero(self._own[process] < self._width)
        own = self._own[process[mine]]
        back[mine] |= clocks[mine, own] <= before[mine, own]
        back[begins] &= self._known[process[begins]]
        ends = np.diff(process, append=-1) != 0
        self._last[process[ends]], self._known[process[ends]] = clocks[ends], True
        return np.flatnonzero(back)


QUESTION = VerifyClocks()
