"""Vector clocks with fewer than n entries per message: P1 and P1′ of Hélary, Melideo & Raynal (2000).

Assumes    what tracker.py says; `fifo` needs FIFO links.
Promises   exact vector timestamps; a message carries entry k only if its receiver may lack it.
Leaves out a bound: a message may have to carry all n entries (see p2).
Invariant  entry k is the number of k's relevant events in our causal past; who lacks what is `Knowledge`.

`primed` (P1′) sends with each entry its column of the matrix: fewer entries, n bits more for each.
`fifo` leaves out what is already on its way. The paper marks it in M itself; together with P1′ that is
wrong (0 tells 2 that 1 knows what is still on its way to 1), so `Knowledge` keeps it apart.
`reset_once` is footnote 2: our own column stays as the first event set it, because nobody tells us
of our own entry. With FIFO marks it would never be sent twice, so the two exclude each other.
"""

from functools import partial

from ..core.errors import LocalProtocolError
from . import refusals
from .knowledge import Knowledge
from .tracker import Protocols, Timestamp, TrackerFacts
from .tracking_process import KnowingProcess

PAPER = "Hélary, Melideo & Raynal, Tracking causality: a suite of efficient protocols, SIROCCO 2000"


class ReducedVector(KnowingProcess):
    def __init__(
        self, me: int, n: int, *, primed: bool = False, fifo: bool = False, reset_once: bool = False
    ) -> None:
        if fifo and reset_once:
            raise LocalProtocolError("with FIFO marks the own column must be reset at every event")
        knowledge = Knowledge(me, n, primed=primed, fifo=fifo, owners_know=True)
        super().__init__("p1" + "-prime" * primed + "-fifo" * fifo + "-once" * reset_once, knowledge)
        self._reset_once = reset_once

    def relevant(self) -> Timestamp:
        knowledge = self._knowledge
        seq = knowledge.own() + 1
        refusals.countable(seq)
        knowledge.set_own(seq)
        if seq == 1 or not self._reset_once:
            knowledge.everyone_lacks_own()
        return Timestamp(self.me, seq, tuple(self._geometry.unpack(knowledge.vector)))


def _facts(number: int, name: str, what: str, *, fifo: bool = False) -> TrackerFacts:
    return TrackerFacts(name, frozenset({"vector"}), fifo, "n", what, PAPER, number)


PROTOCOLS: Protocols = (
    (_facts(7, "p1", "vectors without what the receiver is known to know"), ReducedVector),
    (_facts(8, "p1-once", "p1 with footnote 2's shortcut"), partial(ReducedVector, reset_once=True)),
    (_facts(9, "p1-prime", "p1 that also tells who knows what"), partial(ReducedVector, primed=True)),
    (
        _facts(10, "p1-prime-once", "p1-prime with footnote 2's shortcut"),
        partial(ReducedVector, primed=True, reset_once=True),
    ),
    (_facts(11, "p1-fifo", "p1 without what is on its way", fifo=True), partial(ReducedVector, fifo=True)),
    (
        _facts(12, "p1-prime-fifo", "p1-prime without what is on its way", fifo=True),
        partial(ReducedVector, primed=True, fifo=True),
    ),
)
