"""Messages that arrived too early, each parked under one thing it lacks (watch-one).

What a message waits for is a set of *wants* (lane, level): a lane is a counter of the machine that only
grows, usually the clock of the last message delivered of one sender. A held message is parked under a
single unmet want; when that lane gets there it is looked at again, and parks under the next one or is
ready. So a delivery costs what it wakes, whatever else is held.

Invariant  a message is parked under the first want it lacks, in the order the machine looks at them. Wants
           are met for good, so this place depends on the state alone: a restored machine releases in the
           same order as the one that made the snapshot.
"""

from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import Generic, NamedTuple, Protocol, TypeVar

from .machine import MessageKey

Want = tuple[int, int]
"""(lane, level): met once that lane has reached the level."""


class Named(Protocol):
    @property
    def sender(self) -> int: ...
    @property
    def clock(self) -> int: ...


M = TypeVar("M", bound=Named)


class Delayed(NamedTuple, Generic[M]):
    message: M
    since: int


class DelayQueue(Generic[M]):
    """Iterating gives what is held, in order of arrival."""

    __slots__ = ("_lanes", "_woken", "held")

    def __init__(self) -> None:
        self.held: dict[MessageKey, Delayed[M]] = {}
        self._lanes: dict[int, list[tuple[int, MessageKey]]] = {}  # heaps of (level, message)
        self._woken: list[MessageKey] = []

    def __len__(self) -> int:
        return len(self.held)

    def __iter__(self) -> Iterator[Delayed[M]]:
        return iter(self.held.values())

    def __contains__(self, message: M) -> bool:
        return (message.sender, message.clock) in self.held

    def __getitem__(self, key: MessageKey) -> M:
        return self.held[key].message

    def __delitem__(self, key: MessageKey) -> None:
        del self.held[key]

    def hold(self, message: M, want: Want, since: int) -> None:
        lane, level = want
        key = (message.sender, message.clock)
        self.held[key] = Delayed(message, since)
        heappush(self._lanes.setdefault(lane, []), (level, key))

    def park(self, key: MessageKey, want: Want) -> None:
        lane, level = want
        heappush(self._lanes.setdefault(lane, []), (level, key))

    def reached(self, lane: int, level: int) -> bool:
        """Wake what waits for this lane to get there; says whether that is anything."""
        heap = self._lanes.get(lane)
        if heap is None or heap[0][0] > level:
            return False
        while heap and heap[0][0] <= level:
            self._woken.append(heappop(heap)[1])
        if not heap:
            del self._lanes[lane]
        return True

    def lowest(self, lanes: Iterable[int]) -> int | None:
        """The lowest level of these lanes that something is parked under."""
        return min((self._lanes[lane][0][0] for lane in lanes if lane in self._lanes), default=None)

    def woken(self) -> Iterator[MessageKey]:
        """What has been woken, and what is woken while the caller deals with it.

        The caller removes what it delivers and parks the rest again.
        """
        while self._woken:
            woken, self._woken = self._woken, []
            yield from woken

    @property
    def watched(self) -> list[int]:
        """The lanes something is parked under."""
        return list(self._lanes)

    def refill(self, held: Iterable[tuple[M, int]], lacks: Callable[[M], Want | None]) -> None:
        """Hold exactly these (message, since)."""
        parked = {(message.sender, message.clock): Delayed(message, since) for message, since in held}
        wants = {key: lacks(message) for key, (message, _) in parked.items()}
        self.held, self._lanes, self._woken = parked, {}, []
        for key, want in wants.items():
            if want is not None:
                self.park(key, want)
            else:  # no machine holds what lacks nothing; should a snapshot claim so, it goes with the next
                self._woken.append(key)

    def replace(self, change: Callable[[M], M]) -> None:
        """Hold each message in another form; what it waits for is the same."""
        self.held = {key: Delayed(change(message), since) for key, (message, since) in self.held.items()}
