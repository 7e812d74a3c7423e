"""How long messages are held, and how long they take from arrival to the application, as histograms.

    hold_seconds       from a message's arrival to its delivery by the ordering protocol
    delivery_seconds   from its arrival to when the application can have it: journaled, if there is a journal

One clock of this process measures both. Messages without an arrival of their own are left out: those to
oneself, unordered ones, and those that come inside others.
Bounds     ARRIVALS undelivered messages are remembered; beyond that, the oldest are not counted.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Any

from .batch import Delivery, Recorder

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
ARRIVALS = 65_536

Name = tuple[int, int]


class Histogram:
    """Counts of durations in seconds, by upper bounds; the last count is for durations above all bounds."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds


class Timing(Recorder):
    """Measures the events that an engine records, and passes them on to another recorder if there is one."""

    def __init__(self, clock: Callable[[], float], recorder: Recorder | None) -> None:
        super().__init__(recorder)
        self._clock = clock
        self._arrivals: dict[Name, float] = {}  # of messages that are not delivered yet
        self._delivered: dict[Name, float] = {}  # of those delivered, but not committed yet
        self.hold, self.delivery = Histogram(), Histogram()

    def histograms(self) -> dict[str, Histogram]:
        return {"hold_seconds": self.hold, "delivery_seconds": self.delivery}

    def committed(self, deliveries: Iterable[Delivery]) -> None:
        """These deliveries are durable: the application can have them."""
        now = self._clock()
        for each in deliveries:
            arrival = self._delivered.pop((each.sender, each.clock), None)
            if arrival is not None:
                self.delivery.observe(now - arrival)

    # Events that an engine records.

    def received(self, seq: int, time: int, message: Any, frame: bytes) -> None:
        clock = getattr(message, "clock", None)  # a protocol's own messages may have none
        if clock is not None:
            self._arrivals[message.sender, clock] = self._clock()
            if len(self._arrivals) > ARRIVALS:
                del self._arrivals[next(iter(self._arrivals))]
        super().received(seq, time, message, frame)

    def delivered(self, seq: int, time: int, sender: int, clock: int) -> None:
        arrival = self._arrivals.pop((sender, clock), None)
        if arrival is not None:
            self.hold.observe(self._clock() - arrival)
            self._delivered[sender, clock] = arrival
            if len(self._delivered) > ARRIVALS:  # some that a state contains are never handed over
                del self._delivered[next(iter(self._delivered))]
        super().delivered(seq, time, sender, clock)
