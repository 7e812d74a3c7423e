"""Questions that go through the epochs of a large computation one after the other.

In    Layouts, and the questions
Out   their tables as parts under `out`, and their totals
Cost  each walk is one task, its memory one epoch and one frontier; all side by side

The states of such walks compose only through n² numbers per row (see causality.units), more than the events
they would save going through twice; so they go through once, in order.
"""

from collections import Counter
from collections.abc import Sequence

from pyspark.sql import SparkSession

from ...causality.questions import Answers, Fold, Question
from ...trace.store import AnyPath
from ..tasks import on_tasks
from .epoch_layout import Layout
from .stamping import write_answers


def walk(
    spark: SparkSession,
    layouts: Sequence[Layout],
    out: AnyPath,
    questions: Sequence[Question],
    timestamps: str,
) -> Counter[str]:
    walks = [
        (layout, number, fold)
        for layout in layouts
        for number, fold in enumerate(_folds(questions, timestamps, len(layout.names)))
    ]
    totals = on_tasks(spark, len(walks), lambda number: _walk(*walks[number], out, timestamps))
    return sum(totals, Counter())


def _folds(questions: Sequence[Question], timestamps: str, processes: int) -> list[Fold]:
    folds: list[Fold] = []
    for question in questions:
        fold = question.fold(timestamps, processes)
        if fold is not None and not any(other.absorb(fold) for other in folds):
            folds.append(fold)
    return folds


def _walk(layout: Layout, number: int, fold: Fold, out: AnyPath, timestamps: str) -> Counter[str]:
    totals: Counter[str] = Counter()
    for k in range(layout.epochs):
        answers = Answers()
        fold.step(layout.view(k, timestamps), answers)
        write_answers(layout, out, answers, f"walk-{number}-{k:06d}")
        totals += answers.totals
    answers = Answers()
    fold.end(answers)
    write_answers(layout, out, answers, f"walk-{number}-end")
    return totals + answers.totals
