"""Causal order with extended causal histories, after Rodrigues & Veríssimo (ICDCS 1995), R1 to R9.

Assumes    reliable links, FIFO or not, that may duplicate; processes that join get the next index. Every
           process hears of a departure before the next message. With a `place`, only neighbours are
           addressed, and with routes only those neighbours on routes: separators are cuts of the routes.
Promises   causal order for multicasts to arbitrary sets; a message to oneself is delivered at once.
Leaves out routing: to reach processes that are no neighbours, use `topological`.
Invariant  that of `extended_history`.

A timestamp leaves out an identifier if its recipients were told of it (R7, `timestamp_redundancy`), or if the
message crosses to a side of a separator that the identifier does not concern (R9, if the place has
separators). `extended` sends the carbon copies along (R6.1), which empties histories sooner and makes
messages longer. Of the two further tests of §4.5, the first finds nothing, since R8 has already removed a
message whose identifier came in from all its recipients; `expire` is the second.
"""

from abc import abstractmethod
from collections.abc import Iterable

from ...core.destinations import unpack
from ...core.errors import LocalProtocolError
from ...core.places import Place, in_use
from ...core.telling import RuleUse
from .. import notation
from ..facts import WIDE, CopyTravel, Facts, MembershipChanges, Option, Waits, WireFormat
from ..holding import HoldingProcess, M, Want
from ..machine import Effect, MessageKey
from ..process import State, refusal
from .extended_history import (
    ExtendedHistory,
    HistoryEntry,
    ObservedHistory,
    Timestamped,
    check_entries,
    without,
)
from .placed import PLACE, PlacedProcess

OPTIONS = (
    PLACE,
    Option("timestamp_redundancy", "whether identifiers that a recipient was told of are left out (R7)"),
    Option("extended", "whether the carbon copies travel along (R6.1)"),
)


class HistoryProcess(PlacedProcess, HoldingProcess[M]):
    """A process that keeps an extended causal history and has a place in a communication graph. The messages
    that it holds have a field `entries`: their timestamp."""

    def __init__(
        self,
        me: int,
        n: int,
        *,
        place: Place | None = None,
        timestamp_redundancy: bool = True,
        extended: bool = False,
    ) -> None:
        super().__init__(me, n, place=place)
        self._history = ExtendedHistory(me)
        self._timestamp_redundancy = timestamp_redundancy
        self._extended = extended

    def timestamp(self, to: int) -> tuple[HistoryEntry, ...]:
        """The timestamp of a message from here to this set of neighbours."""
        separators = self.place.separators if self._has_topology else ()
        return self._history.stamp(
            to, separators, redundancy=self._timestamp_redundancy, extended=self._extended
        )

    def delivered(self, sender: int) -> int:
        return self._history.last(sender)

    def lacks(self, message: M) -> Want | None:
        return self._history.lacks(message.entries)

    def missing(self, message: M) -> Iterable[MessageKey]:
        return self._history.missing(message.entries)

    def learn(self, message: M) -> None:
        self._history.deliver(message.sender, message.clock, message.dests, message.entries)

    def history(self) -> tuple[HistoryEntry, ...]:
        """The messages that precede the next one to be sent, with their carbon copies."""
        return tuple(self._history)

    def log_size(self) -> tuple[int, int]:
        history = self.history()
        return len(history), sum(entry.dests.bit_count() for entry in history)

    def expire(self) -> None:
        """The caller promises: a time Δ in which every message is delivered has passed since the last."""
        self._history.expire()

    def skip(self, process: int, clock: int) -> Iterable[int]:
        self._history.skip(process, clock)
        return (process,)

    def hold(self, message: M, want: Want) -> None:
        super().hold(message, want)
        if isinstance(self._history, ObservedHistory):
            self._history.held(f"{message.sender},{message.clock}", message.entries)

    def observe(self) -> None:
        self._history = ObservedHistory(self.me).resume(self._history.state())

    def observed(self) -> list[RuleUse]:
        return self._history.observed() if isinstance(self._history, ObservedHistory) else []

    def knowledge(self) -> list[tuple[str, str]]:
        history = self.history()
        delivered = " ".join(f"{s},{t}" for s, t in self._history.delivered())
        return [
            ("H", notation.entries((e.sender, e.clock, frozenset(unpack(e.dests))) for e in history)),
            ("C", notation.entries((e.sender, e.clock, frozenset(unpack(e.copied))) for e in history)),
            ("D", delivered or "nothing"),
        ]

    @abstractmethod
    def cleared(self, message: M) -> M:
        """A message without the entries about processes that we have forgotten."""

    def forget(self, process: int) -> None:
        super().forget(process)
        self._history.forget(process)
        self._parking.replace(self.cleared)

    def join(self, process: int) -> list[Effect]:
        is_known = process < self.n
        effects = super().join(process)
        if is_known:
            self._history.meet(process)
        return effects

    def leave(self, process: int) -> list[Effect]:
        effects = super().leave(process)
        self._history.leave(process)
        return effects

    def save(self) -> State:
        return super().save() | {"history": self._history.state()}

    def load(self, state: State) -> None:
        super().load(state)
        self._history = type(self._history)(self.me).resume(state["history"])


class HistoryMessage(Timestamped):
    entries: tuple[HistoryEntry, ...]  # sorted
    payload: bytes


class Histories(HistoryProcess[HistoryMessage]):
    facts = Facts(
        name="histories",
        description="causal, delivery and carbon-copy histories; no process gets the same information twice",
        paper="Rodrigues & Veríssimo, ICDCS 1995",
        options=OPTIONS,
        wire=WireFormat(60, "happened.wire.causal:HISTORIES"),
        membership=MembershipChanges(expels_one=True, recycles=True),
        waits=Waits(only_for_past=True),
        assumes=WIDE,
        copies=CopyTravel(common_frame=True),
    )
    message_type = HistoryMessage

    def address(self, to: Iterable[int], payload: bytes) -> int:
        dests = self.destinations(to, payload)
        strangers = dests & ~in_use(self.place) & ~(1 << self.me) if self._has_topology else 0
        if strangers:
            names = ", ".join(map(str, unpack(strangers)))
            raise LocalProtocolError(f"{names} is no neighbour of process {self.me}: use topological")
        return dests

    def stamp(self, clock: int, dests: int, payload: bytes) -> list[Effect]:
        message = HistoryMessage(self.me, clock, self.n, dests, self.timestamp(dests), payload)
        self._history.sent(clock, dests)
        return self.to_others(message, dests)

    def checked(self, message: HistoryMessage) -> HistoryMessage:
        self.check(message, HistoryMessage)
        if message.sender == self.me:
            raise refusal(message, "is ours, and we have it")
        check_entries(message, message.entries, (message.sender, message.clock), self)
        return self.cleared(message) if self.forgotten else message

    def cleared(self, message: HistoryMessage) -> HistoryMessage:
        return message._replace(entries=without(message.entries, self.forgotten))
