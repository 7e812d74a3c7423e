"""Which messages are held at one destination, by id or by sender and clock.

Both kinds answer the same:

    has(want)            whether a message is here that a cause stands for
    causes(name, wants)  the names of messages that are here and come before this one: enough of them, since
                         others come before these
    leave(name)          it is delivered or dead
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Protocol


class HeldIndex(Protocol):
    def has(self, want: Any) -> bool: ...
    def causes(self, name: Any, wants: Iterable[Any]) -> list[Any]: ...
    def leave(self, name: Any) -> None: ...


class HeldIds:
    def __init__(self, names: Iterable[str]) -> None:
        self._names = set(names)

    def has(self, want: str) -> bool:
        return want in self._names

    def causes(self, name: str, wants: Iterable[str]) -> list[str]:
        return [want for want in wants if want in self._names]

    def leave(self, name: str) -> None:
        self._names.discard(name)


class HeldClocks:
    """A cause stands for all messages of its sender up to its clock. `causes` is asked before any leaves."""

    def __init__(self, names: Iterable[tuple[int, int]]) -> None:
        # Clocks are negated, so that the first one is at the end.
        self._lanes: dict[int, list[int]] = defaultdict(list)
        for sender, clock in names:
            self._lanes[sender].append(-clock)
        for lane in self._lanes.values():
            lane.sort()
        self._gone: set[tuple[int, int]] = set()

    def has(self, want: tuple[int, int]) -> bool:
        sender, clock = want
        lane = self._lanes.get(sender, [])
        while lane and (sender, -lane[-1]) in self._gone:
            lane.pop()
        return bool(lane) and -lane[-1] <= clock

    def causes(self, name: tuple[int, int], wants: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        sender, clock = name
        found = []
        for lane, latest in (*wants, (sender, clock - 1)):
            clocks = self._lanes.get(lane, ())
            at = bisect_left(clocks, -latest)
            if at < len(clocks):
                found.append((lane, -clocks[at]))
        return found

    def leave(self, name: tuple[int, int]) -> None:
        self._gone.add(name)
