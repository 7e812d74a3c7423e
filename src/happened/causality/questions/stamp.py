"""Exact vector timestamps of every event, in one of three forms, and how many pairs of events are ordered.

full          `clock`: one entry for each process of the event's computation, by its number p
sparse        `entries`: the entries that differ from those of the previous event on the same process
predecessors  `entries`: the immediate predecessors of each relevant event, enough to rebuild vectors

A computation of very many processes that is cut into epochs or has no messages always gets the form
predecessors: its vectors are never held whole.

Processes are numbered by name within their computation; the table `processes` has the numbers. Repeating
the names in every clock would take more room than the vectors (bench/stamps.py).
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.errors import TraceFormatError
from ...trace.declared import schema
from ..computation import Computation
from ..epochs import Frontier, Stamped
from ..linearization import Ints, offsets_of
from ..names import nested
from .predecessors import ReductionFold
from .question import EVENT, Answers, Arrays, EpochView, Fold, Question, Subject

TIMESTAMPS = ("full", "sparse", "predecessors")
ENTRY = pa.struct([pa.field("p", pa.int32(), nullable=False), pa.field("seq", pa.int64(), nullable=False)])
STAMPS = pa.schema(
    [
        *EVENT,
        pa.field("epoch", pa.int32(), nullable=False),
        pa.field("clock", pa.list_(pa.field("element", pa.int32(), nullable=False))),
        pa.field("entries", pa.list_(pa.field("element", ENTRY, nullable=False))),
    ]
)
"""Entry p of `clock` is the seq of the last event of process p in the event's past, itself included, or 0. So
e happened before f iff e and f differ and entry p of f's clock is at least e's seq, where p is e's process.
An element of `entries` gives such an entry for one process, or names an immediate predecessor. One of the
two columns is null."""
PROCESSES = schema("computation string, process string, p int32, events int64")
"""The processes of each computation, numbered from 0 by name; a process may have no events."""

MOST_ENTRIES = np.iinfo(np.int32).max
"""Clock entries in one chunk of an Arrow column, whose offsets are 32 bits wide, as are the entries."""


class StampQuestion(Question):
    """For computations cut into epochs, the table of processes comes from the layout
    (spark.by_epoch.steps)."""

    name = "stamp"
    help = "exact vector timestamps of every event"
    tables: ClassVar = {"stamps": STAMPS, "processes": PROCESSES}
    totals = ("ordered_pairs", "concurrent_pairs")

    def whole(self, subject: Subject, answers: Answers) -> None:
        c = subject.computation
        if subject.timestamps == "predecessors" or subject.is_wide:
            effects, causes = subject.reduction
            process = c.process[causes]
            entry, seq = process - c.first[process], c.recorded_seq[causes]
            answers.add("stamps", _predecessor_stamps(subject, 0, effects, entry, seq))
        else:
            answers.add("stamps", stamps_table(c, subject.vectors, subject.timestamps))
        every = np.arange(c.processes)
        names = c.names_of(every)
        answers.add("processes", processes_table(names, every - c.first, np.diff(c.chain_offsets)))
        events = np.bincount(c.owner[c.process]).astype(object)  # exact for any number of pairs
        answers.totals["ordered_pairs"] += subject.ordered_pairs
        answers.totals["concurrent_pairs"] += int((events * (events - 1) // 2).sum()) - subject.ordered_pairs

    def stamped(self, view: EpochView, stamped: Stamped, frontier: Frontier, answers: Answers) -> None:
        epoch, n, vectors = view.epoch, view.epoch.processes, stamped.event_vectors()
        names = view.names_of(np.arange(epoch.events))
        if view.timestamps == "full":
            answers.add("stamps", _stamps(names, view.number, clock=_clocks(vectors)))
        elif view.timestamps == "sparse":
            before, known = np.zeros((n, n), np.int32), np.flatnonzero(frontier.last > 0)
            before[known] = frontier.vectors[frontier.rows(known, frontier.last[known])]
            changes = _changes(epoch.process, vectors, before)
            answers.add("stamps", _stamps(names, view.number, entries=changes))
        super().stamped(view, stamped, frontier, answers)

    def look(self, view: EpochView, stamped: Stamped, frontier: Frontier) -> Arrays:
        past = stamped.vectors[frontier.process.size :, : len(stamped.columns)].sum(dtype=np.int64)
        return {"past": np.array([past]), "before": np.array([frontier.last.sum()])}

    def tell(self, view: EpochView, seen: Sequence[Arrays], answers: Answers) -> None:
        events, before = view.epoch.events, int(seen[0]["before"][0])
        ordered = sum(int(each["past"][0]) for each in seen) - events
        answers.totals["ordered_pairs"] += ordered
        answers.totals["concurrent_pairs"] += events * (events - 1) // 2 + events * before - ordered

    def fold(self, timestamps: str, processes: int) -> Fold | None:
        return ReductionFold(processes, tell=[_tell_stamps]) if timestamps == "predecessors" else None


def processes_table(names: list[pa.Array], number: Ints, events: Ints) -> pa.Table:
    """The table PROCESSES; `names` has the computation and the name of each process."""
    columns = [*names, pa.array(number.astype(np.int32)), pa.array(events.astype(np.int64))]
    return pa.table(columns, schema=PROCESSES)


def stamps_table(c: Computation, vectors: Ints, timestamps: str) -> pa.Table:
    """STAMPS of a computation that is processed whole, by process, then seq."""
    events = c.chain
    process, ordered = c.process[events], c.recorded_vectors(vectors, events)
    names = c.event_columns(events)
    if timestamps == "sparse":
        return _stamps(names, 0, entries=_changes(process, ordered))
    if ordered.dtype != np.int32 and ordered.max(initial=0) > MOST_ENTRIES:
        raise TraceFormatError(
            f'{ordered.max():,} does not fit the 32 bits of a clock\'s entry; ask for timestamps="sparse" or '
            '"predecessors", or number the events of each process 1, 2, …',
            field="seq",
        )
    ordered = ordered.astype(np.int32, copy=False)
    widths = np.bincount(c.owner)[c.owner[process]]
    return _stamps(names, 0, clock=_clocks(ordered, None if (widths == c.width).all() else widths))


def _clocks(vectors: Ints, widths: Ints | None = None) -> pa.ChunkedArray:
    """The rows of `vectors` as lists, without copying them; `widths` limits each list's length, if given."""
    rows, width = vectors.shape
    at_once = max(1, MOST_ENTRIES // max(1, width))
    element = STAMPS.field("clock").type
    chunks = []
    for at in range(0, rows, at_once):
        part, of = vectors[at : at + at_once], np.full(rows, width) if widths is None else widths
        flat = part.ravel() if widths is None else part[np.arange(width) < of[at : at + at_once, None]]
        chunks.append(nested(of[at : at + at_once], flat, element))
    return pa.chunked_array(chunks, type=element)


def _changes(process: Ints, vectors: Ints, before: Ints | None = None) -> pa.ChunkedArray:
    """For each event, the entries that differ from those of the previous event on its process.

    before   the vectors before each process's first event here, if they are not zero
    """
    shown = np.empty(vectors.shape, bool)
    np.not_equal(vectors[1:], vectors[:-1], out=shown[1:])
    starts = np.flatnonzero(np.diff(process, prepend=-1))
    shown[starts] = vectors[starts] != (0 if before is None else before[process[starts]])
    at_once = max(1, MOST_ENTRIES // max(1, vectors.shape[1]))
    chunks = []
    for at in range(0, len(vectors), at_once):
        row, column = np.nonzero(shown[at : at + at_once])
        counts = np.bincount(row, minlength=len(process[at : at + at_once]))
        chunks.append(_entries(counts, column, vectors[at + row, column]))
    return pa.chunked_array(chunks, type=STAMPS.field("entries").type)


def _predecessor_stamps(
    of: Subject | EpochView, epoch: int, effects: Ints, process: Ints, seq: Ints
) -> pa.Table:
    """The stamps of the relevant events: their immediate predecessors, by effect."""
    events = np.flatnonzero(of.relevant)
    counts = np.bincount(effects, minlength=of.relevant.size)[events]
    return _stamps(of.names_of(events), epoch, entries=_entries(counts, process, seq))


def _tell_stamps(view: EpochView, effects: Ints, process: Ints, seq: Ints, answers: Answers) -> None:
    answers.add("stamps", _predecessor_stamps(view, view.number, effects, process, seq))


def _entries(counts: Ints, process: Ints, seq: Ints) -> pa.Array:
    """Lists of entries: `counts` gives each event's number of entries, with these processes and seqs."""
    columns = [pa.array(process.astype(np.int32)), pa.array(seq.astype(np.int64))]
    flat = pa.StructArray.from_arrays(columns, fields=list(ENTRY))
    return nested(counts, flat, STAMPS.field("entries").type)


def _stamps(
    names: list[pa.Array],
    epoch: int,
    clock: pa.ChunkedArray | None = None,
    entries: pa.ChunkedArray | None = None,
) -> pa.Table:
    events = len(names[0])
    number = pa.repeat(pa.scalar(epoch, pa.int32()), events)
    forms = [
        pa.nulls(events, STAMPS.field(name).type) if form is None else form
        for name, form in (("clock", clock), ("entries", entries))
    ]
    return pa.table([*names, number, *forms], schema=STAMPS)


def listed(stamps: pa.Table) -> tuple[Ints, Ints, Ints]:
    """(row, process by number, seq) of all entries of the clocks, or of `entries`."""
    lists = stamps["entries" if stamps["clock"].null_count else "clock"].combine_chunks()
    row, flat = pc.list_parent_indices(lists).to_numpy(), pc.list_flatten(lists)
    if stamps["clock"].null_count:
        return row, pc.struct_field(flat, "p").to_numpy(), pc.struct_field(flat, "seq").to_numpy()
    starts = offsets_of(pc.list_value_length(lists).to_numpy())
    return row, np.arange(len(row)) - starts[row], flat.to_numpy()


def clock_maps(stamps: pa.Table, processes: pa.Table) -> pa.MapArray:
    """The clock of each row of `stamps`, in any form, by names of processes; zeros are left out.

    processes   rows of PROCESSES, at least for the computations in `stamps`
    """
    numbered = processes.sort_by([("computation", "ascending"), ("p", "ascending")])
    computations = numbered["computation"].combine_chunks()
    first = pc.index_in(stamps["computation"], value_set=computations).to_numpy()  # the row of its process 0
    row, number, seq = listed(stamps)
    shown = np.flatnonzero(seq)
    row, number, seq = row[shown], number[shown], seq[shown]
    offsets = offsets_of(np.bincount(row, minlength=stamps.num_rows)).astype(np.int32)
    names = numbered["process"].combine_chunks().take(pa.array(first[row] + number))
    return pa.MapArray.from_arrays(offsets, names, pa.array(seq.astype(np.int64)))


QUESTION = StampQuestion()
