"""The layer of messages outside of all orders: each is delivered once at every destination, when it arrives.

They are for what needs no order (Rodrigues & Veríssimo 1995, ch. 5). They travel over the same links as the
messages of the ordering protocol, which lose and repeat nothing, and past its machine: that only counts their
sends and deliveries as events of its process, so that everything has one numbering. Where a topology says how
messages travel, they take the same routes.

Gives up   the order, in both directions: such a message waits for nothing, and nothing waits for it. What its
           receiver sends next is not ordered after what its sender sent before, since it carries nothing of
           its past; a tracker learns nothing from it either.
"""

from collections.abc import Sequence

from ..core.destinations import pack, unpack
from ..core.errors import LocalProtocolError, RemoteProtocolError
from ..core.places import onward
from ..wire import unordered_message as wire
from ..wire.unordered_message import UnorderedMessage
from .batch import Input
from .kernel import Kernel
from .link_routes import Routes


class Unordered:
    """The unordered messages of a kernel; `routes` say how they travel."""

    def __init__(self, kernel: Kernel, routes: Routes) -> None:
        self.kernel, self._routes = kernel, routes
        kernel.frames[wire.MARK] = self._hear
        kernel.inputs[Input.UNORDERED] = self._multicast_again

    def multicast(self, to: Sequence[int], payload: bytes) -> int:
        """Multicast a payload outside of all orders; returns the clock that names the message."""
        kernel = self.kernel
        kernel.check_may_send()
        wire.check_payload(payload)
        dests = pack(to)
        self._check_destinations(dests)
        return self._multicast(dests, self.seal(dests, payload))

    def _multicast_again(self, size: int, data: bytes) -> None:
        self._multicast(int.from_bytes(data[:size], "little"), data[size:])

    def _multicast(self, dests: int, payload: bytes) -> int:
        kernel = self.kernel
        clock = kernel.machine.tick()
        size = (dests.bit_length() + 7) // 8
        kernel.stage(Input.UNORDERED, size, dests.to_bytes(size, "little"), payload)
        kernel.count_sent(dests, clock)
        if kernel.recorder is not None:
            kernel.recorder.sent_unordered(kernel.events, kernel.time, clock, dests)
        self._spread(UnorderedMessage(len(kernel.roster), kernel.me, clock, dests, payload))
        return clock

    # What a layer around this one adds to payloads.

    def seal(self, dests: int, payload: bytes) -> bytes:
        return payload

    def check(self, message: UnorderedMessage) -> None:
        """Raise RemoteProtocolError if a message that has arrived is not its origin's."""

    def open(self, payload: bytes) -> bytes:
        return payload

    # What travels.

    def _check_destinations(self, dests: int) -> None:
        """Refuse a set of destinations that is empty, or has somebody who has left or never was."""
        n = len(self.kernel.roster)
        if not dests:
            raise LocalProtocolError("a message needs at least one destination")
        for process in unpack(dests):
            if process >= n or process in self.kernel.gone:
                state = "has left" if process < n else f"is not among {n} processes"
                raise LocalProtocolError(f"process {process} {state} and cannot be sent to")

    def _hear(self, link: int, frame: bytes) -> None:
        message = wire.decode(frame)
        self._check_arrival(message, link)
        self._routes.check(link, message.sender)
        if not self.kernel.replays:
            self.check(message)
        self._spread(message)

    def _check_arrival(self, message: UnorderedMessage, link: int) -> None:
        """Refuse what no correct peer can have sent us, but for who may use this link."""
        name, n = f"the unordered M({message.sender}, {message.clock})", len(self.kernel.roster)
        if message.n > n:
            raise RemoteProtocolError(f"{name} comes from a system of {message.n} processes and we know {n}")
        if self._routes.place is None and message.sender != link:
            raise RemoteProtocolError(f"{name} comes from process {link}")
        me = self.kernel.me
        if not message.dests >> me & 1 and not self._next_hops(message):
            raise RemoteProtocolError(f"{name} is not for process {me}, nor for anybody behind it")

    def _next_hops(self, message: UnorderedMessage) -> list[int]:
        """The links that a message of ours is sent on, or one that has arrived."""
        me, place = self.kernel.me, self._routes.place
        if place is not None:
            return [branch.towards for branch in onward(place.branches, message.sender, message.dests)]
        return list(unpack(message.dests & ~(1 << me))) if message.sender == me else []

    def _spread(self, message: UnorderedMessage) -> None:
        """Send a message on, and deliver it if it is for us."""
        kernel = self.kernel
        for link in self._next_hops(message):
            kernel.links.put(link, wire.encode(message))
        if message.dests >> kernel.me & 1:
            kernel.machine.tick()
            kernel.hand_over(message.sender, message.clock, self.open(message.payload))
