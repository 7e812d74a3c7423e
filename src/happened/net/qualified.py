"""The layer of incomplete orders. Their multicasts take a label, a priority or a history besides destinations
and payload (ordering/causal/incomplete.py), which are recorded as keywords in the journal and in the trace.

In the trace the send of such a message is `unordered`, since no complete order is promised for it.
Attributes of the send give the keyword: {"label": …}, {"priority": …}, or {"after": …} with the names of the
messages in its history.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from ..core.destinations import pack, unpack
from ..core.errors import LocalProtocolError, RemoteProtocolError
from ..core.places import onward
from ..ordering import Facts, Multicast, incomplete
from ..ordering.causal.incomplete import CausalHistory, Preceding
from ..wire import unordered_message as wire
from ..wire.unordered_message import UnorderedMessage
from .batch import Input, Recorder
from .kernel import Kernel
from .link_routes import Routes
from .signed import HEAD, UNORDERED, SignedOrdered

How = Mapping[str, Any]
"""Keyword arguments of a machine's `multicast`."""

PLAIN: How = {}


def keywords(facts: Facts, **given: Any) -> How:
    """The given keywords that are not None; LocalProtocolError if the protocol does not take them."""
    how = {name: value for name, value in given.items() if value is not None}
    for name in how:
        if name != facts.qualifier.keyword:
            able = ", ".join(
                sorted(each.name for each in incomplete().values() if each.qualifier.keyword == name)
            )
            raise LocalProtocolError(f"{facts.name} takes no `{name}`; that is for {able}")
    history = how.get("after")
    if history is not None and not isinstance(history, CausalHistory):
        raise LocalProtocolError(f"`after` is a history, as of a message, not {type(history).__name__}")
    return how


class Qualified:
    """The layer of an incomplete order: the keywords of a multicast are journaled in front of its payload, as
    four bytes of length and JSON. `history` is that of our last multicast, if the application manages
    histories."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._machine = kernel, cast(Any, kernel.machine)
        self._keyword = kernel.facts.qualifier.keyword
        self._how = self._said = PLAIN  # keywords of the next multicast, and of the last one
        self.history: CausalHistory | None = None
        kernel.seals.append(self._seal)
        kernel.order = self._order
        kernel.record_sent = self._record_sent
        if self._keyword == "after":
            kernel.deliver = self._deliver

    def multicast(self, to: Sequence[int], payload: bytes, how: How) -> int:
        self._how = how
        try:
            return self._kernel.multicast(to, payload)
        finally:
            self._how = PLAIN

    def _seal(self, to: Sequence[int], payload: bytes) -> bytes:
        said = {name: history_to_json(each) if name == "after" else each for name, each in self._how.items()}
        head = json.dumps(said, separators=(",", ":")).encode()
        return len(head).to_bytes(4, "big") + head + payload

    def _order(self, to: Sequence[int], payload: bytes) -> Multicast:
        end = 4 + int.from_bytes(payload[:4], "big")
        said = json.loads(payload[4:end])
        self._said = {
            name: history_from_json(each) if name == "after" else each for name, each in said.items()
        }
        clock, effects = self._machine.multicast(to, payload[end:], **self._said)
        if self._keyword == "after":
            self.history = self._machine.history_of(self._kernel.me, clock)
        return Multicast(clock, effects)

    def _record_sent(
        self, recorder: Recorder, clock: int, dests: int, effects: Sequence[Any], frames: list[bytes]
    ) -> None:
        kernel = self._kernel
        told = attributes(kernel.facts, self._said, kernel.roster.name)
        recorder.sent_unordered(kernel.events, kernel.time, clock, dests, told)

    def _deliver(self, sender: int, clock: int, payload: bytes) -> None:
        history = json.dumps(history_to_json(self._machine.history_of(sender, clock)))
        self._kernel.hand_over(sender, clock, payload, history)


def history_to_json(history: CausalHistory) -> list[Any]:
    return [[c.sender, c.clock, hex(c.dests), hex(c.told), c.priority] for c in history]


def history_from_json(said: list[Any]) -> CausalHistory:
    return CausalHistory(Preceding(s, c, int(dests, 16), int(told, 16), p) for s, c, dests, told, p in said)


def attributes(facts: Facts, how: How, names: Callable[[int], str]) -> dict[str, str]:
    value = how.get(facts.qualifier.keyword)
    if facts.qualifier.keyword == "after":
        told = " ".join(f"{names(cause.sender)}:{cause.clock}" for cause in value or ())
        return {"after": told}
    return {facts.qualifier.keyword: str(value if value is not None else facts.qualifier.usual)}


class Unordered:
    """The layer of messages outside all orders: each is delivered once at every destination, when it
    arrives (Rodrigues & Veríssimo 1995, ch. 5). `routes` gives their ways, `signed` signs them.

    They travel over the same links as the messages of the ordering protocol, which lose and repeat nothing,
    but bypass its machine: the machine only counts their sends and deliveries as events of its process, so
    that all events have one numbering. Such a message waits for nothing, and nothing waits for it. What its
    receiver sends next is not ordered after what its sender sent before; nor does a tracker learn anything
    from it.
    """

    def __init__(self, kernel: Kernel, routes: Routes, signed: SignedOrdered | None = None) -> None:
        self._kernel, self._routes, self._signed = kernel, routes, signed
        kernel.frames[wire.MARK] = self._hear
        kernel.inputs[Input.UNORDERED] = self._multicast_again

    def multicast(self, to: Sequence[int], payload: bytes) -> int:
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
            self._signed.signed.check_one(message, message.payload, self._kernel.roster, UNORDERED)
        self._spread(message)

    def _next_hops(self, message: UnorderedMessage) -> list[int]:
        """The links to send a message on: one of ours, or one that has arrived here."""
        me, place = self._kernel.me, self._routes.place
        if place is not None:
            return [branch.towards for branch in onward(place.branches, message.sender, message.dests)]
        return list(unpack(message.dests & ~(1 << me))) if message.sender == me else []

    def _spread(self, message: UnorderedMessage) -> None:
        """Forward a message, and deliver it if it is for us."""
        kernel = self._kernel
        for link in self._next_hops(message):
            kernel.links.put(link, wire.encode(message))
        if message.dests >> kernel.me & 1:
            kernel.machine.tick()
            payload = message.payload if self._signed is None else message.payload[HEAD:]
            kernel.hand_over(message.sender, message.clock, payload)
