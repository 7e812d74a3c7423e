"""What a tracker remembers and what a message carries, as Hélary, Melideo & Raynal (2000) write them: values
for stories (`happened play --tracker`)."""

from typing import NamedTuple


class View(NamedTuple):
    title: str  # "VC", or "DV" where it is a dependency vector
    counts: tuple[int, ...]
    immediate: tuple[int, ...] | None = None  # IP, where immediate predecessors are tracked
    knows: tuple[tuple[int, ...], ...] | None = None  # the rows of M, where there is one
    on_its_way: tuple[tuple[int, ...], ...] | None = None  # the same of what was sent, on FIFO links

    def entry(self, k: int) -> tuple[int, int | None]:
        """VC[k] and, where it is kept, IP[k]."""
        return self.counts[k], self.immediate[k] if self.immediate is not None else None

    def lines(self) -> list[tuple[str, str]]:
        told = [(self.title, row(self.counts))]
        if self.immediate is not None:
            told.append(("IP", row(self.immediate)))
        if self.knows is not None:
            told.append(("M", " ".join(map(row, self.knows))))
        if self.on_its_way is not None:
            told.append(("sent", " ".join(map(row, self.on_its_way))))
        return told


class PiggybackEntry(NamedTuple):
    """One entry of a message."""

    process: int
    value: int  # VC[process]
    immediate: int | None = None
    column: tuple[int, ...] | None = None  # of M, in the primed protocols

    def __str__(self) -> str:
        told = [str(self.process), str(self.value)]
        told += [] if self.immediate is None else [str(self.immediate)]
        told += [] if self.column is None else [row(self.column)]
        return f"({','.join(told)})"

    @property
    def entry(self) -> tuple[int, int | None]:
        return self.value, self.immediate


def row(numbers: tuple[int, ...]) -> str:
    return f"[{' '.join(map(str, numbers))}]"
