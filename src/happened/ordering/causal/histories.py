"""Causal order with extended causal histories, after Rodrigues & Veríssimo (ICDCS 1995), R1 to R9.

Assumes    reliable links, FIFO or not, that may duplicate; processes that join get the next index. Everybody
           has heard of a departure before the next message. With a `place`, only neighbours are addressed,
           and of these, where the place has routes, those that the routes use: its cuts are cuts of these.
Promises   causal order for multicasts to arbitrary sets; what one sends to oneself is delivered at once.
Leaves out routes: to reach others than neighbours, use `topological`.
Invariant  that of `extended_history`.

Identifiers are dropped from a timestamp if its recipients were told of them (R7, `timestamp_redundancy`), or
if the message leaves for a side of a separator that they do not concern (R9, if the place has separators).
`extended` sends the carbon copies along (R6.1), which empties histories sooner and makes messages longer. A
message whose identifier came in from all its recipients, the first of §4.5's two further tests, has left the
history by R8 already; `expire` is the second.
"""

from collections.abc import Iterable
from typing import Any

from ...core.destinations import unpack
from ...core.effects import Send
from ...core.errors import LocalProtocolError
from ...core.orders import Order
from ...core.places import in_use
from ..facts import MANY_PROCESSES, Assumptions, CopyTravel, Facts, MembershipChanges, Waits, WireFormat
from ..machine import Effect
from ..process import refusal
from .extended_history import HistoryEntry, Timestamped, check_entries, read_entries, without
from .history_process import OPTIONS, HistoryProcess

FACTS = Facts(
    name="histories",
    description="causal, delivery and carbon-copy histories; no process gets the same information twice",
    paper="Rodrigues & Veríssimo, ICDCS 1995",
    order=Order.CAUSAL,
    options=OPTIONS,
    wire=WireFormat(60, "happened.wire.causal:HISTORIES"),
    membership=MembershipChanges(expels_one=True, recycles=True),
    waits=Waits(only_for_past=True),
    assumes=Assumptions(most_processes=MANY_PROCESSES),
    copies=CopyTravel(common_frame=True),
)


class HistoryMessage(Timestamped):
    """M(sender, clock), the same for all its destinations."""

    entries: tuple[HistoryEntry, ...]  # sorted
    payload: bytes


class Histories(HistoryProcess[HistoryMessage]):
    """One process of the protocol."""

    facts = FACTS
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
        effects: list[Effect] = [Send(d, message) for d in unpack(dests & ~(1 << self.me))]
        if dests >> self.me & 1:
            effects.append(self.delivery(message))
        return effects

    def checked(self, message: HistoryMessage) -> HistoryMessage:
        self.check(message, HistoryMessage)
        if message.sender == self.me:
            raise refusal(message, "is ours, and we have it")
        check_entries(message, message.entries, (message.sender, message.clock), self)
        return self.cleared(message) if self.forgotten else message

    def cleared(self, message: HistoryMessage) -> HistoryMessage:
        return message._replace(entries=without(message.entries, self.forgotten))

    def read(self, fields: tuple[Any, ...]) -> HistoryMessage:
        message = HistoryMessage(*fields)
        return message._replace(entries=read_entries(message.entries))
