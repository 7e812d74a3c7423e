"""Immediate predecessors epoch by epoch, for the two questions that ask for them: one walk for both."""

from collections.abc import Callable, Sequence

import numpy as np

from ..linearization import Ints
from ..marks import mark_epoch, no_marks
from .question import Answers, Arrays, ColumnFold, EpochView, Fold, blocks_of

Tell = Callable[[EpochView, Ints, Ints, Ints, Answers], None]
"""Is told, of an epoch, the edges of the reduction that lead into it: (effects, by their index in the epoch,
in ascending order; the processes of their causes; the seqs of those)."""


class ReductionFold(ColumnFold):
    def __init__(self, processes: int, tell: Sequence[Tell], columns: range | None = None) -> None:
        self._processes = processes
        self._tell = list(tell)
        self._columns = range(processes) if columns is None else columns
        self._state = no_marks(processes, self._columns)

    def blocks(self) -> list[ColumnFold]:
        return [ReductionFold(self._processes, [], block) for block in blocks_of(self._processes)]

    def look(self, view: EpochView) -> Arrays:
        edges, self._state = mark_epoch(
            view.epoch, view.relevant, self._state, *view.kept, view.arranged, self._columns
        )
        return {"edges": np.stack(edges)}

    def tell(self, view: EpochView, seen: Sequence[Arrays], answers: Answers) -> None:
        edges = np.concatenate([each["edges"] for each in seen], axis=1)
        edges = edges[:, np.argsort(edges[0], kind="stable")]
        for tell in self._tell:
            tell(view, edges[0], edges[1], edges[2], answers)

    def absorb(self, other: Fold) -> bool:
        if not isinstance(other, ReductionFold):
            return False
        self._tell += other._tell
        return True
