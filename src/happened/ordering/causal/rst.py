"""Causal order with a matrix of what was sent, after Raynal, Schiper & Toueg (IPL 39(6), 1991).

Assumes    reliable links, FIFO or not, that may duplicate; processes that join get the next index.
Promises   causal order for multicasts to arbitrary sets, oneself included.
Leaves out any saving: every message carries n² numbers, whatever happened.
Invariant  lane s of `_sent[d]` is the clock of the last message of s to d in our causal past; lane s of
           `_delivered` is the clock of the last message of s delivered here, and since delivery is in
           causal order, every earlier one to us was too.

The paper counts the messages from s to d; here the last one is named by its clock. To a receiver that
delivers in order both say the same, a multicast raises the column of *every* destination, a held message
can say which one it waits for, and a self-addressed message cannot be counted twice, at its send and
again at its delivery, which wedges the protocol as published.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ...core.destinations import unpack
from ...core.effects import Send
from ...core.lanes import lanes
from ..machine import Effect, Facts, Held, Unit
from ..parking import Parking, Want
from ..process import Process
from ..snapshots import opened, seal
from .columns import Columns, known_to, named, units_of

FACTS = Facts(
    order="causal",
    casts=frozenset({"unicast", "broadcast", "multicast"}),
    fifo_links=False,
    description="a matrix of the last message from everyone to everyone",
    paper="Raynal, Schiper & Toueg, Information Processing Letters 39(6), 1991",
)


class RstMessage(NamedTuple):
    """M(sender, clock), the same for all its destinations."""

    sender: int
    clock: int
    n: int
    dests: int  # bit set
    sent: Columns  # per destination, lanes: the last message of each sender to it before this one
    payload: bytes

    @property
    def to(self) -> frozenset[int]:
        return frozenset(unpack(self.dests))

    def units(self) -> frozenset[Unit]:
        return units_of(self.sent)

    def size(self) -> tuple[int, int]:
        """The whole matrix, of which the units are the entries that name a message."""
        return self.n * self.n, named(self.sent)

    def model_bytes(self) -> int:
        return 4 * self.n * self.n


class RaynalSchiperToueg:
    """One process of the protocol."""

    def __init__(self, me: int, n: int) -> None:
        self._process = Process(me, n)
        self._lanes = lanes(n)
        self._sent: list[int] = [0] * n
        self._delivered = 0  # lanes
        self._parking: Parking[RstMessage] = Parking(self._lacks)

    @property
    def me(self) -> int:
        return self._process.me

    @property
    def n(self) -> int:
        return self._process.n

    def multicast(self, to: Iterable[int], payload: bytes) -> list[Effect]:
        dests = self._process.destinations(to, payload)
        clock = self._process.next_clock()
        message = RstMessage(self.me, clock, self.n, dests, tuple(self._sent), payload)
        for d in unpack(dests):
            self._sent[d] = self._lanes.put(self._sent[d], self.me, clock)
        return [Send(d, message) for d in unpack(dests)]

    def receive(self, message: RstMessage) -> list[Effect]:
        self._process.check(message, RstMessage)
        if message.n < self.n:
            message = message._replace(n=self.n, sent=known_to(message.sent, self.n))
        self._process.check_known(message, self._lanes.get(message.sent[self.me], self.me))
        since = self._process.arrival()
        if message.clock <= self._lanes.get(self._delivered, message.sender) or message in self._parking:
            return []  # a duplicate made by the network
        effects: list[Effect] = []
        for ready in self._parking.admit(message, since):
            self._learn(ready)
            self._parking.reached(ready.sender, ready.clock)
            effects.append(self._process.delivery(ready))
        return effects

    def pending(self) -> list[Held]:
        return self._parking.pending(self._missing)

    def tick(self) -> int:
        return self._process.next_clock()

    def join(self, process: int) -> None:
        self._process.join(process)
        self._sent = list(known_to(tuple(self._sent), self.n))
        self._delivered = self._lanes.widened(self._delivered, self.n)
        self._lanes = lanes(self.n)
        self._parking.replace(lambda held: held._replace(n=self.n, sent=known_to(held.sent, self.n)))

    def leave(self, process: int) -> None:
        self._process.leave(process)

    def _lacks(self, message: RstMessage) -> Want | None:
        wanted = message.sent[self.me]
        sender = self._lanes.beyond(wanted, self._delivered)
        return None if sender is None else (sender, self._lanes.get(wanted, sender))

    def _missing(self, message: RstMessage) -> Iterable[tuple[int, int]]:
        return self._lanes.items(self._lanes.newer(message.sent[self.me], self._delivered))

    def _learn(self, message: RstMessage) -> None:
        vector, sender, clock = self._lanes, message.sender, message.clock
        self._delivered = vector.put(self._delivered, sender, clock)
        for d, (ours, theirs) in enumerate(zip(self._sent, message.sent, strict=True)):
            if message.dests >> d & 1:
                theirs = vector.put(theirs, sender, clock)
            if theirs != ours:
                self._sent[d] = vector.maximum(ours, theirs)

    def snapshot(self) -> bytes:
        return seal(
            "rst",
            process=self._process.state(),
            sent=tuple(self._sent),
            delivered=self._delivered,
            held=self._parking.state(),
        )

    def restore(self, data: bytes) -> None:
        with opened("rst", data) as state:
            process = Process.from_state(state["process"])
            sent, delivered = list(state["sent"]), state["delivered"]
            held = [(RstMessage(*fields), since) for *fields, since in state["held"]]
        self._process, self._sent, self._delivered = process, sent, delivered
        self._lanes = lanes(process.n)
        self._parking.refill(held)
