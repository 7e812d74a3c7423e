"""Immediate predecessors among the relevant events: the transitive reduction of happened-before."""

from typing import ClassVar

import pyarrow as pa

from ..linearization import Ints
from ..predecessors import PREDECESSORS, edges_table
from .question import Answers, EpochView, Fold, Question, Subject
from .reduction_fold import ReductionFold


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
        return ReductionFold(processes, [tell_edges])


def tell_edges(view: EpochView, effects: Ints, process: Ints, seq: Ints, answers: Answers) -> None:
    answers.totals["reduction_edges"] += effects.size
    columns = [*view.names_of(effects), *view.event_columns(process, seq)[1:]]
    answers.add("predecessors", pa.table(columns, schema=PREDECESSORS))


QUESTION = PredecessorsQuestion()
