"""Causal broadcast of constant size: flooding over FIFO links, after Friedman & Manor (2004) and Nédelec,
Molli & Mostéfaoui (Middleware 2018).

Assumes    FIFO links that may duplicate but not lose; a fixed connected overlay, the same for everybody;
           broadcasts only.
Promises   causal order with nothing carried but the message's name and who relays it.
Leaves out overlays that change: a link that is added can be faster than the old path, and needs the paper's
           handshake before it may be used. Any order between concurrent messages.
Invariant  a process puts each message on all its links when it delivers it, so every link carries
           messages in its sender's delivery order, which is causal by induction.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ...core.destinations import unpack
from ...core.effects import Send
from ...core.errors import LocalProtocolError
from ..machine import Effect, Facts, Held, Unit
from ..process import Process, refusal
from ..snapshots import opened, seal

FACTS = Facts(
    order="causal",
    casts=frozenset({"broadcast"}),
    fifo_links=True,
    description="constant size: everybody relays everything once, over FIFO links",
    paper="Nédelec, Molli & Mostéfaoui, Middleware 2018",
)


class FloodingMessage(NamedTuple):
    sender: int
    clock: int
    n: int
    dests: int  # bit set
    relay: int  # who put it on this link
    payload: bytes

    @property
    def to(self) -> frozenset[int]:
        return frozenset(unpack(self.dests))

    def units(self) -> frozenset[Unit]:
        return frozenset()

    def size(self) -> tuple[int, int]:
        return 0, 0

    def model_bytes(self) -> int:
        return 2  # the relay


class FloodingBroadcast:
    """`overlay` is "complete", "ring", or the links as pairs of processes."""

    def __init__(self, me: int, n: int, *, overlay: str | Iterable[tuple[int, int]] = "complete") -> None:
        self._process = Process(me, n)
        links = _links(overlay, n)
        _check_connected(links, n)
        self._neighbours = tuple(sorted({b for a, b in links if a == me} | {a for a, b in links if b == me}))
        self._delivered: dict[int, int] = {}  # per process the clock of its last message to pass here

    @property
    def me(self) -> int:
        return self._process.me

    @property
    def n(self) -> int:
        return self._process.n

    @property
    def clock(self) -> int:
        return self._process.clock

    def multicast(self, to: Iterable[int], payload: bytes) -> list[Effect]:
        dests = self._process.broadcast(to, payload)
        message = FloodingMessage(self.me, self._process.next_clock(), self.n, dests, self.me, payload)
        return self._pass_on(message, came_from=self.me)

    def receive(self, message: FloodingMessage) -> list[Effect]:
        if not isinstance(message, FloodingMessage) or message.sender != self.me:
            self._process.check(message, FloodingMessage)
        elif message.clock > self._delivered.get(self.me, 0):
            raise refusal(message, "claims to be ours, and we never sent it")
        if message.relay not in self._neighbours:
            raise refusal(message, f"is relayed by process {message.relay}, no neighbour of ours")
        self._process.arrival()
        if message.clock <= self._delivered.get(message.sender, 0):
            return []  # came by another way, or a duplicate made by the network
        return self._pass_on(message._replace(relay=self.me), came_from=message.relay)

    def _pass_on(self, message: FloodingMessage, came_from: int) -> list[Effect]:
        self._delivered[message.sender] = message.clock
        effects: list[Effect] = [Send(d, message) for d in self._neighbours if d != came_from]
        if message.dests >> self.me & 1:
            effects.append(self._process.delivery(message))
        return effects

    def pending(self) -> list[Held]:
        """Nothing: whatever arrives first over a FIFO link is deliverable."""
        return []

    def tick(self) -> int:
        return self._process.next_clock()

    def join(self, process: int) -> None:
        raise LocalProtocolError("flooding has a fixed overlay: start anew to add a process and its links")

    def leave(self, process: int) -> None:
        raise LocalProtocolError("flooding has a fixed overlay: start anew without the process and its links")

    def snapshot(self) -> bytes:
        return seal(
            "flooding",
            process=self._process.state(),
            neighbours=self._neighbours,
            delivered=sorted(self._delivered.items()),
        )

    def restore(self, data: bytes) -> None:
        with opened("flooding", data) as state:
            process = Process.from_state(state["process"])
            neighbours, delivered = tuple(state["neighbours"]), dict(state["delivered"])
        self._process, self._neighbours, self._delivered = process, neighbours, delivered


def _links(overlay: str | Iterable[tuple[int, int]], n: int) -> list[tuple[int, int]]:
    if overlay == "complete":
        return [(a, b) for b in range(n) for a in range(b)]
    if overlay == "ring":
        return [(p, (p + 1) % n) for p in range(n) if p != (p + 1) % n]
    if isinstance(overlay, str):
        raise LocalProtocolError(f"an overlay is 'complete', 'ring', or pairs of processes, not {overlay!r}")
    links = [(int(a), int(b)) for a, b in overlay]
    for link in links:
        if not all(0 <= p < n for p in link) or link[0] == link[1]:
            raise LocalProtocolError(f"a link joins two of the {n} processes, unlike {link}")
    return links


def _check_connected(links: list[tuple[int, int]], n: int) -> None:
    reached, waiting = {0}, [0]
    while waiting:
        p = waiting.pop()
        found = {b if a == p else a for a, b in links if p in (a, b)} - reached
        reached |= found
        waiting += found
    if len(reached) < n:
        missing = min(set(range(n)) - reached)
        raise LocalProtocolError(
            f"the overlay is not connected: nothing links process {missing} to process 0"
        )
