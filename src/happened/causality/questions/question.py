"""The interface of a question to the pipeline: one object with everything that the pipeline needs to know.

A question is asked of whole computations (`whole`), and of computations that are too large for that and are
cut into epochs: either epochs come in any order, each alone, once they are stamped (`stamped`), or one after
another (`fold`). All ways fill the same tables and give the same totals. The drivers, in one process and on
Spark, iterate over the questions and know none of them by name.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from ...trace.declared import schema
from ...trace.schema import QUARANTINE
from ..computation import Computation, event_ids
from ..epochs import Arranged, Epoch, Frontier, Stamped, places, stamp
from ..linearization import Ints
from ..predecessors import find_predecessors
from ..reach import WORD, count_ordered, edges_of
from ..skew import Times, times_of
from ..stamps import MOST_CELLS, stamp_columns, stamp_computation

Arrays = dict[str, Ints]

EVENT = [*schema("computation string, process string, seq int64, event string")]
"""The columns that identify an event. Its id, `process#seq`, is unique within its computation."""


@dataclass
class Answers:
    """Rows of tables, and totals that add up over disjoint parts of a trace.

    kept   tables that are not answers yet: a question keeps them of an epoch for a later step of its own
    """

    tables: dict[str, list[pa.Table]] = field(default_factory=lambda: defaultdict(list))
    totals: Counter[str] = field(default_factory=Counter)
    kept: dict[str, pa.Table] = field(default_factory=dict)

    def add(self, name: str, table: pa.Table) -> None:
        if table.num_rows:
            self.tables[name].append(table)

    def keep(self, name: str, table: pa.Table) -> None:
        if table.num_rows:
            self.kept[name] = table

    def quarantine(self, reasons: Iterable[tuple[str, str]], rows: int | None = None) -> None:
        """Add (computation, reason) pairs to the quarantine; they concern `rows` rows, or one row each."""
        told = [{"computation": computation, "reason": reason} for computation, reason in reasons]
        self.add("quarantine", pa.Table.from_pylist(told, schema=QUARANTINE))
        self.totals["quarantined"] += len(told) if rows is None else rows

    def join(self, more: "Answers") -> None:
        """Add the rows and totals of other answers; totals may be negative."""
        for name, tables in more.tables.items():
            for table in tables:
                self.add(name, table)
        self.totals.update(more.totals)

    def filled(self) -> Iterable[tuple[str, pa.Table]]:
        """The tables that have rows."""
        return [(name, pa.concat_tables(parts)) for name, parts in self.tables.items() if parts]


@dataclass(frozen=True)
class Subject:
    """Whole computations, as one union, and values about them that several questions need."""

    computation: Computation
    table: pa.Table  # the rows the union was encoded from
    timestamps: str = "full"  # the requested form of stamps, one of TIMESTAMPS

    @cached_property
    def vectors(self) -> Ints:
        return stamp_computation(self.computation)

    @property
    def is_wide(self) -> bool:
        """Whether there are no messages, and too many vector entries to hold: there are no vectors."""
        c = self.computation
        return c.events * c.width > MOST_CELLS and not c.message_codes.size

    def columns(self) -> Iterator[tuple[range, Ints]]:
        """The vectors in blocks of columns, the only form in which a wide computation has them."""
        if self.is_wide:
            yield from stamp_columns(self.computation)
        else:
            yield range(self.computation.width), self.vectors

    @cached_property
    def ordered_pairs(self) -> int:
        """The number of pairs of events that are ordered by happened-before."""
        c = self.computation
        if self.is_wide and c.width * WORD > c.events:
            return count_ordered(edges_of(c).in_order())
        # An event's vector sums to the number of events in its past, itself included.
        return sum(int(vectors.sum(dtype=np.int64)) for _, vectors in self.columns()) - c.events

    @cached_property
    def relevant(self) -> Ints:
        """Whether each event is relevant; in a computation without marks, all events are."""
        c = self.computation
        owner = c.owner[c.process]
        marked = np.bincount(owner, c.relevant) > 0
        relevant: Ints = c.relevant | ~marked[owner]
        return relevant

    @cached_property
    def reduction(self) -> tuple[Ints, Ints]:
        """The edges (effects, causes) of the transitive reduction of the relevant events."""
        return find_predecessors(self.computation, self.relevant, lambda _: self.vectors)

    @cached_property
    def times(self) -> Times | None:
        """The times of the events and how far the clocks disagree; None if there are no times."""
        return times_of(self.computation, self.table["time"])

    def names_of(self, events: Ints) -> list[pa.Array]:
        """The columns EVENT of these events."""
        return self.computation.event_columns(events)


@dataclass(frozen=True, eq=False)
class EpochView:
    """One epoch of a computation that is cut into epochs, as questions see it.

    is_slot    for each edge into an event of the epoch, whether it is the first delivery at a destination
    kept       (process, seq) of the events, up to this epoch, that have effects after it
    counts     how many events each process has in all epochs together
    logged     (process, seq, whether the clock names an unknown process) of the epoch's events with a logged
               clock, by process and seq
    clocks     (process, seq, another process, count) of the non-zero entries of these clocks
    """

    computation: str
    names: tuple[str, ...]
    number: int  # number of the epoch, from 0
    epoch: Epoch
    is_slot: Ints
    kept: tuple[Ints, Ints]
    chosen: Ints | None  # (process, seq) of its relevant events; None: all events are relevant
    sent: Ints  # (sender, seq, destination) of the epoch's sends, delivered or not
    slots: Ints  # (sender, seq, destination, seq of delivery) of all in flight during the epoch
    lost: Ints  # (sender, seq, destination) of all that the computation never delivered
    timestamps: str = "full"  # the requested form of stamps
    arranged: Arranged | None = None  # the epoch in topological order, if already known
    counts: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    logged: Ints = field(default_factory=lambda: np.empty((0, 3), np.int64))
    clocks: Ints = field(default_factory=lambda: np.empty((0, 4), np.int64))

    @cached_property
    def relevant(self) -> Ints:
        """Whether each event of the epoch is relevant."""
        relevant = np.full(self.epoch.events, self.chosen is None)
        if self.chosen is not None:
            relevant[places(self.epoch, self.chosen[:, 0], self.chosen[:, 1])] = True
        return relevant

    @cached_property
    def addressed(self) -> Ints:
        """`sent`, sorted by sender, seq and destination."""
        return self.sent[np.lexsort((self.sent[:, 2], self.sent[:, 1], self.sent[:, 0]))]

    def names_of(self, events: Ints) -> list[pa.Array]:
        """The columns EVENT of these events of the epoch."""
        return self.event_columns(self.epoch.process[events], self.epoch.seq[events])

    def event_columns(self, process: Ints, seq: Ints) -> list[pa.Array]:
        """The columns EVENT of events given by process and seq, in this epoch or another."""
        names, seqs = self.processes(process), pa.array(np.asarray(seq, np.int64))
        return [*names, seqs, event_ids(names[1], seqs)]

    def processes(self, indices: Ints) -> list[pa.Array]:
        """The computation and the names of these processes, as columns."""
        names = pa.array(self.names, pa.string())
        return [pa.repeat(self.computation, len(indices)), names.take(pa.array(indices))]


class Fold:
    """A walk over the epochs of one computation, in order, which keeps its own state.

    step   gives the answers that the next epoch allows; their rows are written as a part of their tables
    end    gives the remaining answers after the last epoch
    """

    def step(self, view: EpochView, answers: Answers) -> None:
        raise NotImplementedError

    def end(self, answers: Answers) -> None:
        return None

    def absorb(self, other: "Fold") -> bool:
        """Try to take over another walk's work; return whether it did, so that `other` is not needed."""
        return False


WIDTH = 256  # Columns of vectors or marks that a walk processes at once; more would only cost memory


def blocks_of(processes: int, width: int | None = None) -> list[range]:
    """All columns in blocks of `width`; WIDTH if None."""
    width = WIDTH if width is None else width
    return [range(first, min(first + width, processes)) for first in range(0, processes, width)]


class ColumnFold(Fold):
    """A walk whose state consists of independent columns.

    columns  the columns that this walk sees; all if None
    blocks   the same walk split into blocks of columns, in the order of columns, which can run in parallel
    look     the data that a block takes from the next epoch
    tell     answers for an epoch, from the data that each block took
    """

    def __init__(self, processes: int, columns: range | None = None) -> None:
        self.processes = processes
        self.columns = range(processes) if columns is None else columns

    def blocks(self) -> Sequence["ColumnFold"]:
        return [type(self)(self.processes, columns) for columns in blocks_of(self.processes)]

    def look(self, view: EpochView) -> Arrays:
        raise NotImplementedError

    def tell(self, view: EpochView, seen: Sequence[Arrays], answers: Answers) -> None:
        raise NotImplementedError

    def step(self, view: EpochView, answers: Answers) -> None:
        self.tell(view, [self.look(view)], answers)


class Question:
    """Subclasses set the class variables and define `whole`. To answer for computations cut into epochs as
    well, they define `look` and `tell`, `stamped`, or `fold`, or Spark has a step for them
    (spark.by_epoch.steps). `stamped` is not called for computations with many processes, since nothing holds
    whole vectors there."""

    name: ClassVar[str]  # for the command line
    help: ClassVar[str]  # one line that says what the question answers
    tables: ClassVar[Mapping[str, pa.Schema]]  # the tables that it fills, with their schemas
    totals: ClassVar[tuple[str, ...]] = ()  # the totals that it adds to the summary

    def whole(self, subject: Subject, answers: Answers) -> None:
        """Answer for whole computations."""
        raise NotImplementedError

    @property
    def needs_stamps(self) -> bool:
        """Whether the driver must call `stamped` for every epoch."""
        return self.sees_columns or type(self).stamped is not Question.stamped

    @property
    def sees_columns(self) -> bool:
        """Whether the question can answer from blocks of columns."""
        return type(self).look is not Question.look

    def stamped(self, view: EpochView, stamped: Stamped, frontier: Frontier, answers: Answers) -> None:
        """Answer for one epoch that was stamped from its entering frontier; epochs come in any order."""
        self.tell(view, [self.look(view, stamped, frontier)], answers)

    def look(self, view: EpochView, stamped: Stamped, frontier: Frontier) -> Arrays:
        """The data that the question needs of an epoch, from the columns that it was stamped with."""
        raise NotImplementedError

    def tell(self, view: EpochView, seen: Sequence[Arrays], answers: Answers) -> None:
        """Answer for an epoch, from the data of each block of columns, in the order of columns."""
        raise NotImplementedError

    def fold(self, timestamps: str, processes: int) -> Fold | None:
        """A walk over the epochs of a computation with this many processes, if the question needs one."""
        return None

    def summarise(self, totals: Mapping[str, int]) -> dict[str, Any]:
        """The values that the question adds to the summary."""
        return {name: totals.get(name, 0) for name in self.totals}


class ColumnStamps(ColumnFold):
    """A walk over a computation of very many processes that stamps some or all columns, and passes them to
    questions that look at stamped epochs."""

    def __init__(self, processes: int, questions: Sequence[Question], columns: range | None = None) -> None:
        super().__init__(processes, columns)
        self._questions = questions
        self._frontier = Frontier.beginning(processes, len(self.columns) + 1)

    def blocks(self) -> list[ColumnFold]:
        n = self.processes
        return [ColumnStamps(n, self._questions, block) for block in blocks_of(n)]

    def look(self, view: EpochView) -> Arrays:
        before = self._frontier
        stamped, self._frontier = stamp(view.epoch, before, *view.kept, view.arranged, self.columns)
        return {
            f"{number}:{name}": array
            for number, question in enumerate(self._questions)
            for name, array in question.look(view, stamped, before).items()
        }

    def tell(self, view: EpochView, seen: Sequence[Arrays], answers: Answers) -> None:
        for number, question in enumerate(self._questions):
            mine = f"{number}:"
            own = [{name[len(mine) :]: of[name] for name in of if name.startswith(mine)} for of in seen]
            question.tell(view, own, answers)
