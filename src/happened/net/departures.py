"""How far a process and its peers are with each departure, and what may happen next.

A process that has left is *closed* with when nothing more comes from it: if it left by itself, once its
farewell has come, which is the last on its link; if it was expelled, once everybody present has told us
so, on links where everything that they sent before they knew comes before. Those who were expelled are closed
with together, since what is missing of one may be followed by what is held of another.

Then it goes through stages, each of which everybody tells everybody:
    1  we have closed with it, and hold nothing of it
    2  everybody has told us 1: our machine has forgotten it, and names it no more
    3  everybody has told us 2: nothing on its way to us names it
and once everybody has told us 3, its index may be given to somebody else.
"""

from collections.abc import Iterable
from typing import Any

FREE = 4


class Departure:
    """The departure of one process, as one other sees it."""

    __slots__ = ("closed", "expelled", "heard", "parted", "said", "stage")

    def __init__(self) -> None:
        self.expelled = False
        self.closed = False
        self.parted = False  # whether we have said farewell to it
        self.heard: set[int] = set()  # who has told us of it
        self.stage = 0
        self.said: dict[int, int] = {}  # per process the stage that it has told us

    def advances(self, present: Iterable[int]) -> bool:
        """Whether everybody is where we are, so that we can take the next step."""
        return 0 < self.stage < FREE and all(self.said.get(link, 0) >= self.stage for link in present)

    def is_free(self, present: Iterable[int]) -> bool:
        return self.stage == FREE and all(self.said.get(link, 0) >= FREE - 1 for link in present)

    def state(self) -> list[Any]:
        flags = [self.expelled, self.closed, self.parted]
        return [*flags, sorted(self.heard), self.stage, sorted(self.said.items())]

    @classmethod
    def from_state(cls, state: list[Any]) -> "Departure":
        departure = cls()
        departure.expelled, departure.closed, departure.parted, heard, departure.stage, said = state
        departure.heard, departure.said = set(heard), dict(said)
        return departure


class Departures(dict[int, Departure]):
    """By the index of the process that has gone."""

    def under_way(self) -> list[int]:
        return [index for index, departure in sorted(self.items()) if departure.stage < FREE]

    def to_close(self, awaited: set[int], present: Iterable[int]) -> list[int]:
        """Whom to close with now."""
        waiting = [index for index in sorted(self) if not self[index].closed and index not in awaited]
        expelled = [index for index in waiting if self[index].expelled]
        everybody = set(present)
        complete = not awaited and all(everybody <= self[index].heard for index in expelled)
        return [index for index in waiting if complete or not self[index].expelled]

    def free(self, present: Iterable[int]) -> int | None:
        """An index that may be given again: whoever has joined meanwhile has come as far too."""
        members = list(present)
        return min((index for index, each in self.items() if each.is_free(members)), default=None)
