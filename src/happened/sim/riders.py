"""Trackers that ride on the messages of a simulated run, and the account of what they cost.

A message's piggyback is made when the application sends it and taken in when the application gets it, so a
tracker sees the happened-before of sends and *deliveries*, whatever an ordering protocol does in between.
After each send and each delivery, a relevant event happens with a given probability.

Counted    per transmission: entries; bits as encoded; bits in a model of plain integers, where a
           count takes 32 bits (`MODEL_COUNT_BITS`) and a bitmap of n bits says which are there.
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
    """What tracking cost so far, summed over transmissions."""

    transmissions: int = 0
    entries: int = 0
    most_entries: int = 0
    bits: int = 0
    model_bits: int = 0
    null_events: int = 0
    relevant_events: int = 0

    def add(self, other: "Fare") -> None:
        """Count what another one has counted too."""
        for each in fields(self):
            mine, theirs = getattr(self, each.name), getattr(other, each.name)
            setattr(self, each.name, max(mine, theirs) if each.name == "most_entries" else mine + theirs)

    def per_message(self) -> dict[str, float]:
        sent = max(self.transmissions, 1)
        return {name: getattr(self, name) / sent for name in ("entries", "bits", "model_bits", "null_events")}


class Riders:
    """One tracker per process; `relevant` is the probability of an event after a send or delivery."""

    def __init__(self, factory: TrackerFactory, processes: int, relevant: float, dice: Random) -> None:
        self._factory, self._relevant, self._dice = factory, relevant, dice
        self.trackers = [factory(me, processes) for me in range(processes)]
        self.fare = Fare()
        self._riding: dict[tuple[int, int, int], Any] = {}  # not yet delivered

    def join(self) -> None:
        """A process with the next index takes part from now on."""
        newcomer = len(self.trackers)
        for tracker in self.trackers:
            tracker.join(newcomer)
        self.trackers.append(self._factory(newcomer, newcomer + 1))

    def board(self, process: int, to: Sequence[int]) -> dict[int, Any]:
        """What the copies of a message carry, by destination; the first tells in `forced` the null event that
        its sender had to produce before them."""
        boarding = dict(zip(to, self.trackers[process].on_multicast(to), strict=True))
        for piggyback in boarding.values():
            self._count(piggyback)
        return boarding

    def depart(self, process: int, clock: int, boarding: dict[int, Any]) -> None:
        """Say that these piggybacks, by destination, travel with M(process, clock)."""
        for to, piggyback in boarding.items():
            self._riding[process, clock, to] = piggyback

    def fare_of(self, message: ProtocolMessage, to: int) -> tuple[int, int]:
        """Entries and bytes that a message on its way to `to` carries for its tracker."""
        piggyback = self._riding.get((message.sender, message.clock, to))
        return (piggyback.entries, piggyback.bits + 7 >> 3) if piggyback is not None else (0, 0)

    def alight(self, process: int, sender: int, clock: int) -> Any:
        """Take in the piggyback of M(sender, clock) at its delivery, and return it; a message to oneself has
        none."""
        piggyback = self._riding.pop((sender, clock, process), None)
        if piggyback is not None:
            tracker = self.trackers[process]
            if piggyback.n != tracker.n:  # somebody has joined since it was sent
                piggyback = tracker.decode(piggyback.encode(), piggyback.n)
            tracker.on_receive(sender, piggyback)
        return piggyback

    def event(self, process: int) -> Timestamp | None:
        """The timestamp of a relevant event, if one happens now."""
        if self._dice.random() >= self._relevant:
            return None
        self.fare.relevant_events += 1
        return self.trackers[process].relevant()

    def memory(self) -> float:
        """Mean bytes of a tracker's snapshot."""
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
