"""Exact vector timestamps of every event, in one of three forms, and how many pairs of events are ordered.

full          every entry that is not zero
sparse        the entries that differ from the event before on the same process
predecessors  of each relevant event its immediate predecessors, from which the vector can be rebuilt
"""

from typing import ClassVar

import numpy as np
import pyarrow as pa

from ..computation import Computation
from ..epochs import Frontier, Stamped
from ..linearization import Ints
from .question import EVENT, Answers, EpochView, Fold, Question, Subject
from .reduction_fold import ReductionFold

TIMESTAMPS = ("full", "sparse", "predecessors")
STAMPS = pa.schema(
    [
        *EVENT,
        pa.field("epoch", pa.int32(), nullable=False),
        pa.field("clock", pa.map_(pa.string(), pa.int64())),
    ]
)


class Stamp(Question):
    name = "stamp"
    help = "exact vector timestamps of every event"
    tables: ClassVar = {"stamps": STAMPS}
    totals = ("ordered_pairs", "concurrent_pairs")

    def whole(self, subject: Subject, answers: Answers) -> None:
        c, vectors = subject.computation, subject.vectors
        if subject.timestamps == "predecessors":
            answers.add("stamps", _predecessor_stamps(subject))
        else:
            answers.add("stamps", stamps_table(c, vectors, subject.timestamps))
        events = np.bincount(c.owner[c.process]).astype(object)  # exact, however many pairs there are
        # The causal past of an event, itself left out, has as many events as its vector sums to, less one.
        ordered = int(vectors.sum(dtype=np.int64)) - c.events
        answers.totals["ordered_pairs"] += ordered
        answers.totals["concurrent_pairs"] += int((events * (events - 1) // 2).sum()) - ordered

    def stamped(self, view: EpochView, stamped: Stamped, frontier: Frontier, answers: Answers) -> None:
        vectors = stamped.event_vectors()
        if view.timestamps != "predecessors":
            answers.add("stamps", _epoch_stamps(view, frontier, vectors))
        events, before = view.epoch.events, int(frontier.last.sum())
        ordered = int(vectors.sum(dtype=np.int64)) - events
        answers.totals["ordered_pairs"] += ordered
        answers.totals["concurrent_pairs"] += events * (events - 1) // 2 + events * before - ordered

    def fold(self, timestamps: str, processes: int) -> Fold | None:
        return ReductionFold(processes, [_tell_stamps]) if timestamps == "predecessors" else None


def stamps_table(c: Computation, vectors: Ints, timestamps: str) -> pa.Table:
    """STAMPS of a computation that is looked at whole."""
    events = c.chain
    process = c.process[events]
    names = c.names_of(np.arange(c.processes))
    return clock_table(names, c.first, process, c.seq[events], vectors[events], timestamps)


def _epoch_stamps(view: EpochView, frontier: Frontier, vectors: Ints) -> pa.Table:
    epoch, n = view.epoch, view.epoch.processes
    before = np.zeros((n, n), np.int32)
    known = np.flatnonzero(frontier.last > 0)
    before[known] = frontier.vectors[frontier.rows(known, frontier.last[known])]
    return clock_table(
        view.processes(np.arange(n)),
        np.zeros(n, np.int64),
        epoch.process,
        epoch.seq,
        vectors,
        view.timestamps,
        view.number,
        before,
    )


def clock_table(
    names: list[pa.Array],
    first: Ints,
    process: Ints,
    seq: Ints,
    vectors: Ints,
    timestamps: str,
    epoch: int = 0,
    before: Ints | None = None,
) -> pa.Table:
    """STAMPS for events given by process and seq, with their clocks in the form `full` or `sparse`.

    names   the computation and the name of each process
    first   entry k of the vector of an event of process p is about process first[p] + k
    before  the vectors before each process's first event here, where those are not zero
    """
    if timestamps == "sparse":
        shown = np.empty(vectors.shape, bool)
        np.not_equal(vectors[1:], vectors[:-1], out=shown[1:])
        starts = np.flatnonzero(np.diff(process, prepend=-1))
        shown[starts] = vectors[starts] != (0 if before is None else before[process[starts]])
    else:
        shown = vectors != 0
    row, column = np.nonzero(shown)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(process)))]).astype(np.int32)
    clock = pa.MapArray.from_arrays(
        offsets,
        names[1].take(pa.array(first[process[row]] + column)),
        pa.array(vectors[row, column].astype(np.int64)),
    )
    columns = [*(name.take(pa.array(process)) for name in names), pa.array(np.asarray(seq, np.int64))]
    return _stamps(columns, epoch, clock)


def _predecessor_stamps(subject: Subject) -> pa.Table:
    c = subject.computation
    effects, causes = subject.reduction
    events = np.flatnonzero(subject.relevant)
    counts = np.bincount(effects, minlength=c.events)[events]
    clock = _predecessor_clocks(counts, c.names_of(c.process[causes])[1], c.seq[causes])
    return _stamps(subject.names_of(events), 0, clock)


def _tell_stamps(view: EpochView, effects: Ints, process: Ints, seq: Ints, answers: Answers) -> None:
    events = np.flatnonzero(view.relevant)
    # The effects come in topological order, the events by process: each keeps its own causes.
    order = np.argsort(effects, kind="stable")
    counts = np.bincount(effects, minlength=view.epoch.events)[events]
    clock = _predecessor_clocks(counts, view.processes(process[order])[1], seq[order])
    answers.add("stamps", _stamps(view.names_of(events), view.number, clock))


def _predecessor_clocks(counts: Ints, processes: pa.Array, seqs: Ints) -> pa.Array:
    """Immediate predecessors as clocks: so many to each event, of these processes and seqs."""
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.MapArray.from_arrays(offsets, processes, pa.array(np.asarray(seqs, np.int64)))


def _stamps(columns: list[pa.Array], epoch: int, clock: pa.Array) -> pa.Table:
    number = pa.repeat(pa.scalar(epoch, pa.int32()), len(clock))
    return pa.table([*columns, number, clock], schema=STAMPS)


QUESTION = Stamp()
