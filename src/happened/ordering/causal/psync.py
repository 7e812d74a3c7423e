"""Causal broadcast by context graph, after Peterson, Buchholz & Schlichting (ACM TOCS 7(3), 1989).

Assumes    a conversation among fixed processes, in which every message goes to everybody; links that may
           reorder or duplicate but not lose.
Promises   causal order, with the names of a message's immediate predecessors as all it carries.
Leaves out the conversation's history, and members that join: they would need it.
Invariant  `_leaves` are the messages in our view that precede no other one there: a message sent now has
           exactly these as its immediate predecessors. A message enters the view after its predecessors;
           each sender's messages precede one another, so they enter in the order of their clocks.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ...core.destinations import unpack
from ...core.effects import Send
from ...core.errors import LocalProtocolError
from ...core.lanes import CLOCK_LIMIT
from ..machine import Effect, Facts, Held, Unit
from ..parking import Parking, Want
from ..process import Process, refusal
from ..snapshots import opened, seal

FACTS = Facts(
    order="causal",
    casts=frozenset({"broadcast"}),
    fifo_links=False,
    description="context graph: carries the names of the immediate predecessors",
    paper="Peterson, Buchholz & Schlichting, ACM TOCS 7(3), 1989",
)

MessageKey = tuple[int, int]


class PsyncMessage(NamedTuple):
    sender: int
    clock: int
    n: int
    dests: int  # bit set
    context: tuple[MessageKey, ...]  # the immediate predecessors, one of a sender at most, sorted
    payload: bytes

    @property
    def to(self) -> frozenset[int]:
        return frozenset(unpack(self.dests))

    def units(self) -> frozenset[Unit]:
        """None: a context names messages, not destinations."""
        return frozenset()

    def size(self) -> tuple[int, int]:
        return len(self.context), 0

    def model_bytes(self) -> int:
        return 6 * len(self.context)


class ContextGraph:
    def __init__(self, me: int, n: int) -> None:
        self._process = Process(me, n)
        self._view: dict[int, int] = {}  # per sender the clock of its last message in our view
        self._leaves: set[MessageKey] = set()
        self._parking: Parking[PsyncMessage] = Parking(self._lacks)

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
        dests = self._process.broadcast(to, payload)
        context = tuple(sorted(self._leaves))
        message = PsyncMessage(self.me, self._process.next_clock(), self.n, dests, context, payload)
        self._enter(message)
        effects: list[Effect] = [Send(d, message) for d in unpack(dests & ~(1 << self.me))]
        if dests >> self.me & 1:
            effects.append(self._process.delivery(message))
        return effects

    def receive(self, message: PsyncMessage) -> list[Effect]:
        self._check(message)
        since = self._process.arrival()
        if message.clock <= self._view.get(message.sender, 0) or message in self._parking:
            return []  # a duplicate made by the network
        effects: list[Effect] = []
        for ready in self._parking.admit(message, since):
            self._enter(ready)
            self._parking.reached(ready.sender, ready.clock)
            effects.append(self._process.delivery(ready))
        return effects

    def _check(self, message: PsyncMessage) -> None:
        self._process.check(message, PsyncMessage)
        if message.sender == self.me:
            raise refusal(message, "is our own, and we have it")
        for sender, clock in message.context:
            if not 0 <= sender < self.n or not 0 < clock < CLOCK_LIMIT:
                raise refusal(message, f"follows M({sender}, {clock}), which nobody can have sent")
            if sender == self.me:
                self._process.check_known(message, clock)

    def _lacks(self, message: PsyncMessage) -> Want | None:
        return next(iter(self._missing(message)), None)

    def _missing(self, message: PsyncMessage) -> Iterable[MessageKey]:
        return (key for key in message.context if key[1] > self._view.get(key[0], 0))

    def _enter(self, message: PsyncMessage) -> None:
        self._view[message.sender] = message.clock
        self._leaves.difference_update(message.context)
        self._leaves.add((message.sender, message.clock))

    def pending(self) -> list[Held]:
        return self._parking.pending(self._missing)

    def log_size(self) -> tuple[int, int]:
        """How many names are kept for the next message."""
        return len(self._leaves), len(self._leaves)

    def tick(self) -> int:
        return self._process.next_clock()

    def join(self, process: int) -> None:
        raise LocalProtocolError("a conversation has fixed members: start a new one with the new process")

    def leave(self, process: int) -> None:
        self._process.leave(process)

    def snapshot(self) -> bytes:
        return seal(
            "psync",
            process=self._process.state(),
            view=sorted(self._view.items()),
            leaves=sorted(self._leaves),
            held=self._parking.state(),
        )

    def restore(self, data: bytes) -> None:
        with opened("psync", data) as state:
            process = Process.from_state(state["process"])
            view, leaves = dict(state["view"]), set(state["leaves"])
            held = [(PsyncMessage(*fields), since) for *fields, since in state["held"]]
        self._process, self._view, self._leaves = process, view, leaves
        self._parking.refill(held)
