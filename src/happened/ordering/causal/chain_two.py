"""Order over causal chains of at most two messages, after Adelstein & Singhal (ICDCS 15, 1995).

Assumes    reliable links, FIFO or not, that may duplicate; processes that join get the next index.
Promises   a message does not overtake one that its own sender sent before it, nor one whose sender then
           sent a message to its sender: chains of one and of two messages (Kshemkalyani & Singhal 1998,
           Lemma 8).
Leaves out every longer chain: *this is not causal order*. Along three messages (x to d and a; a to b; b to
           d) the last overtakes x. It takes four processes, or three where x is sent by d itself.
Invariant  lane d of `_last[s]` is the clock of the last message of s to d that we sent (s = ourselves) or
           that s told us of itself; lane s of `_delivered` is the clock of the last message of s delivered
           here, and every earlier one to us was too.
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
from .columns import known_to

FACTS = Facts(
    order="fifo",  # the strongest of the four that it keeps
    casts=frozenset({"unicast", "broadcast", "multicast"}),
    fifo_links=False,
    description="FIFO, and causal order over chains of two messages: violated from length three on",
    paper="Adelstein & Singhal, International Conference on Distributed Computing Systems 15, 1995",
)


class ChainTwoMessage(NamedTuple):
    """M(sender, clock) as one destination gets it."""

    sender: int
    clock: int
    n: int
    dests: int  # bit set
    receiver: int
    sent: int  # lanes by destination: the sender's last message to each before this one
    due: int  # lanes by sender: the last message of each to `receiver` that the sender knows of
    payload: bytes

    @property
    def to(self) -> frozenset[int]:
        return frozenset(unpack(self.dests))

    def units(self) -> frozenset[Unit]:
        vector = lanes(self.n)
        sent = {(self.sender, t, d) for d, t in vector.items(self.sent)}
        return frozenset(sent | {(s, t, self.receiver) for s, t in vector.items(self.due)})

    def size(self) -> tuple[int, int]:
        """Two whole vectors."""
        return 2 * self.n, len(self.units())

    def model_bytes(self) -> int:
        return 4 * 2 * self.n

    def known_to(self, n: int) -> "ChainTwoMessage":
        """The same message as a larger system sees it."""
        vector = lanes(self.n)
        return self._replace(n=n, sent=vector.widened(self.sent, n), due=vector.widened(self.due, n))


class AdelsteinSinghal:
    """One process of the protocol."""

    def __init__(self, me: int, n: int) -> None:
        self._process = Process(me, n)
        self._lanes = lanes(n)
        self._last: list[int] = [0] * n
        self._delivered = 0  # lanes
        self._parking: Parking[ChainTwoMessage] = Parking(self._lacks)

    @property
    def me(self) -> int:
        return self._process.me

    @property
    def n(self) -> int:
        return self._process.n

    def multicast(self, to: Iterable[int], payload: bytes) -> list[Effect]:
        dests = self._process.destinations(to, payload)
        clock, me, n = self._process.next_clock(), self.me, self.n
        sent = self._last[me]
        effects: list[Effect] = [
            Send(d, ChainTwoMessage(me, clock, n, dests, d, sent, self._due(d), payload))
            for d in unpack(dests)
        ]
        self._last[me] = self._including(sent, dests, clock)
        return effects

    def receive(self, message: ChainTwoMessage) -> list[Effect]:
        self._process.check(message, ChainTwoMessage)
        if message.n < self.n:
            message = message.known_to(self.n)
        self._process.check_known(message, self._lanes.get(message.due, self.me))
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
        self._last = list(known_to(tuple(self._last), self.n))
        self._delivered = self._lanes.widened(self._delivered, self.n)
        self._lanes = lanes(self.n)
        self._parking.replace(lambda held: held.known_to(self.n))

    def leave(self, process: int) -> None:
        self._process.leave(process)

    def _due(self, destination: int) -> int:
        """The last message of each process to this destination that we know of."""
        place, width, value = self._lanes.width * destination, self._lanes.width, self._lanes.value
        return sum((row >> place & value) << width * s for s, row in enumerate(self._last))

    def _including(self, row: int, dests: int, clock: int) -> int:
        for d in unpack(dests):
            row = self._lanes.put(row, d, clock)
        return row

    def _lacks(self, message: ChainTwoMessage) -> Want | None:
        sender = self._lanes.beyond(message.due, self._delivered)
        return None if sender is None else (sender, self._lanes.get(message.due, sender))

    def _missing(self, message: ChainTwoMessage) -> Iterable[tuple[int, int]]:
        return self._lanes.items(self._lanes.newer(message.due, self._delivered))

    def _learn(self, message: ChainTwoMessage) -> None:
        sender = message.sender
        self._delivered = self._lanes.put(self._delivered, sender, message.clock)
        if sender != self.me:  # our own row is ahead of what comes back to us
            self._last[sender] = self._including(message.sent, message.dests, message.clock)

    def snapshot(self) -> bytes:
        return seal(
            "chain-two",
            process=self._process.state(),
            last=tuple(self._last),
            delivered=self._delivered,
            held=self._parking.state(),
        )

    def restore(self, data: bytes) -> None:
        with opened("chain-two", data) as state:
            process = Process.from_state(state["process"])
            last, delivered = list(state["last"]), state["delivered"]
            held = [(ChainTwoMessage(*fields), since) for *fields, since in state["held"]]
        self._process, self._last, self._delivered = process, last, delivered
        self._lanes = lanes(process.n)
        self._parking.refill(held)
