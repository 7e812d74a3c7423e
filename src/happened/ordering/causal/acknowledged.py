"""Causal unicasts without control information, after Mattern & Fünfrocken (LNCS 938, 1995).

Assumes    reliable links, FIFO or not, that may duplicate; unicasts only.
Promises   causal order; the application never blocks: `multicast` always succeeds.
Leaves out multicasts. With two destinations, the one that is reached early can tell the other's next
           sender before the other is reached, and nothing carried would reveal it (the tests show it).
Invariant  at most one message of a process is on its way: the next leaves the output buffer when the
           input buffer of the previous one's receiver has acknowledged it. Hence every message in the causal
           past of one that is on its way has been delivered.

This is also what is left of synchronous unicasts (Kshemkalyani & Singhal 1998, §7.1) in a machine that may
not block its application: there the sender itself stops until the acknowledgement comes, and the output
buffer is all that tells the two apart.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from ...core.effects import Deliver, Send
from ...core.errors import LocalProtocolError, RemoteProtocolError
from ..machine import Effect, Facts, Held, Unit
from ..process import Process
from ..snapshots import opened, seal

FACTS = Facts(
    order="causal",
    casts=frozenset({"unicast"}),
    fifo_links=False,
    description="carries nothing: each message waits for the acknowledgement of its sender's previous one",
    paper="Mattern & Fünfrocken, LNCS 938, 1995",
)


class AcknowledgedMessage(NamedTuple):
    sender: int
    clock: int
    n: int
    receiver: int
    payload: bytes

    @property
    def to(self) -> frozenset[int]:
        return frozenset((self.receiver,))

    @property
    def dests(self) -> int:
        return 1 << self.receiver

    def units(self) -> frozenset[Unit]:
        return frozenset()

    def size(self) -> tuple[int, int]:
        return 0, 0

    def model_bytes(self) -> int:
        return 0


class Acknowledgement(NamedTuple):
    """The receiver of M(sender, clock) has it."""

    sender: int
    clock: int

    @property
    def to(self) -> frozenset[int]:
        return frozenset()

    @property
    def payload(self) -> bytes:
        return b""

    def units(self) -> frozenset[Unit]:
        return frozenset()

    def size(self) -> tuple[int, int]:
        return 0, 0

    def model_bytes(self) -> int:
        return 0


class AcknowledgedUnicast:
    def __init__(self, me: int, n: int) -> None:
        self._process = Process(me, n)
        self._output: deque[AcknowledgedMessage] = deque()  # its head is on its way, the rest wait here
        # Per sender the clock of its last message here: older ones were acknowledged before it left.
        self._delivered: dict[int, int] = {}

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
    def queued(self) -> int:
        """How many of our messages have not left yet."""
        return max(0, len(self._output) - 1)

    def multicast(self, to: Iterable[int], payload: bytes) -> list[Effect]:
        receivers = tuple(dict.fromkeys(to))
        self._process.destinations(receivers, payload)
        if len(receivers) != 1:
            raise LocalProtocolError(
                f"acknowledged is for unicasts: with {len(receivers)} destinations it would break the order"
            )
        message = AcknowledgedMessage(self.me, self._process.next_clock(), self.n, receivers[0], payload)
        if message.receiver == self.me:
            # Whatever we must deliver first was acknowledged, hence delivered, before we knew of it.
            return [self._deliver(message)]
        self._output.append(message)
        return [Send(message.receiver, message)] if len(self._output) == 1 else []

    def receive(self, message: AcknowledgedMessage | Acknowledgement) -> list[Effect]:
        if isinstance(message, Acknowledgement):
            return self._acknowledged(message)
        self._process.check(message, AcknowledgedMessage)
        self._process.arrival()
        if message.clock <= self._delivered.get(message.sender, 0):
            return []  # a duplicate made by the network; it has been acknowledged
        return [
            Send(message.sender, Acknowledgement(message.sender, message.clock)),
            self._deliver(message),
        ]

    def _acknowledged(self, message: Acknowledgement) -> list[Effect]:
        if message.sender != self.me or not 0 < message.clock <= self.clock:
            raise RemoteProtocolError(f"we never sent M({message.sender}, {message.clock})")
        self._process.arrival()
        if not self._output or message.clock != self._output[0].clock:
            return []  # acknowledged twice
        self._output.popleft()
        return [Send(self._output[0].receiver, self._output[0])] if self._output else []

    def _deliver(self, message: AcknowledgedMessage) -> Deliver:
        self._delivered[message.sender] = message.clock
        return self._process.delivery(message)

    def pending(self) -> list[Held]:
        """Nothing: what must wait does so at its sender."""
        return []

    def tick(self) -> int:
        return self._process.next_clock()

    def join(self, process: int) -> None:
        self._process.join(process)

    def leave(self, process: int) -> None:
        self._process.leave(process)

    def snapshot(self) -> bytes:
        return seal(
            "acknowledged",
            process=self._process.state(),
            output=tuple(self._output),
            delivered=sorted(self._delivered.items()),
        )

    def restore(self, data: bytes) -> None:
        with opened("acknowledged", data) as state:
            process = Process.from_state(state["process"])
            output = deque(AcknowledgedMessage(*fields) for fields in state["output"])
            delivered = dict(state["delivered"])
        self._process, self._output, self._delivered = process, output, delivered
