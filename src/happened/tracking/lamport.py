"""Scalar time, after Lamport (CACM 21(7), 1978), ticking at relevant events only.

Assumes    what tracker.py says.
Promises   e before f implies scalar(e) < scalar(f); scalar(e) is the length of the longest causal chain of
           relevant events that ends in e.
Leaves out the converse: of two events with different scalars, the smaller may be concurrent.
Invariant  `_time` is the largest scalar in our causal past.
"""

from typing import Any

from ..core.lanes import clock_lanes
from . import refusals, saved_state
from .piggyback import Piggyback
from .tracker import Protocols, Timestamp, TrackerFacts
from .tracking_process import State, TrackingProcess

FACTS = TrackerFacts(
    "lamport",
    frozenset({"scalar"}),
    fifo_links=False,
    bound="1",
    description="one number that respects causality and cannot prove it",
    paper="Lamport, Time, clocks, and the ordering of events in a distributed system, CACM 21(7), 1978",
    number=1,
)


class Lamport(TrackingProcess):
    def __init__(self, me: int, n: int) -> None:
        super().__init__(FACTS.name, me, n, clock_lanes(n))
        self._time = 0
        self._seq = 0

    def relevant(self) -> Timestamp:
        refusals.countable(self._time + 1)
        self._time += 1
        self._seq += 1
        return Timestamp(self.me, self._seq, scalar=self._time)

    def on_send(self, to: int) -> Piggyback:
        refusals.peer(to, self.me, self.n)
        place = self._geometry.width * self.me
        return Piggyback(self._geometry, 1 << place, self._time << place)

    def on_receive(self, sender: int, piggyback: Any) -> None:
        refusals.arrival(sender, piggyback, self.me, self._geometry)
        self._time = max(self._time, self._geometry.get(piggyback.values, sender))

    def save(self) -> State:
        return {"time": self._time, "seq": self._seq}

    def load(self, state: State) -> None:
        self._time, self._seq = saved_state.number(state["time"]), saved_state.number(state["seq"])


PROTOCOLS: Protocols = ((FACTS, Lamport),)
