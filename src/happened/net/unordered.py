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
from .signed import HEAD, SignedOrdered


class Unordered:
    """The unordered messages of a kernel; `routes` say how they travel, `signed` how they are signed."""

    def __init__(self, kernel: Kernel, routes: Routes, signed: SignedOrdered | None = None) -> None:
        self._kernel, self._routes, self._signed = kernel, routes, signed
        kernel.frames[wire.MARK] = self._hear
        kernel.inputs[Input.UNORDERED] = self._multicast_again

    def multicast(self, to: Sequence[int], payload: bytes) -> int:
        """Multicast a payload outside of all orders; returns the clock that names the message."""
        kernel = self._kernel
        kernel.check_may_send()
        wire.check_payload(payload)
        dests, n = pack(to), len(kernel.roster)
        if not dests:
            raise LocalProtocolError("a message needs at least one destination")
        for process in unpack(dests):
            if process >= n or process in kernel.gone:
                state = "has left" if process < n else f"is not among {n} processes"
                raise LocalProtocolError(f"process {process} {state} and cannot be sent to")
        if self._signed is not None:
            payload = self._signed.seal_unordered(dests, payload)
        return self._multicast(dests, payload)

    def _multicast_again(self, size: int, data: bytes) -> None:
        self._multicast(int.from_bytes(data[:size], "little"), data[size:])

    def _multicast(self, dests: int, payload: bytes) -> int:
        kernel = self._kernel
        clock = kernel.machine.tick()
        size = (dests.bit_length() + 7) // 8
        kernel.stage(Input.UNORDERED, size, dests.to_bytes(size, "little"), payload)
        kernel.count_sent(dests, clock)
        if kernel.recorder is not None:
            kernel.recorder.sent_unordered(kernel.events, kernel.time, clock, dests)
        self._spread(UnorderedMessage(len(kernel.roster), kernel.me, clock, dests, payload))
        return clock

    def _hear(self, link: int, frame: bytes) -> None:
        message = wire.decode(frame)
        name, n = f"the unordered M({message.sender}, {message.clock})", len(self._kernel.roster)
        if message.n > n:
            raise RemoteProtocolError(f"{name} comes from a system of {message.n} processes and we know {n}")
        if self._routes.place is None and message.sender != link:
            raise RemoteProtocolError(f"{name} comes from process {link}")
        me = self._kernel.me
        if not message.dests >> me & 1 and not self._next_hops(message):
            raise RemoteProtocolError(f"{name} is not for process {me}, nor for anybody behind it")
        self._routes.check(link, message.sender)
        if self._signed is not None and not self._kernel.replays:
            self._signed.check_unordered(message)
        self._spread(message)

    def _next_hops(self, message: UnorderedMessage) -> list[int]:
        """The links that a message of ours is sent on, or one that has arrived."""
        me, place = self._kernel.me, self._routes.place
        if place is not None:
            return [branch.towards for branch in onward(place.branches, message.sender, message.dests)]
        return list(unpack(message.dests & ~(1 << me))) if message.sender == me else []

    def _spread(self, message: UnorderedMessage) -> None:
        """Send a message on, and deliver it if it is for us."""
        kernel = self._kernel
        for link in self._next_hops(message):
            kernel.links.put(link, wire.encode(message))
        if message.dests >> kernel.me & 1:
            kernel.machine.tick()
            payload = message.payload if self._signed is None else message.payload[HEAD:]
            kernel.hand_over(message.sender, message.clock, payload)
