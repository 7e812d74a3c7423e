"""The stages of each departed process, here and at its peers, and when the next stage may begin.

A process is *closed* with when nothing more comes from it. If it left by itself, that is once its farewell,
the last frame on its link, has come. If it was expelled, that is once every present process has told us of
the expulsion: links are in order, so whatever a process sent before it knew has come before. All expelled
processes are closed with together, since a message held from one may follow a missing message of another.

Then the departed process goes through stages, and every process tells all others each stage that it reaches:
    1  we have closed with it, and hold no message of it
    2  everybody has told us 1: our machine has forgotten it, and no longer names it
    3  everybody has told us 2: nothing on its way to us names it
Once everybody has told us 3, its index may be given to another process. If a process joined after the others
had told 3, they did not wait for it: what it says of that index, until it says that the index was given
again, is about the earlier owner (`unaware` of member_changes.py).

A process that has left still passes on what it hears, until it has everybody's farewell. It hears nothing of
processes that join once everybody has closed with it: what it says of an index that was given again since
then is about the index's earlier owner.
"""

from collections.abc import Iterable
from typing import Any

FREE = 4


class Departure:
    """The departure of one process, as seen by another."""

    __slots__ = ("closed", "expelled", "given_again", "heard", "parted", "said", "stage")

    def __init__(self) -> None:
        self.expelled = False
        self.closed = False
        self.parted = False  # whether we have said farewell to it
        self.heard: set[int] = set()  # processes that have told us of it
        self.stage = 0
        self.said: dict[int, int] = {}  # by process, the stage that it has told us
        self.given_again: set[int] = set()  # the indices of others that were given again since it left

    def advances(self, present: Iterable[int]) -> bool:
        """Whether every present process has reached our stage, so that we can take the next step."""
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
    """The departures, by the index of the departed process."""

    def under_way(self) -> list[int]:
        return [index for index, departure in sorted(self.items()) if departure.stage < FREE]

    def to_close(self, awaited: set[int], present: Iterable[int]) -> list[int]:
        waiting = [index for index in sorted(self) if not self[index].closed and index not in awaited]
        expelled = [index for index in waiting if self[index].expelled]
        complete = not awaited and all(self[index].heard.issuperset(present) for index in expelled)
        return [index for index in waiting if complete or index not in expelled]

    def give_again(self, index: int) -> None:
        """Forget the earlier owner of this index, as a departed process and as one that told us of others."""
        del self[index]
        for departure in self.values():
            departure.heard.discard(index)
            departure.said.pop(index, None)
            departure.given_again.add(index)

    def means_somebody_else(self, link: int, index: int) -> bool:
        """Whether a departed process that names this index means its earlier owner."""
        return link in self and index in self[link].given_again

    def free(self, present: Iterable[int]) -> int | None:
        """An index that may be given again: those who joined meanwhile have reached the same stage, and
        everybody has closed with those who left meanwhile, so that no frame of theirs on its way names it."""
        if any(departure.stage < 2 for departure in self.values()):
            return None
        members = list(present)
        return min((index for index, each in self.items() if each.is_free(members)), default=None)
