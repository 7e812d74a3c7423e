"""The messages to one process when sends are serialized: each follows exactly one other.

`passed` walks along the links as far as they are here, so a message costs O(1) whenever it comes.

Invariant  `last` is the last link passed, and every link before it was; `_waiting` maps a link that is not
           passed to what follows it. Two followers of one link mean that sends were not serialized: the
           second is refused before it changes anything.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from ..process import refusal

Link = tuple[int, int]
"""(clock, sender) of a message: the greater, the more recent, since clocks follow Lamport's rule."""

NOTHING: Link = (0, 0)


class Linked(Protocol):
    @property
    def sender(self) -> int: ...
    @property
    def clock(self) -> int: ...


M = TypeVar("M", bound=Linked)


class Chain(Generic[M]):
    def __init__(self, n: int) -> None:
        self.last = NOTHING
        self._passed = [0] * n  # clock of the last link of each sender that was passed
        self._waiting: dict[Link, tuple[M, int]] = {}  # with the local event of its arrival

    def __iter__(self) -> Iterator[tuple[Link, M, int]]:
        """What waits: the link it follows, itself, since when."""
        return ((after, message, since) for after, (message, since) in self._waiting.items())

    def newest(self) -> Link:
        """The most recent message that waits."""
        return max((link_of(message) for message, _ in self._waiting.values()), default=NOTHING)

    def is_duplicate(self, message: M, after: Link) -> bool:
        if message.clock <= self._passed[message.sender]:
            return True
        return after in self._waiting and link_of(self._waiting[after][0]) == link_of(message)

    def check(self, message: M, after: Link) -> None:
        clock, sender = after
        if clock >= message.clock:
            raise refusal(message, f"is not later than M({sender}, {clock}), which it follows")
        is_passed = clock <= self._passed[sender] and after != self.last
        if is_passed or after in self._waiting:
            raise refusal(message, f"follows M({sender}, {clock}) here, as another does: not serialized")

    def add(self, message: M, after: Link, since: int) -> None:
        self._waiting[after] = message, since

    def passed(self) -> Iterator[M]:
        """The messages whose turn it is, in order."""
        while self.last in self._waiting:
            message, _ = self._waiting.pop(self.last)
            self.last = link_of(message)
            self._passed[message.sender] = message.clock
            yield message

    def join(self) -> None:
        self._passed.append(0)

    def state(self) -> tuple[Any, ...]:
        return self.last, tuple(self._passed), tuple(self)

    def restore(self, last: Link, passed: Iterable[int], waiting: Iterable[tuple[Link, M, int]]) -> None:
        self.last, self._passed = last, list(passed)
        self._waiting = {after: (message, since) for after, message, since in waiting}


def link_of(message: Linked) -> Link:
    return message.clock, message.sender
