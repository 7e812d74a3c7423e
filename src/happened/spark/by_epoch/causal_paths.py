"""The causal path between two events of one large computation, across its epochs.

In    a stamped Layout: the edges of each epoch and the frontier that enters it
Out   events from the first to the last, each after the one before it on the same process or told by it
Cost  per process on the path: log(epochs) frontiers read, and one epoch stamped again. Of a wide layout,
      first one task that leaves frontiers with those columns that are asked for

As causality.witness.causal_path: the earliest event of a process that knows of the first one learnt of it
from elsewhere. Its epoch is found among the frontiers, the event itself within the epoch.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from ...causality.epochs import Frontier, Stamped, stamp, stamp_epoch
from ...trace.store import AnyPath
from ..tasks import Runner, on_each, on_tasks
from .consistent_cuts import epoch_of
from .epoch_layout import FRONTIER, Layout, load, save

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
        """The earliest event of `by`'s process that knows of `of`, and the event that told it."""
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
