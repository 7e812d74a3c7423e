"""Exact vector timestamps of large computations, and the answers of questions that need them.

In    Layouts, whose epochs are summarised; the questions that need stamped epochs, and steps that do
Out   their tables as parts under `out`; what they keep for later, as parts under the layout's store
Cost  scan: groups of epochs, by tasks that hold one frontier at a time; stamp: one task per epoch, all
      computations together

See causality.epochs for why this is exact. Layouts that are wide are stamped by walks instead (see walks).
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...causality.epochs import Frontier, complete, stamp_epoch
from ...causality.linearization import Ints
from ...causality.questions import Answers, EpochView, Question
from ...trace.store import AnyPath
from ..storage import write_part
from ..tasks import Runner, on_tasks
from .epoch_layout import FRONTIER, SUMMARY, Layout, load, save

EPOCHS_PER_GROUP = 32
"""At least this many: the scan goes through the epochs of a group, and then through the groups, one after the
other."""


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
    """The totals, and per layout the results of each step for its epochs, merged from those of single
    epochs."""
    totals: Counter[str] = Counter()
    told: list[dict[str, list[Any]]] = [{} for _ in layouts]
    for (i, _), (counted, said) in zip(items, results, strict=True):
        totals += counted
        for name, each in said.items():
            told[i].setdefault(name, []).append(each)
    return totals, told


def scan(spark: Runner, layouts: Sequence[Layout]) -> None:
    """Write the exact frontier that enters each epoch.

    Completing one summary by another composes them (`complete` is associative). So tasks compose those of a
    group of epochs; another goes through the groups; and then each group's epochs get their frontiers.
    """
    of = [_groups(layout.epochs) for layout in layouts]
    groups = [(layouts[i], g, group) for i in range(len(of)) for g, group in enumerate(of[i])]
    several = [(layouts[i], len(of[i])) for i in range(len(of)) if len(of[i]) > 1]
    in_several = [(layouts[i], g, group) for i in range(len(of)) for g, group in enumerate(of[i][:-1])]

    def compose(number: int) -> None:
        layout, g, (first, *others) = in_several[number]
        composed = load(layout.path(SUMMARY, first))
        for k in others:
            composed = complete(load(layout.path(SUMMARY, k)), composed)
        save(layout.path("composed", g), composed)

    def enter_groups(number: int) -> None:
        layout, count = several[number]
        frontier = Frontier.beginning(len(layout.names))
        for g in range(1, count):
            frontier = complete(load(layout.path("composed", g - 1)), frontier)
            save(layout.path("group", g), frontier)

    def enter_epochs(number: int) -> None:
        layout, g, group = groups[number]
        frontier = load(layout.path("group", g)) if g else Frontier.beginning(len(layout.names))
        for k in group:
            save(layout.path(FRONTIER, k), frontier)
            frontier = complete(load(layout.path(SUMMARY, k)), frontier)

    on_tasks(spark, len(in_several), compose)
    on_tasks(spark, len(several), enter_groups)
    on_tasks(spark, len(groups), enter_epochs)


def _groups(epochs: int) -> list[range]:
    size = max(EPOCHS_PER_GROUP, math.isqrt(epochs))
    return [range(first, min(first + size, epochs)) for first in range(0, epochs, size)]


def write_answers(layout: Layout, out: AnyPath, answers: Answers, part: str) -> None:
    """Tables go under `out`, in parts that are named after the layout; what is kept for later goes into its
    store."""
    for name, table in answers.filled():
        write_part(out / name, f"{layout.store.name}-{part}", table)
    for name, table in answers.kept.items():
        write_part(layout.store / name, part, table)
