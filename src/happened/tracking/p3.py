"""Immediate predecessors on the fly: P3 of Hélary, Melideo & Raynal (2000), and a form with fewer entries.

Assumes    what tracker.py assumes; `fifo` needs FIFO links.
Promises   exact vectors and exact immediate predecessors of every relevant event. A message of `p3` carries n
           entries; a message of `p3-reduced`, which solves a problem the paper leaves open, carries entry k
           only if its receiver may lack it.
Leaves out a bound: a message of `p3-reduced` may have to carry all n entries too.
Invariant  lane k of the weights is 2·VC[k] − IP[k]: VC[k] counts k's relevant events in our causal past, and
           IP[k] = 1 iff the last of them would be an immediate predecessor of an event of ours now.

The paper merges pairs: the larger VC wins, and of equal VCs the smaller IP. On 2·VC − IP this is the maximum,
so P3 is a vector clock of weights. An odd weight marks an immediate predecessor.
R1 as printed increments before it forms the timestamp, so that an event would name itself; the
timestamp comes first.

So P1's matrix applies to weights, with two differences. A relevant event raises the weight of each of its
immediate predecessors, so no other process knows these new weights. And k need not know the newest weight of
its *own* entry: other processes find out that its last event has a successor. But k does know an odd weight,
since only k itself can have created it; so M[k, k] = 1 is set for odd weights and for no others.
docs/tracking.md has the proof.
"""

from ..core.lanes import Lanes
from . import refusals
from .knowledge import Knowledge, forms
from .p1 import PAPER
from .piggyback import EventId, Piggyback, PiggybackEntry, Timestamp, View
from .single_vectors import PackedVector
from .tracker import Protocols, State, TrackerFacts, entries_of

TELLS = frozenset({"vector", "predecessors"})
OPEN_PROBLEM = "docs/tracking.md; the problem is left open by Hélary, Melideo & Raynal, SIROCCO 2000"


def counts_and_bits(weights: int, geometry: Lanes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """VC and IP as in the paper, from the weights."""
    odd = weights & geometry.ones
    counts = tuple(geometry.unpack(weights + odd >> 1))  # even, so no bit leaves its lane
    return counts, tuple(geometry.unpack(odd))


def stamped(me: int, weights: int, geometry: Lanes) -> Timestamp:
    """The timestamp that an event of ours would get now."""
    counts, flags = counts_and_bits(weights, geometry)
    immediate: frozenset[EventId] = frozenset((k, count) for k, count in enumerate(counts) if flags[k])
    seq = counts[me] + 1
    refusals.countable(2 * seq)
    return Timestamp(me, seq, (*counts[:me], seq, *counts[me + 1 :]), immediate=immediate)


class ImmediatePredecessors(PackedVector):
    """`_vector` holds weights."""

    def __init__(self, me: int, n: int) -> None:
        super().__init__("p3", me, n)

    def relevant(self) -> Timestamp:
        geometry, weights = self._geometry, self._vector
        stamp = stamped(self.me, weights, geometry)
        # Earlier events reach later ones only through this event: their IP becomes 0, and that of ours is 1.
        self._vector = weights + (weights & geometry.ones) + (1 << geometry.width * self.me)
        return stamp

    def on_send(self, to: int) -> Piggyback:
        refusals.peer(to, self.me, self.n)
        return Piggyback(self._geometry, self._geometry.ones, self._vector)

    def _largest_own(self) -> int:
        own = super()._largest_own()
        return own + (own & 1)

    def view(self) -> View:
        return View("VC", *counts_and_bits(self._vector, self._geometry))

    def carried(self, piggyback: Piggyback) -> list[PiggybackEntry]:
        return entries_of(piggyback, *counts_and_bits(piggyback.values, self._geometry))

    def save(self) -> State:
        return {"weights": self._geometry.unpack(self._vector)}

    def load(self, state: State) -> None:
        self._vector = refusals.numbers(state["weights"], self._geometry)


class ReducedPredecessors(Knowledge):
    """`vector` holds weights."""

    def __init__(self, me: int, n: int, *, primed: bool = False, fifo: bool = False) -> None:
        super().__init__("p3-reduced", me, n, primed=primed, fifo=fifo, owners_know=False)

    def read(self, values: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return counts_and_bits(values, self._geometry)

    def relevant(self) -> Timestamp:
        stamp = stamped(self.me, self.vector, self._geometry)
        self.raise_entries(self.vector & self._geometry.ones)
        self.set_own(2 * stamp.seq - 1)
        self.everyone_lacks_own()
        return stamp


PROTOCOLS: Protocols = (
    (
        TrackerFacts(
            "p3",
            TELLS,
            fifo_links=False,
            bound="n",
            description="immediate predecessors on the fly; n entries and n bits a message",
            paper=PAPER,
            number=17,
        ),
        ImmediatePredecessors,
    ),
    *forms(
        ReducedPredecessors,
        (18, 19, 20, 21),
        "p3-reduced",
        TELLS,
        "n",
        "immediate predecessors, without what the receiver knows",
        OPEN_PROBLEM,
    ),
)
