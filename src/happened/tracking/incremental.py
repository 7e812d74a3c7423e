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
from . import checks, snapshots
from .piggyback import Piggyback, decode
from .tracker import Facts, Timestamp

FACTS = Facts(
    frozenset({"dependencies"}),
    fifo_links=False,
    bound="n",
    description="what was heard since the own last event, and that event",
    paper="Jard & Jourdan, Incremental transitive dependency tracking in distributed computations, 1996",
)


class Incremental:
    def __init__(self, me: int, n: int) -> None:
        checks.member(me, n)
        self._me = me
        self._n = n
        self._geometry = clock_lanes(n)
        self._vector = 0
        self._pending = 0

    @property
    def me(self) -> int:
        return self._me

    @property
    def n(self) -> int:
        return self._n

    def relevant(self) -> Timestamp:
        geometry = self._geometry
        seq = geometry.get(self._vector, self._me) + 1
        checks.countable(seq)
        own = 1 << geometry.width * self._me
        self._vector += own
        self._pending = own
        return Timestamp(self._me, seq, dependencies=tuple(geometry.unpack(self._vector)))

    def on_send(self, to: int) -> Piggyback:
        checks.peer(to, self._me, self._n)
        pending = self._pending
        return Piggyback(self._geometry, pending, self._vector & (pending << self._geometry.shift) - pending)

    def on_receive(self, sender: int, piggyback: Any) -> None:
        checks.arrival(sender, piggyback, self._me, self._geometry)
        geometry, vector, theirs = self._geometry, self._vector, piggyback.values
        newer = geometry.at_least(vector, theirs) ^ geometry.guards
        if newer:
            checks.own_value(geometry.get(theirs, self._me), geometry.get(vector, self._me))
            self._vector = vector ^ (vector ^ theirs) & geometry.spread(newer)
            self._pending |= newer >> geometry.shift

    def decode(self, data: bytes) -> Piggyback:
        return decode(data, self._geometry)

    def snapshot(self) -> bytes:
        vector = self._geometry.unpack(self._vector)
        pending = self._geometry.unpack(self._pending)
        return snapshots.dump("incremental", self._me, self._n, vector=vector, pending=pending)

    def restore(self, data: bytes) -> None:
        with snapshots.loading(data, "incremental", self._me, self._n) as state:
            vector = snapshots.numbers(state["vector"], self._geometry)
            pending = snapshots.numbers(state["pending"], self._geometry)
            if pending & ~self._geometry.ones:
                raise ValueError("an entry is pending or it is not")
            self._vector, self._pending = vector, pending
