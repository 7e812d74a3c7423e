"""Immediate predecessors on the fly: P3 of Hélary, Melideo & Raynal (2000).

Assumes    what tracker.py says.
Promises   exact vectors and exact immediate predecessors of every relevant event.
Leaves out any reduction: every message carries n entries (see p3_reduced).
Invariant  lane k of `_weights` is 2·VC[k] − IP[k]: VC[k] counts k's relevant events in our causal past and
           IP[k] = 1 iff the last of them would be an immediate predecessor of an event of ours now.

The paper merges pairs: the larger VC wins, and of equal ones the smaller IP. On 2·VC − IP that is the
maximum, so P3 is a vector clock of weights. An odd weight is an immediate predecessor.
R1 as printed increments before it forms the timestamp, so that an event would name itself; the
timestamp comes first.
"""

from typing import Any

from ..core.lanes import Lanes, clock_lanes
from . import refusals, saved_state
from .p1 import PAPER
from .piggyback import Piggyback
from .remembered import PiggybackEntry, View
from .tracker import EventId, Protocols, Timestamp, TrackerFacts
from .tracking_process import State, TrackingProcess, entries_of

FACTS = TrackerFacts(
    "p3",
    frozenset({"vector", "predecessors"}),
    fifo_links=False,
    bound="n",
    description="immediate predecessors on the fly; n entries and n bits a message",
    paper=PAPER,
    number=17,
)


def told(weights: int, geometry: Lanes) -> tuple[tuple[int, ...], frozenset[EventId]]:
    """The counts, and the events that are immediate predecessors of whatever happens next."""
    counts, flags = counts_and_bits(weights, geometry)
    return counts, frozenset((k, count) for k, count in enumerate(counts) if flags[k])


def counts_and_bits(weights: int, geometry: Lanes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """VC and IP, as the paper keeps them."""
    odd = weights & geometry.ones
    counts = tuple(geometry.unpack(weights + odd >> 1))  # even, so no bit leaves its lane
    return counts, tuple(geometry.unpack(odd))


class ImmediatePredecessors(TrackingProcess):
    def __init__(self, me: int, n: int) -> None:
        super().__init__(FACTS.name, me, n, clock_lanes(n))
        self._weights = 0

    def relevant(self) -> Timestamp:
        geometry, me = self._geometry, self.me
        counts, immediate = told(self._weights, self._geometry)
        seq = counts[me] + 1
        refusals.countable(2 * seq)
        # Our event now lies between every earlier one and what comes next; nothing lies after ours.
        even = self._weights + (self._weights & geometry.ones)
        self._weights = even + (1 << geometry.width * me)
        return Timestamp(me, seq, (*counts[:me], seq, *counts[me + 1 :]), immediate=immediate)

    def on_send(self, to: int) -> Piggyback:
        refusals.peer(to, self.me, self.n)
        return Piggyback(self._geometry, self._geometry.ones, self._weights)

    def on_receive(self, sender: int, piggyback: Any) -> None:
        refusals.arrival(sender, piggyback, self.me, self._geometry)
        geometry, weights, theirs = self._geometry, self._weights, piggyback.values
        newer = geometry.at_least(weights, theirs) ^ geometry.guards
        if newer:
            own = geometry.get(weights, self.me)
            refusals.own_value(geometry.get(theirs, self.me), own + (own & 1))
            self._weights = weights ^ (weights ^ theirs) & geometry.spread(newer)

    def view(self) -> View:
        return View("VC", *counts_and_bits(self._weights, self._geometry))

    def carried(self, piggyback: Piggyback) -> list[PiggybackEntry]:
        return entries_of(piggyback, *counts_and_bits(piggyback.values, self._geometry))

    def save(self) -> State:
        return {"weights": self._geometry.unpack(self._weights)}

    def load(self, state: State) -> None:
        self._weights = saved_state.numbers(state["weights"], self._geometry)


PROTOCOLS: Protocols = ((FACTS, ImmediatePredecessors),)
