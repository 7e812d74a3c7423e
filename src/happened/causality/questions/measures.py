"""How much happened, between whom, how deep and how wide, and how long messages took.

The *level* of an event is the length of the longest chain of events that ends with it; events of one level
are concurrent. So the number of levels is the depth of a computation (its critical path, each event
counting one), and events per level say how wide it is along the way.
"""

from typing import ClassVar

import numpy as np
import pyarrow as pa

from ...trace.declared import schema
from ..computation import Computation
from ..epochs import NONE, Frontier
from ..linearization import FIRST, Ints
from ..marks import level_epoch
from ..reach import levels_of
from .question import Answers, EpochView, Fold, Question, Subject

MEASURES = schema(
    "computation string, measure string, process string?, other string?, at int32?, value float64"
)
"""events        per process
messages      per pair: first deliveries at `other` of messages from `process`
latency_min   per pair, ns, after skew correction; likewise latency_mean
depth         number of levels of the computation
width         events per level; `at` numbers the stretch, of at most STRETCHES equal stretches of levels
"""

STRETCHES = 100


class Measures(Question):
    """For computations cut into epochs, events and traffic come from the layout (spark.by_epoch.steps)."""

    name = "measures"
    help = "depth, width, traffic and latencies"
    tables: ClassVar = {"measures": MEASURES}

    def whole(self, subject: Subject, answers: Answers) -> None:
        c, times = subject.computation, subject.times
        counts = np.diff(c.chain_offsets)
        present = np.flatnonzero(counts)
        computation, process = c.names_of(present)
        rows = [measure_rows(computation, "events", counts[present], process)]
        given = np.flatnonzero(c.fate == FIRST)
        ends, pair = _pairs(c, c.process[c.source[given]], c.process[given])
        rows.append(measure_rows(ends[0], "messages", np.bincount(pair), *ends[1:]))
        if times is not None and times.received.size:
            ends, pair = _pairs(c, c.process[times.sent], c.process[times.received])
            least = np.full(len(ends[0]), np.iinfo(np.int64).max)
            np.minimum.at(least, pair, times.gap)
            mean = np.bincount(pair, times.gap) / np.bincount(pair)
            rows.append(measure_rows(ends[0], "latency_min", least, *ends[1:]))
            rows.append(measure_rows(ends[0], "latency_mean", mean, *ends[1:]))
        levels, owner = levels_of(c), c.owner[c.process]
        depths = np.zeros(len(c.computation_names), np.int64)
        np.maximum.at(depths, owner, levels)
        per_level = np.bincount((np.cumsum(depths) - depths)[owner] + levels - 1, minlength=depths.sum())
        rows += width_rows(pa.array(c.computation_names, pa.string()), depths, per_level)
        answers.add("measures", pa.concat_tables(rows))

    def fold(self, timestamps: str, processes: int) -> Fold | None:
        return LevelsFold(processes)


class LevelsFold(Fold):
    """Depth and width, epoch by epoch."""

    def __init__(self, processes: int) -> None:
        self._state = Frontier(np.zeros(processes, np.int64), NONE, NONE, np.empty((0, 1), np.int64))
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
        answers.add("measures", pa.concat_tables(widths))


def _pairs(c: Computation, sender: Ints, receiver: Ints) -> tuple[list[pa.Array], Ints]:
    """Each distinct pair as (computation, sender, receiver), and each edge's index into these pairs."""
    pairs, of = np.unique(sender.astype(np.int64) * c.processes + receiver, return_inverse=True)
    return [*c.names_of(pairs // c.processes), c.names_of(pairs % c.processes)[1]], of


def width_rows(computations: pa.Array, depths: Ints, per_level: Ints) -> list[pa.Table]:
    """Depth and width, from the number of events of each level of consecutive computations."""
    owner = np.repeat(np.arange(len(depths)), depths)
    level = np.arange(len(owner)) - np.repeat(np.cumsum(depths) - depths, depths)
    stretches = np.minimum(STRETCHES, depths)
    begins = np.cumsum(stretches) - stretches
    stretch = begins[owner] + level * stretches[owner] // depths[owner]
    width = np.bincount(stretch, per_level) / np.bincount(stretch)
    of = np.repeat(np.arange(len(depths)), stretches)
    return [
        measure_rows(computations, "depth", depths),
        measure_rows(computations.take(pa.array(of)), "width", width, at=np.arange(len(of)) - begins[of]),
    ]


def measure_rows(
    computation: pa.Array | str,
    name: str,
    value: Ints,
    process: pa.Array | None = None,
    other: pa.Array | None = None,
    at: Ints | None = None,
) -> pa.Table:
    size = len(value)
    return pa.table(
        [
            pa.repeat(computation, size) if isinstance(computation, str) else computation,
            pa.repeat(name, size),
            pa.nulls(size, pa.string()) if process is None else pa.array(process, pa.string()),
            pa.nulls(size, pa.string()) if other is None else pa.array(other, pa.string()),
            pa.nulls(size, pa.int32()) if at is None else pa.array(at, pa.int32()),
            pa.array(np.asarray(value, np.float64)),
        ],
        schema=MEASURES,
    )


QUESTION = Measures()
