"""Exact vector timestamps of large computations, and the answers of questions that go through epochs.

In    Layouts, whose epochs are summarised; the questions, and steps that need stamped epochs
Out   their tables as parts under `out`; what they keep for later, as parts under the layout's store
Cost  scan: groups of epochs, by tasks that hold one frontier at a time; stamp: one task per epoch, all
      computations together. Walk: one task each, whose memory is one epoch and one frontier; several, if its
      state falls into many columns (ColumnFold), and then one task per epoch that tells what they saw

See causality.epochs for why stamps are exact. The states of walks compose only through n² numbers per row
(see causality.marks), which costs more than going through the events twice; so a walk goes through the epochs
once, in order. Layouts that are wide are stamped by such walks too.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...causality.epochs import Frontier, complete, stamp_epoch
from ...causality.linearization import Ints
from ...causality.questions import Answers, ColumnFold, EpochView, Fold, Question
from ...causality.questions.question import ColumnStamps
from ...core.errors import CausalityError
from ...trace.store import AnyPath
from ..storage import read_arrays, write_arrays, write_part
from ..tasks import Runner, on_each, on_tasks
from .epoch_layout import FRONTIER, SUMMARY, Layout, load, save

EPOCHS_PER_GROUP = 32
"""At least so many: the scan goes through a group's epochs, and then the groups, one after the other."""


@dataclass(frozen=True)
class EpochDone:
    """An epoch with the questions' answers for it, as steps see it."""

    layout: Layout
    share: dict[str, Ints]
    view: EpochView


EpochStep = Callable[[EpochDone, Answers], Any]
"""The result of a step for one epoch; it adds to the answers, and returns something small."""


def stamp(
    spark: Runner,
    layouts: Sequence[Layout],
    out: AnyPath,
    questions: Sequence[Question],
    timestamps: str = "full",
    steps: Mapping[str, EpochStep] | None = None,
    tell: Callable[[int], object] | None = None,
) -> tuple[Counter[str], list[dict[str, list[Any]]]]:
    """Stamp every epoch and let the questions answer for it; returns their totals, and per layout the results
    of each step for its epochs, in their order."""
    scan(spark, layouts)
    items = [(i, k) for i, layout in enumerate(layouts) for k in range(layout.epochs)]
    steps = steps or {}

    def run(number: int) -> tuple[Counter[str], dict[str, Any]]:
        i, k = items[number]
        layout = layouts[i]
        share, frontier = layout.share(k), load(layout.path(FRONTIER, k))
        view = layout.view(k, timestamps, share)
        stamped = stamp_epoch(view.epoch, frontier, view.arranged)
        answers = Answers()
        for question in questions:
            question.stamped(view, stamped, frontier, answers)
        done = EpochDone(layout, share, view)
        told = {name: step(done, answers) for name, step in steps.items()}
        write_answers(layout, out, answers, f"{k:06d}")
        return answers.totals, told

    return add_up(layouts, items, on_tasks(spark, len(items), run, tell))


def add_up(
    layouts: Sequence[Layout],
    items: Sequence[tuple[int, int]],
    results: Sequence[tuple[Counter[str], dict[str, Any]]],
) -> tuple[Counter[str], list[dict[str, list[Any]]]]:
    """The totals, and per layout the results of each step for its epochs, from those of single epochs."""
    totals: Counter[str] = Counter()
    told: list[dict[str, list[Any]]] = [{} for _ in layouts]
    for (i, _), (counted, said) in zip(items, results, strict=True):
        totals += counted
        for name, each in said.items():
            told[i].setdefault(name, []).append(each)
    return totals, told


def scan(spark: Runner, layouts: Sequence[Layout]) -> None:
    """Write the exact frontier that enters each epoch.

    Completing one summary by another composes them (`complete` is associative). So one task per
    group of epochs composes the summaries of its group; then one task goes through the groups and writes the
    frontier that enters each; last, one task per group writes the frontiers that enter its epochs.
    """
    of = [(layout, _groups(layout.epochs)) for layout in layouts]
    groups = [(layout, g, group) for layout, its in of for g, group in enumerate(its)]
    several = [(layout, len(its)) for layout, its in of if len(its) > 1]
    in_several = [(layout, g, group) for layout, its in of for g, group in enumerate(its[:-1])]

    def compose(layout: Layout, g: int, group: range) -> None:
        first, *others = group
        composed = load(layout.path(SUMMARY, first))
        for k in others:
            composed = complete(load(layout.path(SUMMARY, k)), composed)
        save(layout.path("composed", g), composed)

    def enter_groups(layout: Layout, count: int) -> None:
        frontier = Frontier.beginning(len(layout.names))
        for g in range(1, count):
            frontier = complete(load(layout.path("composed", g - 1)), frontier)
            save(layout.path("group", g), frontier)

    def enter_epochs(layout: Layout, g: int, group: range) -> None:
        frontier = load(layout.path("group", g)) if g else Frontier.beginning(len(layout.names))
        for k in group:
            save(layout.path(FRONTIER, k), frontier)
            frontier = complete(load(layout.path(SUMMARY, k)), frontier)

    on_each(spark, in_several, compose)
    on_each(spark, several, enter_groups)
    on_each(spark, groups, enter_epochs)


def _groups(epochs: int) -> list[range]:
    size = max(EPOCHS_PER_GROUP, math.isqrt(epochs))
    return [range(first, min(first + size, epochs)) for first in range(0, epochs, size)]


def write_answers(layout: Layout, out: AnyPath, answers: Answers, part: str) -> None:
    """Write tables under `out`, in parts named after the layout, and what is kept into its store."""
    for name, table in answers.filled():
        write_part(out / name, f"{layout.store.name}-{part}", table)
    for name, table in answers.kept.items():
        write_part(layout.store / name, part, table)


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
    tasks: list[tuple[Any, ...]] = []
    in_blocks: list[InBlocks] = []
    for i, layout in enumerate(layouts):
        for number, fold in enumerate(_folds(questions, timestamps, layout)):
            blocks = fold.blocks() if isinstance(fold, ColumnFold) else []
            if len(blocks) > 1 or isinstance(fold, ColumnStamps):
                assert isinstance(fold, ColumnFold)
                in_blocks.append(InBlocks(i, number, fold, blocks))
                tasks += [(_look, layout, number, b, block) for b, block in enumerate(blocks)]
            else:
                tasks.append((_walk, layout, number, fold, out, timestamps))
    totals: Counter[str] = sum(on_each(spark, tasks, lambda work, *of: work(*of)), Counter())
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


def _walk(layout: Layout, number: int, fold: Fold, out: AnyPath, timestamps: str) -> Counter[str]:
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


def _look(layout: Layout, number: int, block: int, fold: ColumnFold) -> Counter[str]:
    lost = layout.lost()
    for k in range(layout.epochs):
        write_arrays(_seen(layout, number, block, k), **fold.look(layout.view(k, lost=lost)))
    return Counter()


def _seen(layout: Layout, number: int, block: int, k: int) -> AnyPath:
    return layout.path(f"seen-{number}-{block:04d}", k)
