"""Immediate predecessors with fewer than n entries per message: the problem Hélary et al. (2000) leave open.

Assumes    what tracker.py says; `fifo` needs FIFO links.
Promises   exact vectors and exact immediate predecessors; a message carries entry k only if its receiver
           may lack it.
Leaves out a bound: a message may have to carry all n entries.
Invariant  as in p3, with who lacks which weight kept by `Knowledge`.

P3 merges weights 2·VC − IP by maximum, so P1's matrix applies to them, with two differences. A relevant
event raises the weight of every immediate predecessor it had, so all of these entries are news to
everybody else. And k need not know the newest weight of its *own* entry: that its last event has a
successor is found out elsewhere. It does know an odd weight, which only k itself can have made; so
M[k, k] = 1 is set with those and with no others. See docs/tracking.md for the proof.
"""

from functools import partial

from . import refusals
from .knowledge import Knowledge
from .p3 import counts_and_bits, told
from .tracker import Protocols, Timestamp, TrackerFacts
from .tracking_process import KnowingProcess

OPEN_PROBLEM = "docs/tracking.md; the problem is left open by Hélary, Melideo & Raynal, SIROCCO 2000"


class ReducedPredecessors(KnowingProcess):
    def __init__(self, me: int, n: int, *, primed: bool = False, fifo: bool = False) -> None:
        knowledge = Knowledge(me, n, primed=primed, fifo=fifo, owners_know=False)
        super().__init__("p3-reduced" + "-prime" * primed + "-fifo" * fifo, knowledge)

    def read(self, values: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return counts_and_bits(values, self._geometry)

    def relevant(self) -> Timestamp:
        geometry, knowledge, me = self._geometry, self._knowledge, self.me
        counts, immediate = told(knowledge.vector, self._geometry)
        seq = counts[me] + 1
        refusals.countable(2 * seq)
        odd = knowledge.vector & geometry.ones
        knowledge.raise_entries(odd)
        knowledge.set_own(2 * seq - 1)
        knowledge.everyone_lacks_own()
        return Timestamp(me, seq, (*counts[:me], seq, *counts[me + 1 :]), immediate=immediate)


def _facts(number: int, name: str, what: str, *, fifo: bool = False) -> TrackerFacts:
    return TrackerFacts(name, frozenset({"vector", "predecessors"}), fifo, "n", what, OPEN_PROBLEM, number)


PROTOCOLS: Protocols = (
    (
        _facts(18, "p3-reduced", "immediate predecessors, without what the receiver knows"),
        ReducedPredecessors,
    ),
    (
        _facts(19, "p3-reduced-prime", "p3-reduced that also tells who knows what"),
        partial(ReducedPredecessors, primed=True),
    ),
    (
        _facts(20, "p3-reduced-fifo", "p3-reduced without what is on its way", fifo=True),
        partial(ReducedPredecessors, fifo=True),
    ),
    (
        _facts(21, "p3-reduced-prime-fifo", "p3-reduced-prime without what is on its way", fifo=True),
        partial(ReducedPredecessors, primed=True, fifo=True),
    ),
)
