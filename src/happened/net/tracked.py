"""The tracker of a node: what it puts on messages, takes from them, and tells of relevant events.

Assumes    it is driven by the engine alone, whose journal has every input: its state is a function of them.
           The application gets a message when the engine delivers it (docs/runtime.md).
Promises   what the tracking protocol promises. A multicast that the ordering protocol refuses leaves it as it
           was, and so does a frame that is refused.
           What a piggyback tells is tried when its message arrives, so that a peer that tells what cannot
           be is refused, and the delivery succeeds: a tracker's knowledge only grows in between.
Leaves out the same for messages that come inside others (`carries_payloads`): there, EngineFault at delivery.
"""

from collections.abc import Sequence
from typing import Any

from ..core.errors import CausalityError, LocalProtocolError, RemoteProtocolError
from ..core.roster import Roster
from ..ordering.facts import Facts as OrderingFacts
from ..tracking import Stamp, check_deliveries, create, facts_of, named, protocols
from ..wire import piggybacks as wire
from ..wire.piggybacks import Envelope
from .errors import EngineFault
from .transport import Transport

MARK = wire.MARK


class Tracking:
    """The tracker `name` (as in `create`) of process `me` of `n`, on messages of an ordering protocol."""

    def __init__(self, name: str, me: int, n: int, ordering: OrderingFacts) -> None:
        check_deliveries(name, ordering.order, ordering.name)
        self.name = name
        self.facts = facts_of(name)
        self._me = me
        self._ordering = ordering
        self._machine = create(name, me, n)
        self._is_passed_on = bool(ordering.copies.relays) or ordering.copies.carries_payloads

    def relevant(self, roster: Roster) -> Stamp:
        return named(self._machine.relevant(), roster)

    # What is sent.

    def mark(self) -> Any:
        return self._machine.mark()

    def rewind(self, mark: Any) -> None:
        self._machine.rewind(mark)

    def wrap(self, to: Sequence[int], payload: bytes, roster: Roster) -> tuple[bytes, Stamp | None]:
        """The payload with a piggyback for each destination, and the null event that has to come before."""
        others = sorted({each for each in to if each != self._me})
        carried = self._machine.on_multicast(others)
        forced = next((each.forced for each in carried if each.forced is not None), None)
        piggybacks = {each: one.encode() for each, one in zip(others, carried, strict=True)}
        sealed = wire.seal(Envelope(self._machine.n, piggybacks, payload))
        return sealed, None if forced is None else named(forced, roster)

    def payload_for(self, to: int, payload: bytes) -> bytes:
        """What the copy for `to` has as its payload: if it may be passed on to others, everything."""
        return payload if self._is_passed_on or not payload else wire.only_for(to, payload)

    def frame(self, frame: bytes) -> bytes:
        return wire.mark(self.facts.number, frame)

    # What arrives.

    def unframe(self, frame: bytes) -> bytes:
        """The message's own frame; RemoteProtocolError if it has piggybacks of another tracker, or none."""
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
        return inner

    def check(self, message: Any) -> None:
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

    def delivered(self, sender: int, payload: bytes) -> bytes:
        """Take in what a message carried when it is delivered; returns the application's payload."""
        try:
            envelope = wire.open_sealed(payload)
            if sender != self._me:
                self._machine.on_receive(sender, self._piggyback(envelope))
        except CausalityError as error:
            raise EngineFault(f"process {sender} tells the tracker what cannot be: {error}") from error
        return envelope.payload

    def _piggyback(self, envelope: Envelope) -> Any:
        data = envelope.piggybacks.get(self._me)
        if data is None:
            raise RemoteProtocolError(f"a message that has no piggyback for process {self._me}")
        return self._machine.decode(data, envelope.n)

    # What survives.

    def join(self, process: int) -> None:
        self._machine.join(process)

    def snapshot(self) -> bytes:
        return self._machine.snapshot()

    def restored(self, data: bytes, n: int) -> "Tracking":
        """One of n processes with the state of this snapshot."""
        other = Tracking(self.name, self._me, n, self._ordering)
        other._machine.restore(data)
        return other


def check_tracker(name: str, ordering: OrderingFacts, transport: Transport) -> None:
    """Refuse a tracker that there is not, or that needs more order than it would get."""
    facts = Tracking(name, 0, 1, ordering).facts
    if facts.fifo_links and not transport.keeps_order:
        raise LocalProtocolError(
            f"{name} needs FIFO links, which {type(transport).__name__} does not promise: use a tracker that "
            "needs none, or another transport"
        )


def refuse_piggybacks(frame: bytes) -> RemoteProtocolError:
    """Why a node without a tracker refuses a frame that has piggybacks."""
    number, _ = wire.unmark(frame)
    return RemoteProtocolError(
        f"a message with piggybacks of {_tracker(number)}, and this node has no tracker: give it the same"
    )


def _tracker(number: int) -> str:
    names = [name for name, facts in protocols().items() if facts.number == number]
    return names[0] if names else f"tracker number {number}, which this happened does not know"
