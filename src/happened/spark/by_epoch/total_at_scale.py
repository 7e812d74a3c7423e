"""Total order of one large computation: whether one order of messages fits the deliveries of all processes.

In    a Layout whose epochs are stamped
Out   how many violations there are, and the legs of some of them: a process and two of its deliveries each
Cost  deliveries x processes, spread over tasks that each hold the deliveries of messages with several
      destinations as 16 bytes; then one such task that looks for cycles of more than two processes, linear in
      those deliveries (see causality.total_order)
"""

from collections.abc import Sequence

import numpy as np

from ...causality.epochs import event_keys
from ...causality.linearization import Ints
from ...causality.questions.order import TOTAL_WITNESSES
from ...causality.total_order import Sequences
from ...trace.store import AnyPath
from ..storage import read_arrays, write_arrays
from ..tasks import Runner, on_each
from .causal_paths import Step
from .epoch_layout import Layout
from .stamping import EpochDone

Leg = tuple[Step, Step]
"""Two deliveries of one process, in their order."""

EVENTS_PER_TASK = 100_000
MOST_TASKS = 16


def keep_casts(of: EpochDone) -> None:
    """Keep the deliveries of those messages sent in an epoch that reached several destinations."""
    if not of.layout.casts:
        return
    slots, start = of.share["slots"], of.layout.starts(of.view.number)
    here = slots[slots[:, 1] > start[slots[:, 0]]]
    keys = event_keys(here[:, 0], here[:, 1])
    _, message, reached = np.unique(keys, return_inverse=True, return_counts=True)
    write_arrays(of.layout.path("casts", of.view.number), casts=here[reached[message] > 1])


def count_disagreements(
    spark: Runner, layouts: Sequence[Layout]
) -> tuple[int, list[tuple[int, list[list[Leg]]]]]:
    """How many violations of total order there are, and some of each layout, by its place: every leg ends
    with the message the next begins with, and the last with the first one's."""
    some = [(i, layout) for i, layout in enumerate(layouts) if layout.casts]
    shares = {i: min(len(layout.names), _tasks(layout)) for i, layout in some}
    jobs = [(i, layout, number) for i, layout in some for number in range(shares[i])]
    found = on_each(spark, [(layout, number, shares[i]) for i, layout, number in jobs], _compare)
    cycles = on_each(spark, [(layout, shares[i]) for i, layout in some], _cycles)
    told: dict[int, list[list[Leg]]] = {i: [] for i, _ in some}
    for (i, _, _), (_, legs) in zip(jobs, found, strict=True):
        told[i] += legs
    for (i, _), legs in zip(some, cycles, strict=True):
        told[i] += legs
    count = sum(count for count, _ in found) + sum(map(len, cycles))
    return count, [(i, legs[:TOTAL_WITNESSES]) for i, legs in told.items() if legs]


def _tasks(layout: Layout) -> int:
    return min(MOST_TASKS, 1 + int(layout.counts.sum()) // EVENTS_PER_TASK)


class _Casts:
    """The deliveries of messages that reached several destinations, by process and seq."""

    def __init__(self, layout: Layout) -> None:
        parts = [read_arrays(layout.path("casts", k))["casts"] for k in range(layout.epochs)]
        columns: Ints = np.concatenate([np.empty((0, 4), np.int64), *parts]).T
        order = np.lexsort((columns[3], columns[2]))
        source, source_seq, self.target, self.target_seq = columns[:, order]
        keys, message = np.unique(event_keys(source, source_seq), return_inverse=True)
        ends = np.cumsum(np.bincount(self.target, minlength=len(layout.names)))
        self.sequences = Sequences(message.astype(np.int64), ends, keys.size)

    def place(self, message: int, process: int) -> int:
        """Where a process delivered a message."""
        ends = self.sequences.dest_ends
        start = int(ends[process - 1]) if process else 0
        return start + int(np.argmax(self.sequences.message[start : ends[process]] == message))

    def legs(self, places: list[tuple[int, int]]) -> list[Leg]:
        return [(self._step(first), self._step(second)) for first, second in places]

    def _step(self, place: int) -> Step:
        return int(self.target[place]), int(self.target_seq[place])


def _compare(layout: Layout, number: int, tasks: int) -> tuple[int, list[list[Leg]]]:
    """Disagreements of some processes with those before them; the messages they are about go to a file."""
    casts, n = _Casts(layout), len(layout.names)
    of = casts.sequences
    everyone = np.zeros(n, np.int64)
    count, pairs, marked = of.disagreements(
        everyone, np.arange(number, n, tasks), TOTAL_WITNESSES // tasks + 1
    )
    write_arrays(_marked(layout, number), marked=np.flatnonzero(marked))
    told = []
    for first, second, other in pairs.tolist():
        there = casts.place(of.message[second], other), casts.place(of.message[first], other)
        told.append(casts.legs([(first, second), there]))
    return count, told


def _cycles(layout: Layout, tasks: int) -> list[list[Leg]]:
    casts = _Casts(layout)
    marked = np.zeros(casts.sequences.messages, bool)
    for number in range(tasks):
        marked[read_arrays(_marked(layout, number))["marked"]] = True
    return [casts.legs(cycle) for cycle in casts.sequences.cycles(marked)]


def _marked(layout: Layout, number: int) -> AnyPath:
    return layout.store / f"disagreeing-{number:04d}.npz"
