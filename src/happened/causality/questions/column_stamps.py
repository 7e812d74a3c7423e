"""Epochs of computations of very many processes, stamped by blocks of columns for the questions that look at
stamped epochs."""

from collections.abc import Sequence

from ..epochs import Frontier, stamp
from .question import Answers, Arrays, ColumnFold, EpochView, Question, blocks_of


class ColumnStamps(ColumnFold):
    """A walk that stamps some columns, or all, and shows them to questions."""

    def __init__(self, processes: int, questions: Sequence[Question], columns: range | None = None) -> None:
        self._processes = processes
        self._questions = questions
        self._columns = range(processes) if columns is None else columns
        self._frontier = Frontier.beginning(processes, len(self._columns) + 1)

    def blocks(self) -> list[ColumnFold]:
        n = self._processes
        return [ColumnStamps(n, self._questions, block) for block in blocks_of(n)]

    def look(self, view: EpochView) -> Arrays:
        before = self._frontier
        stamped, self._frontier = stamp(view.epoch, before, *view.kept, view.arranged, self._columns)
        return {
            f"{number}:{name}": array
            for number, question in enumerate(self._questions)
            for name, array in question.look(view, stamped, before).items()
        }

    def tell(self, view: EpochView, seen: Sequence[Arrays], answers: Answers) -> None:
        for number, question in enumerate(self._questions):
            mine = f"{number}:"
            question.tell(
                view,
                [{name[len(mine) :]: of[name] for name in of if name.startswith(mine)} for of in seen],
                answers,
            )
