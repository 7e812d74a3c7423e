"""Immediate predecessors epoch by epoch, for the two questions that ask for them: one walk for both."""

from collections.abc import Callable, Sequence

from ..linearization import Ints
from ..marks import mark_epoch, no_marks
from .question import Answers, EpochView, Fold

Tell = Callable[[EpochView, Ints, Ints, Ints, Answers], None]
"""Is told, of an epoch, the edges of the reduction that lead into it: (effects, by their index in the epoch;
the processes of their causes; the seqs of those)."""


class ReductionFold(Fold):
    def __init__(self, processes: int, tell: Sequence[Tell]) -> None:
        self._tell = list(tell)
        self._state = no_marks(processes)

    def step(self, view: EpochView, answers: Answers) -> None:
        edges, self._state = mark_epoch(view.epoch, view.relevant, self._state, *view.kept)
        for tell in self._tell:
            tell(view, *edges, answers)

    def absorb(self, other: Fold) -> bool:
        if not isinstance(other, ReductionFold):
            return False
        self._tell += other._tell
        return True
