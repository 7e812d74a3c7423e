"""Exact vector timestamps of one large computation, in two passes, and what is asked of stamped epochs.

In    a Layout, and the questions that need stamped epochs
Out   their tables as parts under `out`; what they keep for later, as parts under the layout's store
Cost  summarise: one task per epoch; scan: the driver, one frontier at a time; stamp: one task per epoch

See causality.epochs for why this is exact.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from ...causality.epochs import Frontier, complete, event_keys, split_keys, stamp_epoch
from ...causality.epochs import stamp as stamp_with
from ...causality.questions import Answers, Question
from ..storage import read_arrays, write_arrays, write_part
from ..tasks import on_tasks
from .epoch_layout import Layout


def stamp(
    spark: SparkSession,
    layout: Layout,
    out: Path,
    questions: Sequence[Question],
    timestamps: str = "full",
    progress: Callable[[str], object] | None = None,
) -> Counter[str]:
    """Stamp every epoch and let the questions answer for it; their totals."""
    on_tasks(spark, layout.epochs, lambda k: _summarise(layout, k), _tell("summarised", layout, progress))
    frontier = Frontier.beginning(len(layout.names))
    for k in range(layout.epochs):
        _save(_path(layout, "frontier", k), frontier)
        frontier = complete(_load(_path(layout, "summary", k)), frontier)
    totals = on_tasks(
        spark,
        layout.epochs,
        lambda k: _stamp(layout, k, out, questions, timestamps),
        _tell("stamped", layout, progress),
    )
    return sum(map(Counter, totals), Counter())


def _tell(
    deed: str, layout: Layout, progress: Callable[[str], object] | None
) -> Callable[[int], object] | None:
    if progress is None:
        return None
    epochs, events = layout.epochs, int(layout.cuts[-1].sum()) if layout.epochs else 0

    def tell(done: int) -> None:
        about = f"about {events * done // epochs:,} of {events:,} events"
        progress(f"{deed} {done} of {epochs} epochs, {about}")

    return tell


def _names(layout: Layout, k: int) -> Frontier:
    """The frontier that enters epoch k, every event of it knowing only itself."""
    last = layout.starts(k)
    kept = layout.share(k - 1)["kept"] if k else np.empty((0, 2), np.int64)
    present = np.flatnonzero(last > 0)
    keys = np.unique(np.concatenate([event_keys(present, last[present]), event_keys(kept[:, 0], kept[:, 1])]))
    process, seq = split_keys(keys)
    vectors = np.zeros((keys.size, len(last)), np.int32)
    return Frontier(last, process, seq, vectors).names_only()


def _summarise(layout: Layout, k: int) -> int:
    share, names = layout.share(k), _names(layout, k)
    epoch, _ = layout.epoch(k, share["edges"])
    kept = share["kept"]
    _, summary = stamp_with(epoch, names, kept[:, 0], kept[:, 1])
    _save(_path(layout, "summary", k), summary)
    return epoch.events


def _stamp(layout: Layout, k: int, out: Path, questions: Sequence[Question], timestamps: str) -> Counter[str]:
    view, frontier = layout.view(k, timestamps), load_frontier(layout, k)
    stamped = stamp_epoch(view.epoch, frontier)
    answers = Answers()
    for question in questions:
        question.stamped(view, stamped, frontier, answers)
    write_answers(layout, out, answers, f"{k:06d}")
    return answers.totals


def write_answers(layout: Layout, out: Path, answers: Answers, part: str) -> None:
    """Tables under `out`, by parts that are named after the layout; what is kept, in its store."""
    for name, table in answers.filled():
        write_part(out / name, f"{layout.store.name}-{part}", table)
    for name, table in answers.kept.items():
        write_part(layout.store / name, part, table)


def load_frontier(layout: Layout, k: int) -> Frontier:
    """The exact frontier that enters epoch k; there once `stamp` has begun its second pass."""
    return _load(_path(layout, "frontier", k))


def _path(layout: Layout, what: str, k: int) -> Path:
    return layout.store / f"{what}-{k:06d}.npz"


def _save(path: Path, frontier: Frontier) -> None:
    arrays: dict[str, Any] = {name: getattr(frontier, name) for name in ("last", "process", "seq", "vectors")}
    write_arrays(path, **arrays)


def _load(path: Path) -> Frontier:
    return Frontier(**read_arrays(path))
