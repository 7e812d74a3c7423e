"""Trackers whose piggybacks travel with the messages of a simulated run, and the account of their cost.

The tracker makes a message's piggyback when the application sends the message and takes it in when the
application gets the message. So it sees the happened-before of sends and *deliveries*, whatever an ordering
protocol does in between. A relevant event follows each send and delivery with a given probability.

Counted    per transmission: entries; bits as encoded; bits in a model of plain integers, where a count takes
           32 bits (`MODEL_COUNT_BITS`) and a bitmap of n bits marks the entries present.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from random import Random
from typing import Any

from ..ordering import ProtocolMessage
from ..tracking import Piggyback, Piggybacked, Timestamp, TrackerMachine

TrackerFactory = Callable[[int, int], TrackerMachine]

MODEL_COUNT_BITS = 32


@dataclass(slots=True)
class Fare:
    """The cost of tracking so far, summed over transmissions."""

    transmissions: int = 0
    entries: int = 0
    most_entries: int = 0
    bits: int = 0
    model_bits: int = 0
    null_events: int = 0
    relevant_events: int = 0

    def add(self, other: "Fare") -> None:
        """Add the costs that another account has counted."""
        for each in fields(self):
            mine, theirs = getattr(self, each.name), getattr(other, each.name)
            setattr(self, each.name, max(mine, theirs) if each.name == "most_entries" else mine + theirs)

    def per_message(self) -> dict[str, float]:
        sent = max(self.transmissions, 1)
        return {name: getattr(self, name) / sent for name in ("entries", "bits", "model_bits", "null_events")}


class Riders:
    """One tracker per process; `relevant`: the probability of a relevant event after a send or delivery."""

    def __init__(self, factory: TrackerFactory, processes: int, relevant: float, dice: Random) -> None:
        self._factory, self._relevant, self._dice = factory, relevant, dice
        self.trackers = [factory(me, processes) for me in range(processes)]
        self.fare = Fare()
        self._riding: dict[tuple[int, int, int], Any] = {}  # piggybacks not delivered yet

    def join(self) -> None:
        """Add a process with the next index."""
        newcomer = len(self.trackers)
        for tracker in self.trackers:
            tracker.join(newcomer)
        self.trackers.append(self._factory(newcomer, newcomer + 1))

    def board(self, process: int, to: Sequence[int]) -> dict[int, Any]:
        """The piggybacks of a message's copies, by destination. If the sender had to produce a null event
        before them, the first has it in `forced`."""
        boarding = dict(zip(to, self.trackers[process].on_multicast(to), strict=True))
        for piggyback in boarding.values():
            self._count(piggyback)
        return boarding

    def depart(self, process: int, clock: int, boarding: dict[int, Any]) -> None:
        """Record that these piggybacks, by destination, travel with M(process, clock)."""
        for to, piggyback in boarding.items():
            self._riding[process, clock, to] = piggyback

    def fare_of(self, message: ProtocolMessage, to: int) -> tuple[int, int]:
        """The entries and bytes that a message on its way to `to` carries for its tracker."""
        piggyback = self._riding.get((message.sender, message.clock, to))
        return (piggyback.entries, piggyback.bits + 7 >> 3) if piggyback is not None else (0, 0)

    def alight(self, process: int, sender: int, clock: int) -> Any:
        """Give the piggyback of M(sender, clock) to the receiver's tracker at delivery, and return it; a
        message to oneself has none."""
        piggyback = self._riding.pop((sender, clock, process), None)
        if piggyback is not None:
            tracker = self.trackers[process]
            if piggyback.n != tracker.n:  # a process has joined since it was sent
                piggyback = tracker.decode(piggyback.encode(), piggyback.n)
            tracker.on_receive(sender, piggyback)
        return piggyback

    def event(self, process: int) -> Timestamp | None:
        """Draw whether a relevant event happens now; returns its timestamp, or None."""
        if self._dice.random() >= self._relevant:
            return None
        self.fare.relevant_events += 1
        return self.trackers[process].relevant()

    def memory(self) -> float:
        """The mean size of a tracker's snapshot in bytes."""
        return sum(len(tracker.snapshot()) for tracker in self.trackers) / len(self.trackers)

    def _count(self, piggyback: Piggybacked) -> None:
        fare, entries, n = self.fare, piggyback.entries, piggyback.n
        columns = isinstance(piggyback, Piggyback) and piggyback.columns is not None
        bitmap = n if entries < n else 0
        fare.transmissions += 1
        fare.entries += entries
        fare.most_entries = max(fare.most_entries, entries)
        fare.bits += piggyback.bits
        fare.model_bits += bitmap + entries * (MODEL_COUNT_BITS + (n if columns else 0))
        fare.null_events += piggyback.forced is not None
