"""Causal and total order together: agreement on timestamps that respect what happened before.

Assumes    reliable links, FIFO or not, that may duplicate; processes that join get the next index.
Promises   one order of all messages, which every process follows and which contains causal order, for
           multicasts to arbitrary sets, oneself included. The application never blocks, and messages carry no
           more than those of `agreed`.
Leaves out speed: a sender has one message at a time under agreement; its next ones wait in its outbox.
Invariant  when the agreement on a message begins, every message in its causal past has a final timestamp, and
           our own timestamp is at least as large. Messages that we delivered had a final timestamp; messages
           that we sent have one because the outbox waits for it. So a message's timestamp exceeds those of
           its whole past, and since all destinations have proposed for its past, no queue lets it overtake.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from ...core.orders import Order
from ..facts import Facts, MembershipChanges, Waits
from ..machine import Effect
from ..snapshots import kept, records
from .three_phase import AT_EXPULSION, AT_LEAVE, WIRE, AgreedTotalOrder


class _Unsent(NamedTuple):
    clock: int
    dests: int
    payload: bytes


class CausalTotalOrder(AgreedTotalOrder):
    facts = Facts(
        name="causal-total",
        description="three phases agree on a timestamp beyond those of the causal past",
        paper="Skeen; in Birman & Joseph, ACM TOCS 5(1), 1987; one message of a sender at a time",
        order=Order.CAUSAL_TOTAL,
        wire=WIRE,
        waits=Waits(at_sender=True),
        membership=MembershipChanges(at_leave=AT_LEAVE, at_expulsion=AT_EXPULSION),
    )

    _outbox: deque[_Unsent] = kept(records(_Unsent, deque))

    @property
    def queued(self) -> int:
        return len(self._outbox) + super().queued

    def stamp(self, clock: int, dests: int, payload: bytes) -> list[Effect]:
        self._outbox.append(_Unsent(clock, dests, payload))
        return list(self._begin_next())

    def receive(self, message: Any) -> list[Effect]:
        return [*super().receive(message), *self._begin_next()]

    def leave(self, process: int) -> list[Effect]:
        return [*super().leave(process), *self._begin_next()]

    def _begin_next(self) -> Iterator[Effect]:
        while self._outbox and not self._rounds:  # every message of ours has its final timestamp
            clock, dests, payload = self._outbox.popleft()
            if dests & ~self.gone or dests >> self.me & 1:  # otherwise all its destinations have left
                yield from self.begin(clock, dests, payload)
