"""Causal order with direct predecessors, after Prakash, Raynal & Singhal (JPDC 41(2), 1997).

Assumes    reliable links, FIFO or not, that may duplicate; processes that join get the next index.
Promises   causal order for multicasts to arbitrary sets, oneself included.
Leaves out what it learns of deliveries elsewhere: a predecessor stays in the set of its destination until
           a later message to that destination covers it, however long ago it was delivered there.
Invariant  `_before[d]` is the paper's CB[d]: the messages to d in our causal past that no later message to
           d in it is known to cover; lane s of `_delivered` is the clock of the last message of s
           delivered here, and since delivery is in causal order, every earlier one to us was too.

The seeds do not print it. On a delivery, a destination of the message keeps what the message does not
cover (the paper's -max) and gets the message itself; any other takes the union (its ∪max).
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
    description="per destination, the direct predecessors of the next message to it",
    paper="Prakash, Raynal & Singhal, J. Parallel and Distributed Computing 41(2), 1997",
)


class PrsMessage(NamedTuple):
    """M(sender, clock), the same for all its destinations."""

    sender: int
    clock: int
    n: int
    dests: int  # bit set
    before: Columns  # per destination, lanes: the direct predecessors of this message there, by sender
    payload: bytes

    @property
    def to(self) -> frozenset[int]:
        return frozenset(unpack(self.dests))

    def units(self) -> frozenset[Unit]:
        return units_of(self.before)

    def size(self) -> tuple[int, int]:
        """An entry names one message and one destination."""
        predecessors = named(self.before)
        return predecessors, predecessors

    def model_bytes(self) -> int:
        """A sender and a clock for each predecessor; an id and a count for each destination that has any."""
        return 6 * named(self.before) + 4 * sum(map(bool, self.before))


class PrakashRaynalSinghal:
    """One process of the protocol."""

    def __init__(self, me: int, n: int) -> None:
        self._process = Process(me, n)
        self._lanes = lanes(n)
        self._before: list[int] = [0] * n
        self._delivered = 0  # lanes
        self._parking: Parking[PrsMessage] = Parking(self._lacks)

    @property
    def me(self) -> int:
        return self._process.me

    @property
    def n(self) -> int:
        return self._process.n

    def multicast(self, to: Iterable[int], payload: bytes) -> list[Effect]:
        dests = self._process.destinations(to, payload)
        clock = self._process.next_clock()
        message = PrsMessage(self.me, clock, self.n, dests, tuple(self._before), payload)
        for d in unpack(dests):
            self._before[d] = self._lanes.put(0, self.me, clock)
        return [Send(d, message) for d in unpack(dests)]

    def receive(self, message: PrsMessage) -> list[Effect]:
        self._process.check(message, PrsMessage)
        if message.n < self.n:
            message = message._replace(n=self.n, before=known_to(message.before, self.n))
        self._process.check_known(message, self._lanes.get(message.before[self.me], self.me))
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
        self._before = list(known_to(tuple(self._before), self.n))
        self._delivered = self._lanes.widened(self._delivered, self.n)
        self._lanes = lanes(self.n)
        self._parking.replace(lambda held: held._replace(n=self.n, before=known_to(held.before, self.n)))

    def leave(self, process: int) -> None:
        self._process.leave(process)

    def _lacks(self, message: PrsMessage) -> Want | None:
        wanted = message.before[self.me]
        sender = self._lanes.beyond(wanted, self._delivered)
        return None if sender is None else (sender, self._lanes.get(wanted, sender))

    def _missing(self, message: PrsMessage) -> Iterable[tuple[int, int]]:
        return self._lanes.items(self._lanes.newer(message.before[self.me], self._delivered))

    def _learn(self, message: PrsMessage) -> None:
        vector, sender = self._lanes, message.sender
        self._delivered = vector.put(self._delivered, sender, message.clock)
        itself = vector.put(0, sender, message.clock)
        for d, (ours, theirs) in enumerate(zip(self._before, message.before, strict=True)):
            if message.dests >> d & 1:
                ours, theirs = vector.newer(ours, theirs), itself
            self._before[d] = vector.maximum(ours, theirs)
        # What is left of our own column are messages to ourselves that have not come back yet.
        self._before[self.me] = vector.newer(self._before[self.me], self._delivered)

    def snapshot(self) -> bytes:
        return seal(
            "prs",
            process=self._process.state(),
            before=tuple(self._before),
            delivered=self._delivered,
            held=self._parking.state(),
        )

    def restore(self, data: bytes) -> None:
        with opened("prs", data) as state:
            process = Process.from_state(state["process"])
            before, delivered = list(state["before"]), state["delivered"]
            held = [(PrsMessage(*fields), since) for *fields, since in state["held"]]
        self._process, self._before, self._delivered = process, before, delivered
        self._lanes = lanes(process.n)
        self._parking.refill(held)
