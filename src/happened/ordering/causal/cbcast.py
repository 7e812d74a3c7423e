"""Causal order by carrying the messages themselves, after Birman & Joseph (ACM TOCS 5(1), 1987).

Assumes    reliable links, FIFO or not, that may duplicate; processes that join get the next index.
Promises   causal order for multicasts to arbitrary sets, oneself included, without ever holding a message
           back: a packet carries every message that must be delivered first.
Leaves out the paper's takeover of a crashed process's messages by the processes that have them.
Invariant  `_buffer` has every message in our causal past that is not known to be delivered everywhere, causes
           before effects; a packet carries the whole buffer.

Garbage collection: each destination acknowledges a message to its sender. A sender's messages older than its
oldest message without all acknowledgements are *stable*. The clock of its last stable message travels with
every packet, and buffers drop the messages up to it. This clock only grows, so a process recognises a dropped
message that an uninformed process still carries, without remembering the message.
"""

from collections.abc import Iterator
from typing import Any

from ...core.effects import Send
from ...core.lanes import CLOCK_LIMIT
from ..facts import CopyTravel, Facts, WireFormat
from ..machine import Effect, MessageKey, key_of
from ..messages import Application, Control, Entry, WholeMessage, field
from ..process import Process, refusal
from ..snapshots import NUMBERS, TABLE, by_key, kept


class CbcastMessage(Application):
    stable: tuple[int, ...]  # per process: its messages up to this clock are delivered everywhere
    past: tuple[WholeMessage, ...]  # causes before effects
    payload: bytes

    def about(self) -> Iterator[Entry]:
        return ((m.sender, m.clock, m.dests) for m in self.past)

    def model_bytes(self) -> int:
        return super().model_bytes() + 4 * len(self.stable) + sum(len(m.payload) for m in self.past)

    def carries(self) -> tuple[Any, ...]:
        return (*self.past, self)


class CbcastAcknowledgement(Control):
    """Process `by` has delivered M(sender, clock)."""

    clock: int
    by: int
    via = field("by")
    costs = 2  # `by`: the rest is its address
    says = "an acknowledgement of M({0.sender},{0.clock}) by {0.by}"


class CarryingMulticast(Process):
    """No message is ever pending here: a packet carries the messages that must be delivered first."""

    facts = Facts(
        name="cbcast",
        description="carries the messages of its causal past, and never holds one back",
        paper="Birman & Joseph, ACM TOCS 5(1), 1987",
        wire=WireFormat(31, "happened.wire.causal:CBCAST"),
        copies=CopyTravel(common_frame=True, carries_payloads=True),
    )

    _buffer: dict[MessageKey, WholeMessage] = kept(by_key(WholeMessage, key_of))
    _stable: list[int] = kept(NUMBERS)
    _unacknowledged: dict[int, int] = kept(TABLE)  # clock of our message -> bit set: no acknowledgement yet
    _delivered: dict[int, int] = kept(TABLE)
    """Per sender, the clock of its last message delivered here; causal order delivered all older ones."""

    def stamp(self, clock: int, dests: int, payload: bytes) -> list[Effect]:
        past = tuple(self._buffer.values())
        message = CbcastMessage(self.me, clock, self.n, dests, tuple(self._stable), past, payload)
        others = dests & ~(1 << self.me)
        effects = self.to_each(message, others)
        if others:
            self._unacknowledged[clock] = others
            self._buffer[self.me, clock] = WholeMessage(self.me, clock, dests, payload)
        else:
            self._stabilise()
        if dests >> self.me & 1:
            self._delivered[self.me] = clock
            effects.append(self.delivery(message))
        return effects

    def receive(self, message: CbcastMessage | CbcastAcknowledgement) -> list[Effect]:
        if isinstance(message, CbcastAcknowledgement):
            return self._acknowledged(message)
        self._check(message)
        self.arrival()
        for process, clock in enumerate(message.stable):
            self._stable[process] = max(self._stable[process], clock)
        self._collect()
        whole = WholeMessage(message.sender, message.clock, message.dests, message.payload)
        return [effect for carried in (*message.past, whole) for effect in self._take(carried)]

    def _check(self, message: CbcastMessage) -> None:
        self.check(message, CbcastMessage)
        if message.sender == self.me:
            raise refusal(message, "is our own, and we have it")
        if len(message.stable) > message.n or message.stable[self.me : self.me + 1] > (self.clock,):
            raise refusal(message, "speaks of processes or messages that do not exist")
        for m in message.past:
            is_sent = 0 <= m.sender < self.n and 0 < m.clock < CLOCK_LIMIT
            if not is_sent or not m.dests or m.dests >> self.n:
                raise refusal(message, f"carries M({m.sender}, {m.clock}), which nobody can have sent")
            if m.sender == self.me:
                self.check_known(message, m.clock)

    def _take(self, carried: WholeMessage) -> Iterator[Effect]:
        """Keep a message for destinations that still lack it, and deliver it if we are one. Ignore a stable
        message: we have it, or its sender was expelled and forgotten, and messages that follow it may have
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
        # Clocks grow, so the first key is the oldest of our messages that some destination lacks.
        oldest = next(iter(self._unacknowledged), self.clock + 1)
        self._stable[self.me] = oldest - 1

    def _collect(self) -> None:
        self._buffer = {key: m for key, m in self._buffer.items() if key[1] > self._stable[key[0]]}

    def log_size(self) -> tuple[int, int]:
        return len(self._buffer), sum(m.dests.bit_count() for m in self._buffer.values())

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
