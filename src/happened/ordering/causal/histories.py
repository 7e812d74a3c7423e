"""Causal order with extended causal histories, after Rodrigues & Veríssimo (ICDCS 1995), R1 to R9.

Assumes    reliable links, FIFO or not, that may duplicate; processes that join get the next index. Everybody
           has heard of a departure before the next message. With a `place`, only neighbours are addressed.
Promises   causal order for multicasts to arbitrary sets; what one sends to oneself is delivered at once.
Leaves out routes: to reach others than neighbours, use `topological`.
Invariant  that of `history`.

Identifiers are dropped from a timestamp if its recipients were told of them (R7, `timestamp_redundancy`), or
if the message leaves for a side of a separator that they do not concern (R9, if the place has separators).
`extended` sends the carbon copies along (R6.1), which empties histories sooner and makes messages longer. A
message whose identifier came in from all its recipients, the first of §4.5's two further tests, has left the
history by R8 already; `expire` is the second.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ...core.destinations import unpack
from ...core.effects import Send
from ...core.errors import LocalProtocolError
from ...core.places import Place, alone, check, restored
from ..machine import Effect, Facts, Held, Unit
from ..parking import Parking, Want
from ..process import Process, refusal
from ..snapshots import opened, seal
from .history import Entry, History, Name, check_entries, model_bytes_of, size_of, units_of

FACTS = Facts(
    order="causal",
    casts=frozenset({"unicast", "broadcast", "multicast"}),
    fifo_links=False,
    description="causal, delivery and carbon-copy histories; whoever was told is not told again",
    paper="Rodrigues & Veríssimo, ICDCS 1995",
)


class HistoryMessage(NamedTuple):
    """M(sender, clock), the same for all its destinations."""

    sender: int
    clock: int
    n: int
    dests: int  # bit set
    entries: tuple[Entry, ...]  # sorted
    payload: bytes

    @property
    def to(self) -> frozenset[int]:
        return frozenset(unpack(self.dests))

    def units(self) -> frozenset[Unit]:
        return units_of(self.entries)

    def size(self) -> tuple[int, int]:
        return size_of(self.entries)

    def model_bytes(self) -> int:
        return model_bytes_of(self.entries)


class Histories:
    """One process of the protocol."""

    def __init__(
        self,
        me: int,
        n: int,
        *,
        place: Place | None = None,
        timestamp_redundancy: bool = True,
        extended: bool = False,
    ) -> None:
        self._process = Process(me, n)
        self._history = History(me)
        self._timestamp_redundancy = timestamp_redundancy
        self._extended = extended
        self._parking: Parking[HistoryMessage] = Parking(self._lacks)
        self._place: Place | None = None
        if place is not None:
            self.move(place)

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
    def gone(self) -> int:
        """Bit set: those who have left."""
        return self._process.gone

    @property
    def place(self) -> Place:
        """Without a topology, everybody is a neighbour."""
        return self._place if self._place is not None else alone(self.me, self.n)

    def multicast(self, to: Iterable[int], payload: bytes) -> list[Effect]:
        dests = self._process.destinations(to, payload)
        strangers = 0 if self._place is None else dests & ~self._place.neighbours & ~(1 << self.me)
        if strangers:
            names = ", ".join(map(str, unpack(strangers)))
            raise LocalProtocolError(f"{names} is no neighbour of process {self.me}: use topological")
        separators = self._place.separators if self._place is not None else ()
        entries = self._history.stamp(
            dests, separators, redundancy=self._timestamp_redundancy, extended=self._extended
        )
        message = HistoryMessage(self.me, self._process.next_clock(), self.n, dests, entries, payload)
        self._history.sent(message.clock, dests)
        effects: list[Effect] = [Send(d, message) for d in unpack(dests & ~(1 << self.me))]
        if dests >> self.me & 1:
            effects.append(self._process.delivery(message))
        return effects

    def receive(self, message: HistoryMessage) -> list[Effect]:
        self._process.check(message, HistoryMessage)
        if message.sender == self.me:
            raise refusal(message, "is ours, and we have it")
        check_entries(message, message.entries, (message.sender, message.clock), self._process)
        since = self._process.arrival()
        if message.clock <= self._history.last(message.sender) or message in self._parking:
            return []  # a duplicate made by the network
        effects: list[Effect] = []
        for ready in self._parking.admit(message, since):
            self._history.deliver(ready.sender, ready.clock, ready.dests, ready.entries)
            self._parking.reached(ready.sender, ready.clock)
            effects.append(self._process.delivery(ready))
        return effects

    def _lacks(self, message: HistoryMessage) -> Want | None:
        return self._history.lacks(message.entries)

    def pending(self) -> list[Held]:
        return self._parking.pending(lambda message: self._history.missing(message.entries))

    def history(self) -> tuple[Entry, ...]:
        """The messages that precede the next one to be sent, with their carbon copies."""
        return tuple(self._history)

    def log_size(self) -> tuple[int, int]:
        return size_of(self.history())

    def awaits(self, entries: Iterable[Entry]) -> tuple[Name, ...]:
        """The messages of another process's history that were sent to us and have not been delivered yet."""
        return tuple(self._history.missing(entries))

    def adopt(self, entries: Iterable[Entry]) -> None:
        """Take over the history of another process, for a new place in the graph.

        Like a timestamp, it can be taken only when what it names and was sent to us has been delivered.
        """
        entries = tuple(entries)
        if missing := self.awaits(entries):
            names = ", ".join(f"M{name}" for name in missing)
            raise LocalProtocolError(f"process {self.me} must deliver {names} before it adopts this history")
        self._history.adopt(entries)

    def expire(self) -> None:
        """To be called when a time Δ in which every message is delivered has passed since the last call."""
        self._history.expire()

    def move(self, place: Place) -> None:
        """Stand at this place of the communication graph from now on."""
        check(place, self.me, self.n)
        self._place = place

    def tick(self) -> int:
        return self._process.next_clock()

    def join(self, process: int) -> None:
        self._process.join(process)

    def leave(self, process: int) -> None:
        self._process.leave(process)
        self._history.leave(process)

    def snapshot(self) -> bytes:
        return seal(
            "histories",
            process=self._process.state(),
            history=self._history.state(),
            held=self._parking.state(),
            place=self._place,
        )

    def restore(self, data: bytes) -> None:
        with opened("histories", data) as state:
            process, history = Process.from_state(state["process"]), state["history"]
            History(process.me).restore(history)
            place = None if state["place"] is None else restored(state["place"])
            held = [
                (HistoryMessage(s, c, n, dests, tuple(Entry(*entry) for entry in entries), payload), since)
                for s, c, n, dests, entries, payload, since in state["held"]
            ]
        self._process, self._place = process, place
        self._history.restore(history)
        self._parking.refill(held)
