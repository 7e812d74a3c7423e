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
from . import checks, snapshots
from .p1 import PAPER
from .piggyback import Piggyback, decode
from .tracker import EventId, Facts, Timestamp

FACTS = Facts(
    frozenset({"vector", "predecessors"}),
    fifo_links=False,
    bound="n",
    description="immediate predecessors on the fly; n entries and n bits a message",
    paper=PAPER,
)


def told(weights: int, geometry: Lanes) -> tuple[tuple[int, ...], frozenset[EventId]]:
    """The counts, and the events that are immediate predecessors of whatever happens next."""
    odd = weights & geometry.ones
    counts = tuple(geometry.unpack(weights + odd >> 1))  # even, so no bit leaves its lane
    flags = geometry.unpack(odd)
    return counts, frozenset((k, count) for k, count in enumerate(counts) if flags[k])


class ImmediatePredecessors:
    def __init__(self, me: int, n: int) -> None:
        checks.member(me, n)
        self._me = me
        self._n = n
        self._geometry = clock_lanes(n)
        self._weights = 0

    @property
    def me(self) -> int:
        return self._me

    @property
    def n(self) -> int:
        return self._n

    def relevant(self) -> Timestamp:
        geometry, me = self._geometry, self._me
        counts, immediate = told(self._weights, self._geometry)
        seq = counts[me] + 1
        checks.countable(2 * seq)
        # Our event now lies between every earlier one and what comes next; nothing lies after ours.
        even = self._weights + (self._weights & geometry.ones)
        self._weights = even + (1 << geometry.width * me)
        return Timestamp(me, seq, (*counts[:me], seq, *counts[me + 1 :]), immediate=immediate)

    def on_send(self, to: int) -> Piggyback:
        checks.peer(to, self._me, self._n)
        return Piggyback(self._geometry, self._geometry.ones, self._weights)

    def on_receive(self, sender: int, piggyback: Any) -> None:
        checks.arrival(sender, piggyback, self._me, self._geometry)
        geometry, weights, theirs = self._geometry, self._weights, piggyback.values
        newer = geometry.at_least(weights, theirs) ^ geometry.guards
        if newer:
            own = geometry.get(weights, self._me)
            checks.own_value(geometry.get(theirs, self._me), own + (own & 1))
            self._weights = weights ^ (weights ^ theirs) & geometry.spread(newer)

    def decode(self, data: bytes) -> Piggyback:
        return decode(data, self._geometry)

    def snapshot(self) -> bytes:
        weights = self._geometry.unpack(self._weights)
        return snapshots.dump("p3", self._me, self._n, weights=weights)

    def restore(self, data: bytes) -> None:
        with snapshots.loading(data, "p3", self._me, self._n) as state:
            self._weights = snapshots.numbers(state["weights"], self._geometry)
