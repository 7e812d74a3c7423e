"""Exact vector timestamps of large computations, and what is asked of stamped epochs.

In    Layouts, whose epochs are summarised; the questions that need stamped epochs, and steps that do
Out   their tables as parts under `out`; what they keep for later, as parts under the layout's store
Cost  scan: the driver, one frontier at a time; stamp: one task per epoch, all computations together

See causality.epochs for why this is exact.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from ...causality.epochs import Frontier, Stamped, complete, stamp_epoch
from ...causality.linearization import Ints
from ...causality.questions import Answers, EpochView, Question
from ...trace.store import AnyPath
from ..storage import write_part
from ..tasks import on_tasks
from .epoch_layout import Layout, load_frontier, load_summary, save_frontier


@dataclass(frozen=True)
class EpochDone:
    """An epoch that is stamped, for steps."""

    layout: Layout
    share: dict[str, Ints]
    view: EpochView
    stamped: Stamped
    frontier: Frontier


EpochStep = Callable[[EpochDone, Answers], Any]
"""What a step tells of an epoch; it adds to the answers, and what it returns is small."""


def stamp(
    spark: SparkSession,
    layouts: Sequence[Layout],
    out: AnyPath,
    questions: Sequence[Question],
    timestamps: str = "full",
    steps: Mapping[str, EpochStep] | None = None,
    tell: Callable[[int], object] | None = None,
) -> tuple[Counter[str], list[dict[str, list[Any]]]]:
    """Stamp every epoch and let the questions answer for it; their totals, and per layout what each step told
    of its epochs, in their order."""
    for layout in layouts:
        frontier = Frontier.beginning(len(layout.names))
        for k in range(layout.epochs):
            save_frontier(layout, k, frontier)
            frontier = complete(load_summary(layout, k), frontier)
    items = [(i, k) for i, layout in enumerate(layouts) for k in range(layout.epochs)]
    steps = steps or {}

    def run(number: int) -> tuple[Counter[str], dict[str, Any]]:
        i, k = items[number]
        layout = layouts[i]
        share, frontier = layout.share(k), load_frontier(layout, k)
        view = layout.view(k, timestamps, share)
        stamped = stamp_epoch(view.epoch, frontier)
        answers = Answers()
        for question in questions:
            question.stamped(view, stamped, frontier, answers)
        done = EpochDone(layout, share, view, stamped, frontier)
        told = {name: step(done, answers) for name, step in steps.items()}
        write_answers(layout, out, answers, f"{k:06d}")
        return answers.totals, told

    totals: Counter[str] = Counter()
    told: list[dict[str, list[Any]]] = [{name: [] for name in steps} for _ in layouts]
    for (i, _), (counted, said) in zip(items, on_tasks(spark, len(items), run, tell), strict=True):
        totals += counted
        for name, each in said.items():
            told[i][name].append(each)
    return totals, told


def write_answers(layout: Layout, out: AnyPath, answers: Answers, part: str) -> None:
    """Tables under `out`, by parts that are named after the layout; what is kept, in its store."""
    for name, table in answers.filled():
        write_part(out / name, f"{layout.store.name}-{part}", table)
    for name, table in answers.kept.items():
        write_part(layout.store / name, part, table)
