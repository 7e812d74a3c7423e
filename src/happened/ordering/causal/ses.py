"""Causal order with vector times per destination, after Schiper, Eggli & Sandoz (WDAG 1989, LNCS 392).

Assumes    reliable links, FIFO or not, that may duplicate; processes that join get the next index.
Promises   causal order for multicasts to arbitrary sets, oneself included.
Leaves out which messages a held one waits for: its vector is the join of the times of all of them, so
           `pending` gives, per process, the clock up to which something of it is missing.
Invariant  `_to[d]` joins the times of the messages to d in our causal past (for ourselves: those not
           delivered yet); `_delivered` joins those of the messages delivered here. A message M(s, c) to us
           is delivered iff lane s of `_delivered` has reached c: whoever knows of its send and reached us
           had to wait for it.

The test is against `_delivered`, never against `_time`, our own clock: that one counts a message to
ourselves when it is sent, and the next could overtake it.
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

FACTS = Facts(
    order="causal",
    casts=frozenset({"unicast", "broadcast", "multicast"}),
    fifo_links=False,
    description="per destination, one vector time that it must have reached",
    paper="Schiper, Eggli & Sandoz, Workshop on Distributed Algorithms, LNCS 392, 1989",
)

Pair = tuple[int, int]
"""(destination, lanes): the vector time it must have reached."""


class SesMessage(NamedTuple):
    """M(sender, clock), the same for all its destinations."""

    sender: int
    clock: int
    n: int
    dests: int  # bit set
    time: int  # lanes: the vector time of its send, itself included
    pairs: tuple[Pair, ...]  # in order of destination
    payload: bytes

    @property
    def to(self) -> frozenset[int]:
        return frozenset(unpack(self.dests))

    def units(self) -> frozenset[Unit]:
        """None: a vector time says what happened, not which message went where."""
        return frozenset()

    def size(self) -> tuple[int, int]:
        """A pair is one entry."""
        return len(self.pairs), 0

    def model_bytes(self) -> int:
        """Its own vector of clocks, and an id and a vector for each pair."""
        return 4 * self.n + (2 + 4 * self.n) * len(self.pairs)

    def wanted(self, process: int) -> int:
        return next((time for d, time in self.pairs if d == process), 0)

    def known_to(self, n: int) -> "SesMessage":
        """The same message as a larger system sees it."""
        vector = lanes(self.n)
        pairs = tuple((d, vector.widened(time, n)) for d, time in self.pairs)
        return self._replace(n=n, time=vector.widened(self.time, n), pairs=pairs)


class SchiperEggliSandoz:
    """One process of the protocol."""

    def __init__(self, me: int, n: int) -> None:
        self._process = Process(me, n)
        self._lanes = lanes(n)
        self._time = 0  # lanes
        self._delivered = 0  # lanes
        self._to: dict[int, int] = {}  # destination -> lanes
        self._parking: Parking[SesMessage] = Parking(self._lacks)

    @property
    def me(self) -> int:
        return self._process.me

    @property
    def n(self) -> int:
        return self._process.n

    def multicast(self, to: Iterable[int], payload: bytes) -> list[Effect]:
        dests = self._process.destinations(to, payload)
        clock = self._process.next_clock()
        self._time = time = self._lanes.put(self._time, self.me, clock)
        message = SesMessage(self.me, clock, self.n, dests, time, tuple(sorted(self._to.items())), payload)
        self._to |= dict.fromkeys(unpack(dests), time)  # it covers every earlier message it knows of
        return [Send(d, message) for d in unpack(dests)]

    def receive(self, message: SesMessage) -> list[Effect]:
        self._process.check(message, SesMessage)
        if message.n < self.n:
            message = message.known_to(self.n)
        self._process.check_known(message, self._lanes.get(message.time, self.me))
        self._process.check_known(message, self._lanes.get(message.wanted(self.me), self.me))
        since = self._process.arrival()
        if message.clock <= self._lanes.get(self._delivered, message.sender) or message in self._parking:
            return []  # a duplicate made by the network
        effects: list[Effect] = []
        for ready in self._parking.admit(message, since):
            self._learn(ready)
            for lane in self._parking.watched:
                self._parking.reached(lane, self._lanes.get(self._delivered, lane))
            effects.append(self._process.delivery(ready))
        return effects

    def pending(self) -> list[Held]:
        return self._parking.pending(self._missing)

    def tick(self) -> int:
        return self._process.next_clock()

    def join(self, process: int) -> None:
        self._process.join(process)
        self._time = self._lanes.widened(self._time, self.n)
        self._delivered = self._lanes.widened(self._delivered, self.n)
        self._to = {d: self._lanes.widened(time, self.n) for d, time in self._to.items()}
        self._lanes = lanes(self.n)
        self._parking.replace(lambda held: held.known_to(self.n))

    def leave(self, process: int) -> None:
        self._process.leave(process)

    def _lacks(self, message: SesMessage) -> Want | None:
        wanted = message.wanted(self.me)
        process = self._lanes.beyond(wanted, self._delivered)
        return None if process is None else (process, self._lanes.get(wanted, process))

    def _missing(self, message: SesMessage) -> Iterable[tuple[int, int]]:
        return self._lanes.items(self._lanes.newer(message.wanted(self.me), self._delivered))

    def _learn(self, message: SesMessage) -> None:
        vector, me = self._lanes, self.me
        self._time = vector.maximum(self._time, message.time)
        self._delivered = vector.maximum(self._delivered, message.time)
        told = dict(message.pairs) | dict.fromkeys(unpack(message.dests), message.time)
        for d, time in told.items():
            self._to[d] = vector.maximum(self._to.get(d, 0), time)
        if vector.beyond(self._to[me], self._delivered) is None:  # the message itself was to us
            del self._to[me]

    def snapshot(self) -> bytes:
        return seal(
            "ses",
            process=self._process.state(),
            time=self._time,
            delivered=self._delivered,
            to=tuple(sorted(self._to.items())),
            held=self._parking.state(),
        )

    def restore(self, data: bytes) -> None:
        with opened("ses", data) as state:
            process = Process.from_state(state["process"])
            time, delivered, to = state["time"], state["delivered"], dict(state["to"])
            held = [(SesMessage(*fields), since) for *fields, since in state["held"]]
        self._process, self._time, self._delivered, self._to = process, time, delivered, to
        self._lanes = lanes(process.n)
        self._parking.refill(held)
