"""The layer of a tracker: its piggybacks on messages, and its timestamps of relevant events.

Assumes    only the kernel drives the tracker, and its journal has every input: so the tracker's state is a
           function of them. The application gets a message when the kernel delivers it (docs/runtime.md).
Promises   what the tracking protocol promises. A refused multicast or frame leaves the tracker unchanged.
           A piggyback is tried when its message arrives, so that a peer whose piggyback is impossible is
           refused, and the delivery succeeds: a tracker's knowledge only grows in between.
Leaves out that trial for messages inside others (`carries_payloads`): there, EngineFault at delivery.
"""

from collections.abc import Sequence
from typing import Any

from ..core.effects import Send
from ..core.errors import CausalityError, LocalProtocolError, RemoteProtocolError
from ..ordering import Multicast
from ..ordering.facts import Facts as OrderingFacts
from ..tracking import Stamp, check_deliveries, create, facts_of, named, protocols
from ..wire import encode_multicast
from ..wire import piggybacks as wire
from ..wire.piggybacks import Envelope
from .batch import Input, Take
from .errors import EngineFault
from .kernel import Kernel
from .transport import Transport

MARK = wire.MARK


class Tracking:
    """The tracker `name` (as in `create`) of a kernel. `shares`: a medium carries one frame for all."""

    key = "tracker"

    def __init__(self, kernel: Kernel, name: str, *, shares: bool = False) -> None:
        ordering = kernel.facts
        check_deliveries(name, ordering.order, ordering.name)
        self.name, self.facts = name, facts_of(name)
        self._kernel, self._me = kernel, kernel.me
        self._machine = create(name, kernel.me, len(kernel.roster))
        self._is_passed_on = bool(ordering.copies.relays) or ordering.copies.carries_payloads or shares
        kernel.layers.append(self)
        self._order, kernel.order = kernel.order, self._order_tracked
        self._read, kernel.read = kernel.read, self._read_tracked
        self._deliver, kernel.deliver = kernel.deliver, self._deliver_tracked
        kernel.checks.append(self._check)
        kernel.encode = self._encode
        kernel.frames[MARK] = kernel.receive_message
        kernel.inputs[Input.RELEVANT_EVENT] = lambda number, label: self.relevant(label.decode())
        kernel.joining.append(lambda process: self._machine.join(process))
        kernel.members.keeps_indices.append(lambda: True)  # timestamps name processes for ever

    def relevant(self, label: str) -> Stamp:
        """Record a relevant event of the application; returns the tracker's timestamp."""
        stamp = named(self._machine.relevant(), self._kernel.roster)
        self._kernel.stage(Input.RELEVANT_EVENT, 0, label.encode())
        self._record(stamp, label)
        return stamp

    def _record(self, stamp: Stamp, label: str) -> None:
        kernel = self._kernel
        kernel.machine.tick()
        kernel.events += 1
        if kernel.recorder is not None:
            kernel.recorder.relevant(kernel.events, kernel.time, self.name, stamp, label)

    # Sending.

    def _order_tracked(self, to: Sequence[int], payload: bytes) -> Multicast:
        mark, others = self._machine.mark(), sorted({*to} - {self._me})
        try:
            carried = self._machine.on_multicast(others)
            piggybacks = {each: one.encode() for each, one in zip(others, carried, strict=True)}
            done = self._order(to, wire.seal(Envelope(self._machine.n, piggybacks, payload)))
        except LocalProtocolError:
            self._machine.rewind(mark)
            raise
        forced = next((each.forced for each in carried if each.forced is not None), None)
        if forced is not None:  # it happened before the send; the machine only counts it
            self._record(named(forced, self._kernel.roster), "null event")
        return done

    def _encode(self, sends: Sequence[Send[Any]]) -> list[bytes]:
        """Give each copy the piggyback for its destination; all piggybacks, if others may forward it."""
        messages = [message for _, message in sends]
        payloads = [message.payload for message in messages]
        if not self._is_passed_on:
            payloads = [
                wire.only_for(to, message.payload) if message.payload else b"" for to, message in sends
            ]
        return [wire.mark(self.facts.number, frame) for frame in encode_multicast(messages, payloads)]

    # Receiving.

    def _read_tracked(self, link: int, frame: bytes) -> Any:
        if not frame or frame[0] != MARK:
            raise RemoteProtocolError(
                f"a message without piggybacks, and this node tracks causality by {self.facts.name}: "
                "give its sender the same tracker"
            )
        number, inner = wire.unmark(frame)
        if number != self.facts.number:
            raise RemoteProtocolError(
                f"a message with piggybacks of {_tracker(number)}, and this node has {self.facts.name}: all "
                "nodes need the same tracker"
            )
        return self._read(link, inner)

    def _check(self, message: Any) -> None:
        """Raise RemoteProtocolError if a message for this process has no piggyback that can be taken in."""
        sender, machine = message.sender, self._machine
        if not message.payload or not message.dests >> self._me & 1:
            return
        if sender != self._me and 0 <= sender < machine.n:  # the ordering protocol refuses other senders
            piggyback, before = self._piggyback(wire.open_sealed(message.payload)), machine.mark()
            try:
                machine.on_receive(sender, piggyback)
            finally:
                machine.rewind(before)

    def _deliver_tracked(self, sender: int, clock: int, payload: bytes) -> None:
        """Take in what a message carried when it is delivered."""
        try:
            envelope = wire.open_sealed(payload)
            if sender != self._me:
                self._machine.on_receive(sender, self._piggyback(envelope))
        except CausalityError as error:
            raise EngineFault(f"process {sender} tells the tracker what cannot be: {error}") from error
        self._deliver(sender, clock, envelope.payload)

    def _piggyback(self, envelope: Envelope) -> Any:
        data = envelope.piggybacks.get(self._me)
        if data is None:
            raise RemoteProtocolError(f"a message that has no piggyback for process {self._me}")
        return self._machine.decode(data, envelope.n)

    # Snapshots.

    def state(self) -> tuple[Any, list[bytes]]:
        data = self._machine.snapshot()
        return [len(self._kernel.roster), len(data)], [data]

    def restore(self, state: Any, take: Take) -> None:
        n, length = state
        if n != self._machine.n:  # others have joined
            self._machine = create(self.name, self._me, n)
        self._machine.restore(take(length))


def check_tracker(name: str, ordering: OrderingFacts, transport: Transport) -> None:
    """Refuse a tracker that does not exist, or that needs more order than it would get."""
    check_deliveries(name, ordering.order, ordering.name)
    facts = facts_of(name)
    if facts.fifo_links and not transport.keeps_order:
        raise LocalProtocolError(
            f"{name} needs FIFO links, which {type(transport).__name__} does not promise: use a tracker that "
            "needs none, or another transport"
        )


def refuse_piggybacks(link: int, frame: bytes) -> None:
    """Refuse a frame that has piggybacks, at a node without a tracker."""
    number, _ = wire.unmark(frame)
    raise RemoteProtocolError(
        f"a message with piggybacks of {_tracker(number)}, and this node has no tracker: give it the same"
    )


def _tracker(number: int) -> str:
    names = [name for name, facts in protocols().items() if facts.number == number]
    return names[0] if names else f"tracker number {number}, which this happened does not know"
