"""Dependencies since the last event, passed on until an event absorbs them: Jard & Jourdan (PPL 6(3), 1996).

Assumes    what tracker.py says.
Promises   dependency vectors from which `reconstruction` gets the exact vectors of all events, without null
           events and without a matrix.
Leaves out vectors on the fly, and any bound below n on a message: between two events of a process the list
           only grows.
Invariant  `_pending` is the set of processes (bit 0 of their lanes) whose entry is our own last event, or
           newer than it: what our next message must pass on, because no event of ours stands for it yet.
"""

from typing import Any

from ..core.lanes import clock_lanes
from . import refusals, saved_state
from .piggyback import Piggyback
from .tracker import Protocols, Timestamp, TrackerFacts
from .tracking_process import State, TrackingProcess

FACTS = TrackerFacts(
    "incremental",
    frozenset({"dependencies"}),
    fifo_links=False,
    bound="n",
    description="what was heard since the own last event, and that event",
    paper="Jard & Jourdan, Incremental transitive dependency tracking in distributed computations, 1996",
    number=5,
)


class Incremental(TrackingProcess):
    def __init__(self, me: int, n: int) -> None:
        super().__init__(FACTS.name, me, n, clock_lanes(n))
        self._vector = 0
        self._pending = 0

    def relevant(self) -> Timestamp:
        geometry = self._geometry
        seq = geometry.get(self._vector, self.me) + 1
        refusals.countable(seq)
        own = 1 << geometry.width * self.me
        self._vector += own
        self._pending = own
        return Timestamp(self.me, seq, dependencies=tuple(geometry.unpack(self._vector)))

    def on_send(self, to: int) -> Piggyback:
        refusals.peer(to, self.me, self.n)
        pending = self._pending
        return Piggyback(self._geometry, pending, self._vector & (pending << self._geometry.shift) - pending)

    def on_receive(self, sender: int, piggyback: Any) -> None:
        refusals.arrival(sender, piggyback, self.me, self._geometry)
        geometry, vector, theirs = self._geometry, self._vector, piggyback.values
        newer = geometry.at_least(vector, theirs) ^ geometry.guards
        if newer:
            refusals.own_value(geometry.get(theirs, self.me), geometry.get(vector, self.me))
            self._vector = vector ^ (vector ^ theirs) & geometry.spread(newer)
            self._pending |= newer >> geometry.shift

    def save(self) -> State:
        unpack = self._geometry.unpack
        return {"vector": unpack(self._vector), "pending": unpack(self._pending)}

    def load(self, state: State) -> None:
        vector = saved_state.numbers(state["vector"], self._geometry)
        pending = saved_state.numbers(state["pending"], self._geometry)
        if pending & ~self._geometry.ones:
            raise ValueError("an entry is pending or it is not")
        self._vector, self._pending = vector, pending


PROTOCOLS: Protocols = ((FACTS, Incremental),)
