"""How far a process and its peers are with each departure, and what may happen next.

A process that has left is *closed* with when nothing more comes from it: if it left by itself, once its
farewell has come, which is the last on its link; if it was expelled, once everybody present has told us
so, on links where everything that they sent before they knew comes before. Those who were expelled are closed
with together, since what is missing of one may be followed by what is held of another.

Then it goes through stages, each of which everybody tells everybody:
    1  we have closed with it, and hold nothing of it
    2  everybody has told us 1: our machine has forgotten it, and names it no more
    3  everybody has told us 2: nothing on its way to us names it
and once everybody has told us 3, its index may be given to somebody else. Who joined after the others had
told 3 has not been waited for by them: what it says of that index, until it says that it was given again, is
about whoever had it before (`unaware` of member_changes.py).

A process that has left still passes on what it hears, until it has everybody's farewell. It hears nothing of
those who join once everybody has closed with it: what it says of an index that was given again since then is
about whoever had that index before.
"""

from collections.abc import Iterable
from typing import Any

FREE = 4


class Departure:
    """The departure of one process, as one other sees it."""

    __slots__ = ("closed", "expelled", "given_again", "heard", "parted", "said", "stage")

    def __init__(self) -> None:
        self.expelled = False
        self.closed = False
        self.parted = False  # whether we have said farewell to it
        self.heard: set[int] = set()  # who has told us of it
        self.stage = 0
        self.said: dict[int, int] = {}  # per process the stage that it has told us
        self.given_again: set[int] = set()  # the indices of others that were given again since

    def advances(self, present: Iterable[int]) -> bool:
        """Whether everybody is where we are, so that we can take the next step."""
        return 0 < self.stage < FREE and all(self.said.get(link, 0) >= self.stage for link in present)

    def is_free(self, present: Iterable[int]) -> bool:
        return self.stage == FREE and all(self.said.get(link, 0) >= FREE - 1 for link in present)

    def state(self) -> list[Any]:
        flags = [self.expelled, self.closed, self.parted]
        said, given_again = sorted(self.said.items()), sorted(self.given_again)
        return [*flags, sorted(self.heard), self.stage, said, given_again]

    @classmethod
    def from_state(cls, state: list[Any]) -> "Departure":
        *flags, heard, stage, said, given_again = state
        departure = cls()
        departure.expelled, departure.closed, departure.parted = flags
        departure.stage = stage
        departure.heard, departure.said, departure.given_again = set(heard), dict(said), set(given_again)
        return departure


class Departures(dict[int, Departure]):
    """By the index of the process that has gone."""

    def under_way(self) -> list[int]:
        return [index for index, departure in sorted(self.items()) if departure.stage < FREE]

    def to_close(self, awaited: set[int], present: Iterable[int]) -> list[int]:
        waiting = [index for index in sorted(self) if not self[index].closed and index not in awaited]
        expelled = [index for index in waiting if self[index].expelled]
        complete = not awaited and all(self[index].heard.issuperset(present) for index in expelled)
        return [index for index in waiting if complete or index not in expelled]

    def give_again(self, index: int) -> None:
        """Forget whoever had this index: as a process that has gone, and as one that told us of others."""
        del self[index]
        for departure in self.values():
            departure.heard.discard(index)
            departure.said.pop(index, None)
            departure.given_again.add(index)

    def means_somebody_else(self, link: int, index: int) -> bool:
        """Whether this process, if it has gone, speaks of whoever had an index before it was given again."""
        return link in self and index in self[link].given_again

    def free(self, present: Iterable[int]) -> int | None:
        """An index that may be given again: whoever has joined meanwhile has come as far too, and everybody
        has closed with those who left meanwhile, so that nothing of theirs on its way names it."""
        if any(departure.stage < 2 for departure in self.values()):
            return None
        members = list(present)
        return min((index for index, each in self.items() if each.is_free(members)), default=None)
