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

from typing import Any

from ..core.lanes import lanes
from . import checks, snapshots
from .knowledge import Knowledge
from .p3 import told
from .piggyback import Piggyback, decode
from .tracker import Facts, Timestamp

OPEN_PROBLEM = "docs/tracking.md; the problem is left open by Hélary, Melideo & Raynal, SIROCCO 2000"


def facts(what: str, *, fifo: bool = False) -> Facts:
    return Facts(frozenset({"vector", "predecessors"}), fifo, "n", what, OPEN_PROBLEM)


class ReducedPredecessors:
    def __init__(self, me: int, n: int, *, primed: bool = False, fifo: bool = False) -> None:
        checks.member(me, n)
        self._me = me
        self._n = n
        self._geometry = lanes(n)
        self._primed = primed
        self._name = "p3-reduced" + "-prime" * primed + "-fifo" * fifo
        self._knowledge = Knowledge(me, n, primed=primed, fifo=fifo, owners_know=False)

    @property
    def me(self) -> int:
        return self._me

    @property
    def n(self) -> int:
        return self._n

    def relevant(self) -> Timestamp:
        geometry, knowledge, me = self._geometry, self._knowledge, self._me
        counts, immediate = told(knowledge.vector, self._geometry)
        seq = counts[me] + 1
        checks.countable(2 * seq)
        odd = knowledge.vector & geometry.ones
        knowledge.raise_entries(odd)
        knowledge.set_own(2 * seq - 1)
        knowledge.everyone_lacks_own()
        return Timestamp(me, seq, (*counts[:me], seq, *counts[me + 1 :]), immediate=immediate)

    def on_send(self, to: int) -> Piggyback:
        return self._knowledge.on_send(to)

    def on_receive(self, sender: int, piggyback: Any) -> None:
        self._knowledge.on_receive(sender, piggyback)

    def decode(self, data: bytes) -> Piggyback:
        return decode(data, self._geometry, columns=self._primed)

    def snapshot(self) -> bytes:
        return snapshots.dump(self._name, self._me, self._n, **self._knowledge.to_json())

    def restore(self, data: bytes) -> None:
        with snapshots.loading(data, self._name, self._me, self._n) as state:
            self._knowledge.restore(state)
