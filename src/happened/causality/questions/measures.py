"""How much happened, between whom, how deep and how wide, and how long messages took."""

from typing import ClassVar

import numpy as np
import pyarrow as pa

from ..epochs import Frontier
from ..marks import level_epoch
from ..measures import MEASURES, measure, width_rows
from .question import Answers, EpochView, Fold, Question, Subject


class Measures(Question):
    """Of computations cut into epochs, events and traffic come with the layout (spark.by_epoch.steps)."""

    name = "measures"
    help = "depth, width, traffic and latencies"
    tables: ClassVar = {"measures": MEASURES}

    def whole(self, subject: Subject, answers: Answers) -> None:
        c, times = subject.computation, subject.times
        latency = None
        if times is not None and times.received.size:
            latency = c.process[times.sent], c.process[times.received], times.gap
        answers.add("measures", measure(c, latency))

    def fold(self, timestamps: str, processes: int) -> Fold | None:
        return LevelsFold(processes)


class LevelsFold(Fold):
    """Depth and width."""

    def __init__(self, processes: int) -> None:
        none = np.empty(0, np.int64)
        self._state = Frontier(np.zeros(processes, np.int64), none, none, np.empty((0, 1), np.int64))
        self._per_level = np.zeros(0, np.int64)
        self._computation = ""

    def step(self, view: EpochView, answers: Answers) -> None:
        levels, self._state = level_epoch(view.epoch, self._state, *view.kept, view.arranged)
        counts = np.bincount(levels - 1, minlength=self._per_level.size)
        counts[: self._per_level.size] += self._per_level
        self._per_level, self._computation = counts, view.computation

    def end(self, answers: Answers) -> None:
        depths = np.array([self._per_level.size])
        widths = width_rows(pa.array([self._computation], pa.string()), depths, self._per_level)
        answers.add("measures", pa.concat_tables([MEASURES.empty_table(), *widths]))


QUESTION = Measures()
