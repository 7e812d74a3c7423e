"""Total order by agreement on a timestamp in three phases: Skeen's algorithm (in Birman & Joseph, ACM TOCS
5(1), 1987), with repairs to the form in which textbooks print it.

Assumes    reliable links, FIFO or not, that may duplicate; processes that join get the next index.
Promises   total order for multicasts to arbitrary sets, oneself included: all messages have one order that
           every process follows. 3 transmissions per destination, three hops until delivery.
Leaves out the order in which one process sends: on links that reorder, or across overlapping groups, two
           messages of one sender may be delivered in the other order; see causal_total.py.
Invariant  that of three_phase.py, which also says what was wrong in print.
"""

from collections.abc import Iterable
from typing import Any

from ..machine import Effect, Facts, Held
from ..process import Process
from ..snapshots import opened, seal
from .three_phase import ThreePhase

FACTS = Facts(
    order="total",
    casts=frozenset({"unicast", "broadcast", "multicast"}),
    fifo_links=False,
    description="three phases agree on a timestamp for every message",
    paper="Skeen; in Birman & Joseph, ACM TOCS 5(1), 1987; three repairs, see docs/papers.md",
)


class AgreedTotalOrder:
    def __init__(self, me: int, n: int) -> None:
        self._process = Process(me, n)
        self._phases = ThreePhase(self._process)

    @property
    def me(self) -> int:
        return self._process.me

    @property
    def n(self) -> int:
        return self._process.n

    @property
    def clock(self) -> int:
        return self._process.clock

    def multicast(self, to: Iterable[int], payload: bytes) -> list[Effect]:
        dests = self._process.destinations(to, payload)
        return list(self._phases.begin(self._process.next_clock(), dests, payload))

    def receive(self, message: Any) -> list[Effect]:
        self._phases.check(message)
        self._process.arrival()
        return list(self._phases.receive(message))

    def pending(self) -> list[Held]:
        """A message that waits for itself lacks its final timestamp."""
        return self._phases.pending()

    def tick(self) -> int:
        return self._process.next_clock()

    def join(self, process: int) -> None:
        self._process.join(process)

    def leave(self, process: int) -> None:
        """It still proposes for what is on its way to it."""
        self._process.leave(process)

    def snapshot(self) -> bytes:
        return seal("agreed", process=self._process.state(), phases=self._phases.state())

    def restore(self, data: bytes) -> None:
        with opened("agreed", data) as state:
            process = Process.from_state(state["process"])
            phases = ThreePhase.from_state(process, state["phases"])
        self._process, self._phases = process, phases
