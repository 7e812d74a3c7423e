"""At most b entries per message, at the price of null events: P2 and P2′ of Hélary, Melideo & Raynal (2000).

Assumes    what tracker.py says; `fifo` needs FIFO links.
Promises   no message carries more than b event identifiers; timestamps are dependency vectors, from which
           `reconstruction` gets the exact vectors of all events.
Leaves out vectors on the fly: a dependency may be told only by an event in between.
Invariant  entry k is at most the number of k's relevant events in our causal past; those it misses are in
           the past of an event it does not miss. Nobody is said to lack what came before our last
           event, because that event stands for it.

Where more than b entries would be due, `on_send` produces a null event first, which leaves one entry
due: itself. The piggyback tells it as `forced`. Null events count: seq numbers them like all others.
The entries due include our own; the sum and the k ≠ j of the printed test are slips (docs/papers.md).
`primed` and `fifo` are as in p1.
"""

from typing import Any

from ..core.errors import LocalProtocolError
from ..core.lanes import lanes
from . import checks, snapshots
from .knowledge import Knowledge
from .p1 import PAPER
from .piggyback import Piggyback, decode
from .tracker import Facts, Timestamp


def facts(what: str, *, fifo: bool = False) -> Facts:
    return Facts(frozenset({"dependencies"}), fifo, "b", what, PAPER)


class BoundedDependencies:
    def __init__(self, me: int, n: int, *, b: int = 1, primed: bool = False, fifo: bool = False) -> None:
        checks.member(me, n)
        if b < 1:
            raise LocalProtocolError(f"a message carries at most b event identifiers, b at least 1, not {b}")
        self._me = me
        self._n = n
        self._geometry = lanes(n)
        self._bound = b
        self._primed = primed
        self._name = "p2" + "-prime" * primed + "-fifo" * fifo
        self._knowledge = Knowledge(me, n, primed=primed, fifo=fifo, owners_know=True)

    @property
    def me(self) -> int:
        return self._me

    @property
    def n(self) -> int:
        return self._n

    def relevant(self) -> Timestamp:
        return self._produce(null=False)

    def _produce(self, *, null: bool) -> Timestamp:
        knowledge = self._knowledge
        seq = knowledge.own() + 1
        checks.countable(seq)
        knowledge.set_own(seq)
        knowledge.everyone_lacks_only_own()
        vector = tuple(self._geometry.unpack(knowledge.vector))
        return Timestamp(self._me, seq, dependencies=vector, null=null)

    def on_send(self, to: int) -> Piggyback:
        checks.peer(to, self._me, self._n)
        knowledge = self._knowledge
        if knowledge.due(to).bit_count() <= self._bound:
            return knowledge.on_send(to)
        forced = self._produce(null=True)
        return knowledge.on_send(to)._replace(forced=forced)

    def on_receive(self, sender: int, piggyback: Any) -> None:
        self._knowledge.on_receive(sender, piggyback)

    def decode(self, data: bytes) -> Piggyback:
        return decode(data, self._geometry, columns=self._primed)

    def snapshot(self) -> bytes:
        state = self._knowledge.to_json()
        return snapshots.dump(self._name, self._me, self._n, b=self._bound, **state)

    def restore(self, data: bytes) -> None:
        with snapshots.loading(data, self._name, self._me, self._n, b=self._bound) as state:
            self._knowledge.restore(state)
