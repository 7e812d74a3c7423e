"""Vector clocks as immutable values, and their comparison."""

from collections.abc import Iterator, Mapping
from enum import Enum


class Causality(Enum):
    """The relation of two events under happened-before."""

    BEFORE = "before"
    AFTER = "after"
    EQUAL = "equal"
    CONCURRENT = "concurrent"


class VectorClock(Mapping[int, int]):
    """Maps processes to counts; absent means zero and zeros are never stored, so equal clocks hash equal."""

    __slots__ = ("_counts",)

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        items = counts.items() if counts else ()
        if any(count < 0 for _, count in items):
            raise ValueError(f"a vector clock counts events; {dict(counts or {})} has a negative entry")
        self._counts: dict[int, int] = {p: c for p, c in items if c}

    def __getitem__(self, process: int) -> int:
        return self._counts.get(process, 0)

    def __iter__(self) -> Iterator[int]:
        return iter(self._counts)

    def __len__(self) -> int:
        return len(self._counts)

    def __contains__(self, process: object) -> bool:
        return process in self._counts

    def __eq__(self, other: object) -> bool:
        return self._counts == other._counts if isinstance(other, VectorClock) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self._counts.items()))

    def __repr__(self) -> str:
        return f"VectorClock({dict(sorted(self._counts.items()))})"

    def tick(self, process: int) -> "VectorClock":
        return VectorClock({**self._counts, process: self[process] + 1})

    def join(self, other: "VectorClock") -> "VectorClock":
        """The least clock that is at least each of the two clocks in every component."""
        return VectorClock({p: max(self[p], other[p]) for p in self._counts.keys() | other._counts.keys()})

    def covers(self, other: "VectorClock") -> bool:
        return all(self[p] >= count for p, count in other._counts.items())

    def compare(self, other: "VectorClock") -> Causality:
        before, after = other.covers(self), self.covers(other)
        if before and after:
            return Causality.EQUAL
        if before:
            return Causality.BEFORE
        return Causality.AFTER if after else Causality.CONCURRENT
