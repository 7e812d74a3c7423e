"""For each process a vector of clocks over senders: a column of the matrix that some protocols keep.

Lane s of column d names M(s, clock), sent to d; zero where there is none. By causal order the newest of a
sender stands for all its earlier ones, so a column never needs two lanes of one sender.
"""

from typing import Any, ClassVar, TypeVar

from ...core.lanes import lanes
from ..machine import Unit
from ..process import State
from .lane_process import LaneProcess

Columns = tuple[int, ...]

M = TypeVar("M", bound=Any)


def units_of(columns: Columns) -> frozenset[Unit]:
    vector = lanes(len(columns))
    return frozenset((s, t, d) for d, column in enumerate(columns) for s, t in vector.items(column))


def named(columns: Columns) -> int:
    """How many messages they name, once per destination."""
    vector = lanes(len(columns))
    return sum(map(vector.occupied, columns))


def known_to(columns: Columns, n: int) -> Columns:
    """The same columns as a system of n processes sees them."""
    vector = lanes(len(columns))
    return tuple(vector.widened(column, n) for column in columns) + (0,) * (n - len(columns))


class ColumnProcess(LaneProcess[M]):
    """A process that keeps such columns, one for each process, under a name of its own in snapshots."""

    columns_name: ClassVar[str]

    def __init__(self, me: int, n: int) -> None:
        super().__init__(me, n)
        self._columns: list[int] = [0] * n

    def grow(self) -> None:
        self._columns = list(known_to(tuple(self._columns), self.n))

    def save(self) -> State:
        return super().save() | {self.columns_name: tuple(self._columns)}

    def load(self, state: State) -> None:
        columns = list(state[self.columns_name])
        super().load(state)
        self._columns = columns
