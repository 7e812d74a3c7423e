"""Witnesses of violations in large computations: causal paths, and disagreements about total order.

In    stamped Layouts: the edges of each epoch and the frontier that enters it
Out   events from one to a later one, each after the one before it on the same process or told by it; how many
      violations of total order there are, and the legs of some: a process and two of its deliveries each
Cost  of a path: for each process on it, log(epochs) frontiers are read and one epoch is stamped again. For a
      wide layout, one task first writes frontiers with the requested columns only. Of total order:
      deliveries x processes, spread over tasks that each hold the deliveries of messages with several
      destinations as 16 bytes; then one such task that looks for cycles of more than two processes, linear
      in those deliveries (see causality.total_order)

A path is found as in causality.reach.causal_path: the earliest event of a process that knows of the first
one learnt of it from elsewhere. Its epoch is found among the frontiers, the event itself within the epoch.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from ...causality.epochs import Frontier, Stamped, event_keys, stamp, stamp_epoch
from ...causality.linearization import Ints
from ...causality.questions.order import TOTAL_WITNESSES
from ...causality.total_order import Sequences
from ...trace.store import AnyPath
from ..storage import read_arrays, write_arrays
from ..tasks import Runner, on_each, on_tasks
from .consistent_cuts import epoch_of
from .epoch_layout import FRONTIER, Layout, load, save
from .stamping import EpochDone

PATHS_PER_TASK = 25
MOST_TASKS = 16

Step = tuple[int, int]
"""A process and a seq."""


def causal_paths(spark: Runner, wanted: Sequence[tuple[Layout, tuple[int, ...]]]) -> list[list[Step]]:
    """A causal path for each, from a process and seq to another that happened after, in some layout."""
    each = max(PATHS_PER_TASK, -(-len(wanted) // MOST_TASKS))  # neighbours: they are in the same epochs
    tasks = -(-len(wanted) // each)
    wide = {layout.store: layout for layout, _ in wanted if layout.wide}
    columns = {
        store: sorted({first for layout, (first, *_) in wanted if layout.store == store}) for store in wide
    }
    on_each(spark, [(layout, columns[store]) for store, layout in wide.items()], _leave_frontiers)

    def walk(number: int) -> list[list[Step]]:
        found, walkers = [], dict[AnyPath, Walker]()
        for layout, (p, seq, q, last) in wanted[number * each : (number + 1) * each]:
            of = columns.get(layout.store, range(len(layout.names)))
            walker = walkers.setdefault(layout.store, Walker(layout, of))
            found.append(walker.path((p, seq), (q, last)))
        return found

    return [path for paths in on_tasks(spark, tasks, walk) for path in paths]


def _leave_frontiers(layout: Layout, columns: Sequence[int]) -> None:
    """Write the frontiers of a wide layout, with the vectors' entries of these processes."""
    n = len(layout.names)
    frontier = Frontier.beginning(n, len(columns) + 1)
    for k in range(layout.epochs):
        save(layout.path(FRONTIER, k), frontier)
        share = layout.share(k)
        epoch, _ = layout.epoch(k, share["edges"])
        kept = share["kept"]
        _, frontier = stamp(epoch, frontier, kept[:, 0], kept[:, 1], layout.arranged(k), columns)


class Walker:
    """columns   the processes whose entries the vectors in frontiers have"""

    def __init__(self, layout: Layout, columns: Sequence[int]) -> None:
        self._layout = layout
        self._columns = columns
        self._frontier = lru_cache(8)(lambda k: load(layout.path(FRONTIER, k)))
        self._epoch = lru_cache(2)(self._stamp)

    def path(self, first: Step, last: Step) -> list[Step]:
        path = [last]
        while path[-1][0] != first[0]:
            learnt, informant = self._learnt(path[-1], first)
            if learnt != path[-1]:
                path.append(learnt)
            path.append(informant)
        if path[-1] != first:
            path.append(first)
        return path[::-1]

    def _learnt(self, by: Step, of: Step) -> tuple[Step, Step]:
        """The first event of `by`'s process with `of` in its past, and the event that passed it on."""
        process, column = by[0], self._columns.index(of[0])
        low, high = 0, int(epoch_of(self._layout.cuts, np.array([process]), np.array([by[1]]))[0])
        while low < high:
            middle = (low + high) // 2
            if self._knows(middle + 1, process, of):
                high = middle
            else:
                low = middle + 1
        frontier, stamped = self._epoch(low)
        mine = np.flatnonzero(stamped.epoch.process == process)
        known = stamped.vectors[stamped.arranged.row_of[mine], column]
        e = int(mine[np.searchsorted(known, of[1])])
        epoch = stamped.epoch
        edges = slice(epoch.edge_offsets[e], epoch.edge_offsets[e + 1])
        sources, seqs = epoch.edge_process[edges], epoch.edge_seq[edges]
        rows = stamped.rows(frontier, sources, seqs)
        k = int(np.argmax(stamped.vectors[rows, column] >= of[1]))
        return (process, int(epoch.seq[e])), (int(sources[k]), int(seqs[k]))

    def _knows(self, epoch: int, process: int, of: Step) -> bool:
        """Whether the process's last event before this epoch has `of` in its past."""
        frontier = self._frontier(epoch)
        if not frontier.last[process]:
            return False
        (row,) = frontier.rows(np.array([process]), frontier.last[[process]])
        return bool(frontier.vectors[row, self._columns.index(of[0])] >= of[1])

    def _stamp(self, k: int) -> tuple[Frontier, Stamped]:
        frontier = self._frontier(k)
        epoch, _ = self._layout.epoch(k, self._layout.share(k)["edges"])
        return frontier, stamp_epoch(epoch, frontier, self._layout.arranged(k), self._columns)


Leg = tuple[Step, Step]
"""Two deliveries of one process, in their order."""

EVENTS_PER_TASK = 100_000


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
