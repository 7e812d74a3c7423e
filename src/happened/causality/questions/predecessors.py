"""Immediate predecessors among the relevant events: the transitive reduction of happened-before."""

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa

from ..linearization import Ints
from ..marks import mark_epoch, no_marks
from ..predecessors import PREDECESSORS, edges_table
from .question import Answers, Arrays, ColumnFold, EpochView, Fold, Question, Subject


class PredecessorsQuestion(Question):
    name = "predecessors"
    help = "immediate predecessors: the transitive reduction of happened-before"
    tables: ClassVar = {"predecessors": PREDECESSORS}
    totals = ("reduction_edges",)

    def whole(self, subject: Subject, answers: Answers) -> None:
        effects, causes = subject.reduction
        answers.totals["reduction_edges"] += effects.size
        answers.add("predecessors", edges_table(subject.computation, effects, causes))

    def fold(self, timestamps: str, processes: int) -> Fold | None:
        return ReductionFold(processes, tell=[tell_edges])


def tell_edges(view: EpochView, effects: Ints, process: Ints, seq: Ints, answers: Answers) -> None:
    answers.totals["reduction_edges"] += effects.size
    columns = [*view.names_of(effects), *view.event_columns(process, seq)[1:]]
    answers.add("predecessors", pa.table(columns, schema=PREDECESSORS))


Tell = Callable[[EpochView, Ints, Ints, Ints, Answers], None]
"""Receives the edges of the reduction that lead into an epoch: (effects, by index in the epoch, ascending;
the processes of their causes; the seqs of their causes)."""


class ReductionFold(ColumnFold):
    """Immediate predecessors epoch by epoch: one walk for the two questions that need them."""

    def __init__(self, processes: int, columns: range | None = None, tell: Sequence[Tell] = ()) -> None:
        super().__init__(processes, columns)
        self._tell = list(tell)
        self._state = no_marks(processes, self.columns)

    def look(self, view: EpochView) -> Arrays:
        edges, self._state = mark_epoch(
            view.epoch, view.relevant, self._state, *view.kept, view.arranged, self.columns
        )
        return {"edges": np.stack(edges)}

    def tell(self, view: EpochView, seen: Sequence[Arrays], answers: Answers) -> None:
        edges = np.concatenate([each["edges"] for each in seen], axis=1)
        edges = edges[:, np.argsort(edges[0], kind="stable")]
        for tell in self._tell:
            tell(view, edges[0], edges[1], edges[2], answers)

    def absorb(self, other: Fold) -> bool:
        if not isinstance(other, ReductionFold):
            return False
        self._tell += other._tell
        return True


QUESTION = PredecessorsQuestion()
