"""Questions that go through the epochs of a large computation one after the other.

In    Layouts, and the questions
Out   their tables as parts under `out`, and their totals
Cost  each walk is one task, its memory one epoch and one frontier; all side by side. A walk whose state falls
      into columns (causality.questions.ColumnFold) is several, if there are many columns; then one task per
      epoch tells what they saw together

The states of such walks compose only through n² numbers per row (see causality.marks), which costs more than
going through the events twice; so a walk goes through the epochs once, in order. Layouts that are wide are
stamped by such walks too.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...causality.questions import Answers, ColumnFold, Fold, Question
from ...causality.questions.question import ColumnStamps
from ...core.errors import CausalityError
from ...trace.store import AnyPath
from ..storage import read_arrays, write_arrays
from ..tasks import Runner, on_tasks
from .epoch_layout import Layout
from .stamping import EpochDone, EpochStep, add_up, write_answers


class InBlocks(NamedTuple):
    """A walk over a layout that is made by blocks of columns, and its number among the layout's walks."""

    layout: int
    number: int
    fold: ColumnFold
    blocks: Sequence[ColumnFold]


def walk(
    spark: Runner,
    layouts: Sequence[Layout],
    out: AnyPath,
    questions: Sequence[Question],
    timestamps: str,
    steps: Mapping[str, EpochStep] | None = None,
) -> tuple[Counter[str], list[dict[str, list[Any]]]]:
    """The totals, and per wide layout the results of each step for its epochs."""
    steps = steps or {}
    tasks: list[Callable[[], Counter[str]]] = []
    in_blocks: list[InBlocks] = []
    for i, layout in enumerate(layouts):
        for number, fold in enumerate(_folds(questions, timestamps, layout)):
            blocks = fold.blocks() if isinstance(fold, ColumnFold) else []
            if len(blocks) > 1 or isinstance(fold, ColumnStamps):
                assert isinstance(fold, ColumnFold)
                in_blocks.append(InBlocks(i, number, fold, blocks))
                tasks += [_looking(layout, number, b, block) for b, block in enumerate(blocks)]
            else:
                tasks.append(_walking(layout, number, fold, out, timestamps))
    totals: Counter[str] = sum(on_tasks(spark, len(tasks), lambda number: tasks[number]()), Counter())
    items = [(i, k) for i in sorted({each.layout for each in in_blocks}) for k in range(layouts[i].epochs)]

    def tell(number: int) -> tuple[Counter[str], dict[str, Any]]:
        i, k = items[number]
        layout = layouts[i]
        share, answers = layout.share(k), Answers()
        view = layout.view(k, timestamps, share)
        for each in in_blocks:
            if each.layout == i:
                seen = [read_arrays(_seen(layout, each.number, b, k)) for b in range(len(each.blocks))]
                each.fold.tell(view, seen, answers)
        done = EpochDone(layout, share, view)
        told = {name: step(done, answers) for name, step in steps.items()} if layout.wide else {}
        write_answers(layout, out, answers, f"{k:06d}" if layout.wide else f"walks-{k:06d}")
        return answers.totals, told

    counted, told = add_up(layouts, items, on_tasks(spark, len(items), tell))
    return totals + counted, told


def _folds(questions: Sequence[Question], timestamps: str, layout: Layout) -> list[Fold]:
    folds: list[Fold] = []
    processes = len(layout.names)
    for question in questions:
        fold = question.fold("predecessors" if layout.wide else timestamps, processes)
        if fold is not None and not any(other.absorb(fold) for other in folds):
            folds.append(fold)
    if layout.wide:
        of_stamps = [question for question in questions if question.needs_stamps]
        for question in of_stamps:
            if not question.sees_columns:
                raise CausalityError(
                    f"the question {question.name!r} needs whole vectors, which {layout.computation!r} "
                    f"with its {processes:,} processes is too wide for: give the question `look` and "
                    "`tell`"
                )
        folds.append(ColumnStamps(processes, of_stamps))
    return folds


def _walking(
    layout: Layout, number: int, fold: Fold, out: AnyPath, timestamps: str
) -> Callable[[], Counter[str]]:
    def walk() -> Counter[str]:
        totals: Counter[str] = Counter()
        lost = layout.lost()
        for k in range(layout.epochs):
            answers = Answers()
            fold.step(layout.view(k, timestamps, lost=lost), answers)
            write_answers(layout, out, answers, f"walk-{number}-{k:06d}")
            totals += answers.totals
        answers = Answers()
        fold.end(answers)
        write_answers(layout, out, answers, f"walk-{number}-end")
        return totals + answers.totals

    return walk


def _looking(layout: Layout, number: int, block: int, fold: ColumnFold) -> Callable[[], Counter[str]]:
    def walk() -> Counter[str]:
        lost = layout.lost()
        for k in range(layout.epochs):
            write_arrays(_seen(layout, number, block, k), **fold.look(layout.view(k, lost=lost)))
        return Counter()

    return walk


def _seen(layout: Layout, number: int, block: int, k: int) -> AnyPath:
    return layout.path(f"seen-{number}-{block:04d}", k)
