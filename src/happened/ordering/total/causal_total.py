"""Causal and total order together: agreement on timestamps that respect what happened before.

Assumes    reliable links, FIFO or not, that may duplicate; processes that join get the next index.
Promises   one order of all messages, which every process follows and which contains causal order, for
           multicasts to arbitrary sets, oneself included. The application never blocks, and nothing is
           carried beyond what `agreed` carries.
Leaves out speed: a sender has one message at a time under agreement, the others wait in its outbox.
Invariant  whatever is in the causal past of a message whose agreement begins has its final timestamp, and
           our own timestamp is at least that. What we delivered had one; what we sent, because the outbox
           waits for it. So a message's timestamp exceeds those of its whole past, and since its past has
           been proposed for everywhere, no queue can let it pass.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ..machine import Effect, Facts, Held
from ..process import Process
from ..snapshots import opened, seal
from .three_phase import ThreePhase

FACTS = Facts(
    order="causal-total",
    casts=frozenset({"unicast", "broadcast", "multicast"}),
    fifo_links=False,
    description="three phases agree on a timestamp beyond those of the causal past",
    paper="Skeen; in Birman & Joseph, ACM TOCS 5(1), 1987; one message of a sender at a time",
)


class _Unsent(NamedTuple):
    clock: int
    dests: int
    payload: bytes


class CausalTotalOrder:
    def __init__(self, me: int, n: int) -> None:
        self._process = Process(me, n)
        self._phases = ThreePhase(self._process)
        self._outbox: deque[_Unsent] = deque()

    @property
    def me(self) -> int:
        return self._process.me

    @property
    def n(self) -> int:
        return self._process.n

    @property
    def clock(self) -> int:
        return self._process.clock

    @property
    def queued(self) -> int:
        """How many of our messages have not left yet."""
        return len(self._outbox)

    def multicast(self, to: Iterable[int], payload: bytes) -> list[Effect]:
        dests = self._process.destinations(to, payload)
        self._outbox.append(_Unsent(self._process.next_clock(), dests, payload))
        return list(self._begin())

    def receive(self, message: Any) -> list[Effect]:
        self._phases.check(message)
        self._process.arrival()
        return [*self._phases.receive(message), *self._begin()]

    def _begin(self) -> Iterator[Effect]:
        while self._outbox and self._phases.settled:
            yield from self._phases.begin(*self._outbox.popleft())

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
        return seal(
            "causal-total",
            process=self._process.state(),
            phases=self._phases.state(),
            outbox=tuple(self._outbox),
        )

    def restore(self, data: bytes) -> None:
        with opened("causal-total", data) as state:
            process = Process.from_state(state["process"])
            phases = ThreePhase.from_state(process, state["phases"])
            outbox = deque(_Unsent(*fields) for fields in state["outbox"])
        self._process, self._phases, self._outbox = process, phases, outbox
