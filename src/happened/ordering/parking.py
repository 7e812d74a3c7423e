"""Messages that arrived too early, each parked under one thing it lacks (watch-one).

What a message waits for is a set of *wants* (lane, level): a lane is a counter of the machine that only
grows, usually the clock of the last message delivered of one sender. A held message is parked under a
single unmet want; when that lane gets there it is looked at again, and parks under the next one or is
ready. So a delivery costs what it wakes, whatever else is held.

Invariant  a message is parked under the first want it lacks, in the order `lacks` looks at them. Wants
           are met for good, so this place depends on the state alone: a restored machine releases in the
           same order as the one that made the snapshot.
"""

from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from .machine import Held

Want = tuple[int, int]
"""(lane, level): met once that lane has reached the level."""


class Named(Protocol):
    @property
    def sender(self) -> int: ...
    @property
    def clock(self) -> int: ...


M = TypeVar("M", bound=Named)


class _Parked(NamedTuple, Generic[M]):
    message: M
    since: int


class Parking(Generic[M]):
    """`lacks` tells the first unmet want of a message, None if it can be delivered."""

    def __init__(self, lacks: Callable[[M], Want | None]) -> None:
        self._lacks = lacks
        self._held: dict[tuple[int, int], _Parked[M]] = {}
        self._lanes: dict[int, list[tuple[int, tuple[int, int]]]] = {}  # heaps of (level, message)
        self._woken: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, message: M) -> bool:
        return (message.sender, message.clock) in self._held

    def admit(self, message: M, since: int) -> Iterator[M]:
        """Everything that can be delivered now that `message` is here, in order.

        The caller delivers each before it takes the next, and says what that `reached`.
        """
        want = self._lacks(message)
        if want is not None:
            self._held[message.sender, message.clock] = _Parked(message, since)
            self._park(message, want)
            return
        yield message
        yield from self._ready()

    def reached(self, lane: int, level: int) -> None:
        heap = self._lanes.get(lane)
        if heap is None:
            return
        while heap and heap[0][0] <= level:
            self._woken.append(heappop(heap)[1])
        if not heap:
            del self._lanes[lane]

    @property
    def watched(self) -> list[int]:
        """The lanes something is parked under."""
        return list(self._lanes)

    def pending(self, waits_for: Callable[[M], Iterable[tuple[int, int]]]) -> list[Held]:
        return [Held(message, tuple(waits_for(message)), since) for message, since in self._held.values()]

    def state(self) -> tuple[Any, ...]:
        """What is held, in order of arrival."""
        return tuple((*message, since) for message, since in self._held.values())  # type: ignore[misc]

    def refill(self, held: Iterable[tuple[M, int]]) -> None:
        """Hold exactly these (message, since) again."""
        self._held = {(message.sender, message.clock): _Parked(message, since) for message, since in held}
        self._lanes, self._woken = {}, []
        for key, (message, _) in self._held.items():
            want = self._lacks(message)
            if want is not None:
                self._park(message, want)
            else:  # no machine holds what lacks nothing; should a snapshot claim so, it goes with the next
                self._woken.append(key)

    def replace(self, change: Callable[[M], M]) -> None:
        """Hold each message in another form; what it waits for is the same."""
        self._held = {key: _Parked(change(message), since) for key, (message, since) in self._held.items()}

    def _park(self, message: M, want: Want) -> None:
        lane, level = want
        heappush(self._lanes.setdefault(lane, []), (level, (message.sender, message.clock)))

    def _ready(self) -> Iterator[M]:
        while self._woken:
            woken, self._woken = self._woken, []
            for key in woken:
                message = self._held[key].message
                want = self._lacks(message)
                if want is not None:
                    self._park(message, want)
                else:
                    del self._held[key]
                    yield message
