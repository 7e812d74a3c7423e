"""Causal order by carrying the messages themselves, after Birman & Joseph (ACM TOCS 5(1), 1987).

Assumes    reliable links, FIFO or not, that may duplicate; processes that join get the next index.
Promises   causal order for multicasts to arbitrary sets, oneself included, without ever holding a message
           back: whatever must be delivered first comes along.
Leaves out the paper's transfer of a crashed process's messages by those who have them.
Invariant  `_buffer` has every message in our causal past that is not known to be delivered everywhere,
           causes before effects; a packet carries all of it.

The garbage collection: each destination acknowledges a message to its sender, and a sender's oldest
message that lacks an acknowledgement bounds its *stable* ones, all older. That one number per sender
travels with every packet, and buffers drop what it covers. It only grows, so a dropped message that an
uninformed process still carries is recognised, and nothing need be remembered of it.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ...core.destinations import unpack
from ...core.effects import Send
from ...core.lanes import CLOCK_LIMIT
from ...core.orders import Order
from ..facts import CopyTravel, Facts, WireFormat
from ..machine import Effect, MessageKey, Multicast, Unit
from ..messages import Application, Control
from ..notation import key_name
from ..process import Process, State, refusal

FACTS = Facts(
    name="cbcast",
    description="carries the messages of its causal past, and never holds one back",
    paper="Birman & Joseph, ACM TOCS 5(1), 1987",
    order=Order.CAUSAL,
    wire=WireFormat(31, "happened.wire.causal:CBCAST"),
    copies=CopyTravel(common_frame=True, carries_payloads=True),
)


class PastMessage(NamedTuple):
    """A message of the causal past, whole."""

    sender: int
    clock: int
    dests: int  # bit set
    payload: bytes


class CbcastMessage(Application):
    stable: tuple[int, ...]  # per process: its messages up to this clock are delivered everywhere
    past: tuple[PastMessage, ...]  # causes before effects
    payload: bytes

    def units(self) -> frozenset[Unit]:
        return frozenset((m.sender, m.clock, d) for m in self.past for d in unpack(m.dests))

    def size(self) -> tuple[int, int]:
        return len(self.past), sum(m.dests.bit_count() for m in self.past)

    def model_bytes(self) -> int:
        return super().model_bytes() + 4 * len(self.stable) + sum(len(m.payload) for m in self.past)

    def carries(self) -> tuple[Any, ...]:
        return (*self.past, self)


class CbcastAcknowledgement(Control):
    """Process `by` has delivered M(sender, clock)."""

    clock: int
    by: int

    def __str__(self) -> str:
        return f"an acknowledgement of {key_name((self.sender, self.clock))} by {self.by}"

    @property
    def via(self) -> int:
        return self.by

    def model_bytes(self) -> int:
        return 2  # `by`: the rest is its address


class CarryingMulticast(Process):
    """Nothing is ever pending here: what a message must wait for comes with it."""

    facts = FACTS

    def __init__(self, me: int, n: int) -> None:
        super().__init__(me, n)
        self._buffer: dict[MessageKey, PastMessage] = {}
        self._stable = [0] * n
        self._unacknowledged: dict[int, int] = {}  # clock of each of our messages -> who is missing, bit set
        # Per sender the clock of its last message delivered here; delivery is causal, so older ones were too.
        self._delivered: dict[int, int] = {}

    def multicast(self, to: Iterable[int], payload: bytes) -> Multicast:
        dests = self.destinations(to, payload)
        clock = self.next_clock()
        past = tuple(self._buffer.values())
        message = CbcastMessage(self.me, clock, self.n, dests, tuple(self._stable), past, payload)
        others = dests & ~(1 << self.me)
        effects: list[Effect] = [Send(d, message) for d in unpack(others)]
        if others:
            self._unacknowledged[clock] = others
            self._buffer[self.me, clock] = PastMessage(self.me, clock, dests, payload)
        else:
            self._stabilise()
        if dests >> self.me & 1:
            self._delivered[self.me] = clock
            effects.append(self.delivery(message))
        return Multicast(clock, effects)

    def receive(self, message: CbcastMessage | CbcastAcknowledgement) -> list[Effect]:
        if isinstance(message, CbcastAcknowledgement):
            return self._acknowledged(message)
        self._check(message)
        self.arrival()
        for process, clock in enumerate(message.stable):
            self._stable[process] = max(self._stable[process], clock)
        self._collect()
        effects: list[Effect] = []
        for carried in (
            *message.past,
            PastMessage(message.sender, message.clock, message.dests, message.payload),
        ):
            effects += self._take(carried)
        return effects

    def _check(self, message: CbcastMessage) -> None:
        self.check(message, CbcastMessage)
        if message.sender == self.me:
            raise refusal(message, "is our own, and we have it")
        if len(message.stable) > message.n or message.stable[self.me : self.me + 1] > (self.clock,):
            raise refusal(message, "speaks of processes or messages that do not exist")
        for m in message.past:
            if (
                not 0 <= m.sender < self.n
                or not 0 < m.clock < CLOCK_LIMIT
                or not m.dests
                or m.dests >> self.n
            ):
                raise refusal(message, f"carries M({m.sender}, {m.clock}), which nobody can have sent")
            if m.sender == self.me:
                self.check_known(message, m.clock)

    def _take(self, carried: PastMessage) -> Iterator[Effect]:
        """Keep a message for those it has yet to reach, and deliver it if we are one of them. Not one that is
        stable: we have it, or its sender was expelled and is forgotten, and messages that follow it may have
        come without it since."""
        key = (carried.sender, carried.clock)
        if carried.clock <= self._stable[carried.sender]:
            return
        self._buffer.setdefault(key, carried)
        if carried.dests >> self.me & 1 and carried.clock > self._delivered.get(carried.sender, 0):
            self._delivered[carried.sender] = carried.clock
            yield Send(carried.sender, CbcastAcknowledgement(*key, self.me))
            yield self.delivery(carried)

    def _acknowledged(self, message: CbcastAcknowledgement) -> list[Effect]:
        if message.sender != self.me or not 0 < message.clock <= self.clock:
            raise refusal(message, f"is acknowledged to process {self.me}, which never sent it")
        if not 0 <= message.by < self.n:
            raise refusal(message, f"is acknowledged by process {message.by}, whom we do not know")
        self.arrival()
        missing = self._unacknowledged.get(message.clock, 0) & ~(1 << message.by)
        if missing:
            self._unacknowledged[message.clock] = missing
        elif self._unacknowledged.pop(message.clock, 0):
            self._stabilise()
            self._collect()
        return []

    def _stabilise(self) -> None:
        # Clocks grow, so the first key is the oldest of our messages that has not reached everybody.
        oldest = next(iter(self._unacknowledged), self.clock + 1)
        self._stable[self.me] = oldest - 1

    def _collect(self) -> None:
        stable = [key for key in self._buffer if key[1] <= self._stable[key[0]]]
        for key in stable:
            del self._buffer[key]

    def log_size(self) -> tuple[int, int]:
        """How many messages the buffer has, and how many destinations they name."""
        return len(self._buffer), sum(m.dests.bit_count() for m in self._buffer.values())

    def join(self, process: int) -> list[Effect]:
        effects = super().join(process)
        self._stable.append(0)
        return effects

    def leave(self, process: int) -> list[Effect]:
        effects = super().leave(process)
        left = {clock: missing & ~(1 << process) for clock, missing in self._unacknowledged.items()}
        self._unacknowledged = {clock: missing for clock, missing in left.items() if missing}
        self._stabilise()
        self._collect()
        return effects

    def forget(self, process: int) -> None:
        super().forget(process)
        self._stable[process] = self._delivered[process] = CLOCK_LIMIT - 1
        self._collect()

    def save(self) -> State:
        return {
            "buffer": tuple(self._buffer.values()),
            "stable": self._stable,
            "unacknowledged": tuple(self._unacknowledged.items()),
            "delivered": sorted(self._delivered.items()),
        }

    def load(self, state: State) -> None:
        buffer = [PastMessage(*fields) for fields in state["buffer"]]
        stable, unacknowledged = list(state["stable"]), dict(state["unacknowledged"])
        self._delivered = dict(state["delivered"])
        self._stable, self._unacknowledged = stable, unacknowledged
        self._buffer = {(m.sender, m.clock): m for m in buffer}
