"""At most b entries per message, at the price of null events: P2 and P2′ of Hélary, Melideo & Raynal (2000).

Assumes    what tracker.py assumes; `fifo` needs FIFO links.
Promises   no message carries more than b event identifiers; timestamps are dependency vectors, from which
           `reconstruction` gets the exact vectors of all events.
Leaves out vectors on the fly: perhaps only an event in between tells a dependency.
Invariant  entry k is at most the number of k's relevant events in our causal past; events that it misses are
           in the past of an event that it counts. No process is recorded as lacking what came before our last
           event, because that event stands for it.

Where more than b entries would be due, `on_send` produces a null event first, which leaves one entry due: the
null event itself. The piggyback has it as `forced`. Null events count: seq numbers them like all others. The
entries due include our own; the sum and the k ≠ j of the printed test are slips (docs/papers.md). `primed`
and `fifo` are as in p1.
"""

from collections.abc import Sequence

from ..core.errors import require
from . import refusals
from .knowledge import Knowledge, forms
from .p1 import PAPER
from .piggyback import Piggyback, Timestamp
from .tracker import Protocols


class BoundedDependencies(Knowledge):
    title = "DV"

    def __init__(self, me: int, n: int, *, b: int = 1, primed: bool = False, fifo: bool = False) -> None:
        require(b >= 1, f"a message carries at most b event identifiers, b at least 1, not {b}")
        super().__init__("p2", me, n, primed=primed, fifo=fifo, b=b)
        self._bound = b

    def relevant(self) -> Timestamp:
        return self._produce(null=False)

    def _produce(self, *, null: bool) -> Timestamp:
        seq = self.own() + 1
        refusals.countable(seq)
        self.set_own(seq)
        self.everyone_lacks_only_own()
        vector = tuple(self._geometry.unpack(self.vector))
        return Timestamp(self.me, seq, dependencies=vector, null=null)

    def on_send(self, to: int) -> Piggyback:
        # The same as `on_multicast` for one destination, without its lists.
        refusals.peer(to, self.me, self.n)
        if self.due(to).bit_count() <= self._bound:
            return super().on_send(to)
        forced = self._produce(null=True)
        return super().on_send(to)._replace(forced=forced)

    def on_multicast(self, to: Sequence[int]) -> list[Piggyback]:
        for each in to:
            refusals.peer(each, self.me, self.n)
        # All copies of a message leave at one event, so a null event that one copy needs is told to all.
        forced = None
        if any(self.due(each).bit_count() > self._bound for each in to):
            forced = self._produce(null=True)
        carried = [Knowledge.on_send(self, each) for each in to]
        if forced is not None:
            carried[0] = carried[0]._replace(forced=forced)
        return carried


PROTOCOLS: Protocols = forms(
    BoundedDependencies,
    (13, 14, 15, 16),
    "p2",
    frozenset({"dependencies"}),
    "b",
    "at most b entries a message, and null events",
    PAPER,
)
