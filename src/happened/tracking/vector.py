"""Vector clocks on every message, after Fidge (1988) and Mattern (1989).

Assumes    what tracker.py says.
Promises   exact vector timestamps.
Leaves out any reduction: every message carries n entries.
Invariant  lane k of `_vector` is the number of k's relevant events in our causal past.
"""

from typing import Any

from ..core.lanes import clock_lanes
from . import checks, snapshots
from .piggyback import Piggyback, decode
from .tracker import Facts, Timestamp

FACTS = Facts(
    frozenset({"vector"}),
    fifo_links=False,
    bound="n",
    description="the whole vector on every message",
    paper="Fidge, Timestamps in message-passing systems, 1988; Mattern, Virtual time and global states, 1989",
)


class Vector:
    def __init__(self, me: int, n: int) -> None:
        checks.member(me, n)
        self._me = me
        self._n = n
        self._geometry = clock_lanes(n)
        self._vector = 0

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
        self._vector += 1 << geometry.width * self._me
        return Timestamp(self._me, seq, tuple(geometry.unpack(self._vector)))

    def on_send(self, to: int) -> Piggyback:
        checks.peer(to, self._me, self._n)
        return Piggyback(self._geometry, self._geometry.ones, self._vector)

    def on_receive(self, sender: int, piggyback: Any) -> None:
        checks.arrival(sender, piggyback, self._me, self._geometry)
        geometry, vector, theirs = self._geometry, self._vector, piggyback.values
        newer = geometry.at_least(vector, theirs) ^ geometry.guards
        if newer:
            checks.own_value(geometry.get(theirs, self._me), geometry.get(vector, self._me))
            self._vector = vector ^ (vector ^ theirs) & geometry.spread(newer)

    def decode(self, data: bytes) -> Piggyback:
        return decode(data, self._geometry)

    def snapshot(self) -> bytes:
        vector = self._geometry.unpack(self._vector)
        return snapshots.dump("vector", self._me, self._n, vector=vector)

    def restore(self, data: bytes) -> None:
        with snapshots.loading(data, "vector", self._me, self._n) as state:
            self._vector = snapshots.numbers(state["vector"], self._geometry)
