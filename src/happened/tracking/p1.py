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

from typing import Any

from ..core.errors import LocalProtocolError
from ..core.lanes import lanes
from . import checks, snapshots
from .knowledge import Knowledge
from .piggyback import Piggyback, decode
from .tracker import Facts, Timestamp

PAPER = "Hélary, Melideo & Raynal, Tracking causality: a suite of efficient protocols, SIROCCO 2000"


def facts(what: str, *, fifo: bool = False) -> Facts:
    return Facts(frozenset({"vector"}), fifo, "n", what, PAPER)


class ReducedVector:
    def __init__(
        self, me: int, n: int, *, primed: bool = False, fifo: bool = False, reset_once: bool = False
    ) -> None:
        checks.member(me, n)
        if fifo and reset_once:
            raise LocalProtocolError("with FIFO marks the own column must be reset at every event")
        self._me = me
        self._n = n
        self._geometry = lanes(n)
        self._primed = primed
        self._reset_once = reset_once
        self._name = "p1" + "-prime" * primed + "-fifo" * fifo + "-once" * reset_once
        self._knowledge = Knowledge(me, n, primed=primed, fifo=fifo, owners_know=True)

    @property
    def me(self) -> int:
        return self._me

    @property
    def n(self) -> int:
        return self._n

    def relevant(self) -> Timestamp:
        knowledge = self._knowledge
        seq = knowledge.own() + 1
        checks.countable(seq)
        knowledge.set_own(seq)
        if seq == 1 or not self._reset_once:
            knowledge.everyone_lacks_own()
        return Timestamp(self._me, seq, tuple(self._geometry.unpack(knowledge.vector)))

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
