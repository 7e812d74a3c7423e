"""Vector clocks with fewer than n entries per message: P1 and P1′ of Hélary, Melideo & Raynal (2000).

Assumes    what tracker.py assumes; `fifo` needs FIFO links.
Promises   exact vector timestamps; a message carries entry k only if its receiver may lack it.
Leaves out a bound: a message may have to carry all n entries (see p2).
Invariant  entry k is the number of k's relevant events in our causal past; see `Knowledge` for who lacks it.

`primed` (P1′) sends with each entry its column of the matrix: fewer entries, n bits more for each. `fifo`
leaves out values already in transit. The paper marks these in M itself; together with P1′ that is wrong (0
tells 2 that 1 knows what is still in transit to 1), so `Knowledge` keeps them apart. `reset_once` is footnote
2: our own column stays as the first event set it, because no other process tells us of our own entry. With
FIFO marks our entry would never be sent twice, so the two options exclude each other.
"""

from functools import partial

from ..core.errors import require
from . import refusals
from .knowledge import Knowledge, forms
from .piggyback import Timestamp
from .tracker import Protocols, TrackerFacts

PAPER = "Hélary, Melideo & Raynal, Tracking causality: a suite of efficient protocols, SIROCCO 2000"


class ReducedVector(Knowledge):
    def __init__(
        self, me: int, n: int, *, primed: bool = False, fifo: bool = False, reset_once: bool = False
    ) -> None:
        require(not (fifo and reset_once), "with FIFO marks the own column must be reset at every event")
        super().__init__("p1", me, n, primed=primed, fifo=fifo)
        self._name += "-once" * reset_once
        self._reset_once = reset_once

    def relevant(self) -> Timestamp:
        seq = self.own() + 1
        refusals.countable(seq)
        self.set_own(seq)
        if seq == 1 or not self._reset_once:
            self.everyone_lacks_own()
        return Timestamp(self.me, seq, tuple(self._geometry.unpack(self.vector)))


TELLS = frozenset({"vector"})
PROTOCOLS: Protocols = (
    *forms(
        ReducedVector,
        (7, 9, 11, 12),
        "p1",
        TELLS,
        "n",
        "vectors without what the receiver is known to know",
        PAPER,
    ),
    *(
        (
            TrackerFacts(
                f"{name}-once", TELLS, False, "n", f"{name} with footnote 2's shortcut", PAPER, number
            ),
            partial(ReducedVector, reset_once=True, primed=primed),
        )
        for number, name, primed in ((8, "p1", False), (10, "p1-prime", True))
    ),
)
