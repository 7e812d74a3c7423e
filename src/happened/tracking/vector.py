"""Vector clocks on every message, after Fidge (1988) and Mattern (1989).

Assumes    what tracker.py says.
Promises   exact vector timestamps.
Leaves out any reduction: every message carries n entries.
Invariant  lane k of `_vector` is the number of k's relevant events in our causal past.
"""

from typing import Any

from ..core.lanes import clock_lanes
from . import refusals, saved_state
from .piggyback import Piggyback
from .remembered import PiggybackEntry, View
from .tracker import Protocols, Timestamp, TrackerFacts
from .tracking_process import State, TrackingProcess, entries_of

FACTS = TrackerFacts(
    "vector",
    frozenset({"vector"}),
    fifo_links=False,
    bound="n",
    description="the whole vector on every message",
    paper="Fidge, Timestamps in message-passing systems, 1988; Mattern, Virtual time and global states, 1989",
    number=2,
)


class Vector(TrackingProcess):
    def __init__(self, me: int, n: int) -> None:
        super().__init__(FACTS.name, me, n, clock_lanes(n))
        self._vector = 0

    def relevant(self) -> Timestamp:
        geometry = self._geometry
        seq = geometry.get(self._vector, self.me) + 1
        refusals.countable(seq)
        self._vector += 1 << geometry.width * self.me
        return Timestamp(self.me, seq, tuple(geometry.unpack(self._vector)))

    def on_send(self, to: int) -> Piggyback:
        refusals.peer(to, self.me, self.n)
        return Piggyback(self._geometry, self._geometry.ones, self._vector)

    def on_receive(self, sender: int, piggyback: Any) -> None:
        refusals.arrival(sender, piggyback, self.me, self._geometry)
        geometry, vector, theirs = self._geometry, self._vector, piggyback.values
        newer = geometry.at_least(vector, theirs) ^ geometry.guards
        if newer:
            refusals.own_value(geometry.get(theirs, self.me), geometry.get(vector, self.me))
            self._vector = vector ^ (vector ^ theirs) & geometry.spread(newer)

    def view(self) -> View:
        return View("VC", tuple(self._geometry.unpack(self._vector)))

    def carried(self, piggyback: Piggyback) -> list[PiggybackEntry]:
        return entries_of(piggyback, tuple(self._geometry.unpack(piggyback.values)), None)

    def save(self) -> State:
        return {"vector": self._geometry.unpack(self._vector)}

    def load(self, state: State) -> None:
        self._vector = saved_state.numbers(state["vector"], self._geometry)


PROTOCOLS: Protocols = ((FACTS, Vector),)
