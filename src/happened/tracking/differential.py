"""Vector clocks that send what changed since the last message to a process: Singhal & Kshemkalyani (1992).

Assumes    what tracker.py says, with FIFO links.
Promises   exact vector timestamps; a message carries the entries changed since the last one on its channel.
Leaves out what the receiver knows from elsewhere: that needs a matrix (see p1).
Invariant  `_updated` (LU) says at which of our steps each entry last changed, `_last_sent` (LS) at which
           step we last sent to each process; steps count our events of every kind.

The paper uses one's own entry as the number of the step, since it ticks at every event there. Here only
relevant events tick, two receipts may see the same own entry, and steps are therefore counted apart.
"""

from typing import Any

from ..core.lanes import clock_lanes
from . import refusals, saved_state
from .piggyback import Piggyback
from .tracker import Protocols, Timestamp, TrackerFacts
from .tracking_process import State, TrackingProcess

FACTS = TrackerFacts(
    "differential",
    frozenset({"vector"}),
    fifo_links=True,
    bound="n",
    description="what changed since the last message on this channel",
    paper="Singhal & Kshemkalyani, An efficient implementation of vector clocks, IPL 43(1), 1992",
    number=3,
)


class Differential(TrackingProcess):
    def __init__(self, me: int, n: int) -> None:
        super().__init__(FACTS.name, me, n, clock_lanes(n))
        self._vector = 0
        self._updated = 0
        self._last_sent = [0] * n
        self._step = 0

    def relevant(self) -> Timestamp:
        geometry, me = self._geometry, self.me
        seq = geometry.get(self._vector, me) + 1
        refusals.countable(max(seq, self._step + 1))
        self._step += 1
        self._vector += 1 << geometry.width * me
        self._updated = geometry.put(self._updated, me, self._step)
        return Timestamp(me, seq, tuple(geometry.unpack(self._vector)))

    def on_send(self, to: int) -> Piggyback:
        refusals.peer(to, self.me, self.n)
        refusals.countable(self._step + 1)
        geometry = self._geometry
        changed = geometry.at_least(self._updated, geometry.ones * (self._last_sent[to] + 1))
        self._step += 1
        self._last_sent[to] = self._step
        return Piggyback(self._geometry, changed >> geometry.shift, self._vector & geometry.spread(changed))

    def on_receive(self, sender: int, piggyback: Any) -> None:
        refusals.arrival(sender, piggyback, self.me, self._geometry)
        refusals.countable(self._step + 1)
        geometry, vector, theirs = self._geometry, self._vector, piggyback.values
        newer = geometry.at_least(vector, theirs) ^ geometry.guards
        if newer:
            refusals.own_value(geometry.get(theirs, self.me), geometry.get(vector, self.me))
            mask = geometry.spread(newer)
            self._step += 1
            self._vector = vector ^ (vector ^ theirs) & mask
            self._updated = self._updated & ~mask | geometry.ones * self._step & mask

    def join(self, process: int) -> None:
        super().join(process)
        self._last_sent.append(0)

    def save(self) -> State:
        unpack = self._geometry.unpack
        vectors = {"vector": unpack(self._vector), "updated": unpack(self._updated)}
        return vectors | {"last_sent": self._last_sent, "step": self._step}

    def load(self, state: State) -> None:
        vector = saved_state.numbers(state["vector"], self._geometry)
        updated = saved_state.numbers(state["updated"], self._geometry)
        last_sent = list(self._geometry.unpack(saved_state.numbers(state["last_sent"], self._geometry)))
        step = saved_state.number(state["step"])
        self._vector, self._updated, self._last_sent, self._step = vector, updated, last_sent, step


PROTOCOLS: Protocols = ((FACTS, Differential),)
