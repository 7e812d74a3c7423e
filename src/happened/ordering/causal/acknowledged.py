"""Causal unicasts without control information, after Mattern & Fünfrocken (LNCS 938, 1995).

Assumes    reliable links, FIFO or not, that may duplicate; unicasts only.
Promises   causal order; the application never blocks: `multicast` always succeeds.
Leaves out multicasts. If a message has two destinations, the one reached early can inform the other's next
           sender before the other is reached, and nothing carried would reveal this (the tests show it).
Invariant  at most one message of a process is in transit: the next leaves the output buffer when the input
           buffer of the previous one's receiver has acknowledged it. Hence every message in the causal past
           of a message in transit has been delivered.

This is synchronous unicast (Kshemkalyani & Singhal 1998, §7.1) for a machine that may not block its
application. With synchronous unicast, the sender itself stops until the acknowledgement comes; the output
buffer is the only difference.
"""

from collections import deque
from collections.abc import Iterable

from ...core.effects import Deliver, Send
from ...core.errors import LocalProtocolError, RemoteProtocolError
from ..facts import UNICAST, Assumptions, Facts, MembershipChanges, Waits, WireFormat
from ..machine import Effect
from ..messages import BareApplication, Control
from ..process import Process
from ..snapshots import TABLE, kept, records


class AcknowledgedMessage(BareApplication):
    sender: int
    clock: int
    n: int
    receiver: int
    payload: bytes

    @property
    def dests(self) -> int:
        return 1 << self.receiver


class Acknowledgement(Control):
    """The receiver of M(sender, clock) has received it."""

    says = "an acknowledgement of M({0.sender},{0.clock})"
    clock: int

    def size(self) -> tuple[int, int]:
        return 0, 0


class AcknowledgedUnicast(Process):
    """No message is ever pending here: a message that must wait waits at its sender."""

    facts = Facts(
        name="acknowledged",
        description="carries nothing: each message waits for the acknowledgement of its sender's "
        "previous one",
        paper="Mattern & Fünfrocken, LNCS 938, 1995",
        wire=WireFormat(30, "happened.wire.causal:ACKNOWLEDGED"),
        assumes=Assumptions(casts=frozenset({UNICAST})),
        waits=Waits(at_sender=True),
        membership=MembershipChanges(
            at_leave="is not addressed any more, nor waited for to acknowledge; all that it sent is "
            "delivered",
            at_expulsion="is not addressed any more, nor waited for to acknowledge; a message of its may be "
            "lost",
        ),
    )

    _output: deque[AcknowledgedMessage] = kept(records(AcknowledgedMessage, deque))
    """The first message is in transit, the others wait here."""
    _delivered: dict[int, int] = kept(TABLE)
    """Per sender, the clock of its last message here; older ones were acknowledged before it was sent."""

    @property
    def queued(self) -> int:
        return max(0, len(self._output) - 1)

    def address(self, to: Iterable[int], payload: bytes) -> int:
        dests = self.destinations(to, payload)
        if (count := dests.bit_count()) != 1:
            raise LocalProtocolError(
                f"acknowledged is for unicasts: with {count} destinations it would break the order"
            )
        return dests

    def stamp(self, clock: int, dests: int, payload: bytes) -> list[Effect]:
        message = AcknowledgedMessage(self.me, clock, self.n, dests.bit_length() - 1, payload)
        if message.receiver == self.me:
            # Whatever must be delivered first was acknowledged, hence delivered, before we knew of it.
            return [self._deliver(message)]
        self._output.append(message)
        return self._next() if len(self._output) == 1 else []

    def receive(self, message: AcknowledgedMessage | Acknowledgement) -> list[Effect]:
        if isinstance(message, Acknowledgement):
            return self._acknowledged(message)
        self.check(message, AcknowledgedMessage)
        self.arrival()
        if message.clock <= self._delivered.get(message.sender, 0):
            return []  # a duplicate made by the network; it has been acknowledged
        return [
            Send(message.sender, Acknowledgement(message.sender, message.clock)),
            self._deliver(message),
        ]

    def _acknowledged(self, message: Acknowledgement) -> list[Effect]:
        if message.sender != self.me or not 0 < message.clock <= self.clock:
            raise RemoteProtocolError(f"we never sent M({message.sender}, {message.clock})")
        self.arrival()
        if not self._output or message.clock != self._output[0].clock:
            return []  # acknowledged twice
        self._output.popleft()
        return self._next()

    def _deliver(self, message: AcknowledgedMessage) -> Deliver:
        self._delivered[message.sender] = message.clock
        return self.delivery(message)

    def _next(self) -> list[Effect]:
        return [Send(self._output[0].receiver, self._output[0])] if self._output else []

    def leave(self, process: int) -> list[Effect]:
        effects = super().leave(process)
        if process == self.me or not self._output:
            return effects
        # The next receiver learns of the departure with this message, so it sends the departed nothing later.
        head = self._output[0]
        self._output = deque(message for message in self._output if message.receiver != process)
        return effects + self._next() if head.receiver == process else effects
