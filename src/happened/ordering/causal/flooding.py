"""Causal broadcast of constant size: flooding over FIFO links, after Friedman & Manor (2004) and Nédelec,
Molli & Mostéfaoui (Middleware 2018).

Assumes    FIFO links that may duplicate but not lose; a connected overlay, the same for all processes, that
           stays connected when a process has left; broadcasts only.
Promises   causal order; a message carries nothing but its name and the process that relays it.
Leaves out overlays that grow: a new link can be faster than the old path, and needs the paper's handshake
           before it may be used. Any order between concurrent messages.
Invariant  a process sends each message on all its links when it delivers the message, so every link carries
           messages in its sender's delivery order, which is causal by induction.
"""

from collections.abc import Iterable

from ...core.destinations import unpack
from ...core.effects import Send
from ...core.errors import LocalProtocolError
from ..facts import BROADCAST, Assumptions, CopyTravel, Facts, MembershipChanges, Option, Relays, WireFormat
from ..machine import Effect
from ..messages import Application, field
from ..process import Process, refusal
from ..snapshots import TABLE, kept, valued


class FloodingMessage(Application):
    relay: int  # the process that put this copy on the link
    payload: bytes

    via = field("relay")
    costs = 2  # the relay


class FloodingBroadcast(Process):
    """No message is ever pending here: what arrives first over a FIFO link is deliverable."""

    facts = Facts(
        name="flooding",
        description="constant size: everybody relays everything once, over FIFO links",
        paper="Nédelec, Molli & Mostéfaoui, Middleware 2018",
        options=(Option.of_sets("overlay", '"complete", "ring", or the links as pairs of processes'),),
        wire=WireFormat(34, "happened.wire.causal:FLOODING"),
        assumes=Assumptions(casts=frozenset({BROADCAST}), fifo_links=True),
        copies=CopyTravel(relays=Relays.EVERYBODY, common_frame=True),
        membership=MembershipChanges(
            joins=False,
            at_join="a new link can be faster than the old path, and would let messages overtake",
            at_leave="is not relayed to any more, which is refused if the others would be cut off from each "
            "other",
            at_expulsion="is not relayed to any more; what reached anybody reaches everybody",
        ),
    )

    _neighbours: tuple[int, ...] = kept(valued(()))
    _delivered: dict[int, int] = kept(TABLE)  # per process, the clock of its last message that passed here

    def __init__(self, me: int, n: int, *, overlay: str | Iterable[Iterable[int]] = "complete") -> None:
        super().__init__(me, n)
        self._overlay = links = _links(overlay, n)
        _check_connected(links, n)
        self._neighbours = tuple(sorted({b for a, b in links if a == me} | {a for a, b in links if b == me}))

    address = Process.everybody

    def stamp(self, clock: int, dests: int, payload: bytes) -> list[Effect]:
        message = FloodingMessage(self.me, clock, self.n, dests, self.me, payload)
        return self._pass_on(message, came_from=self.me)

    def receive(self, message: FloodingMessage) -> list[Effect]:
        if not isinstance(message, FloodingMessage) or message.sender != self.me:
            self.check(message, FloodingMessage)
        elif message.clock > self._delivered.get(self.me, 0):
            raise refusal(message, "claims to be ours, and we never sent it")
        if message.relay not in self._neighbours:
            raise refusal(message, f"is relayed by process {message.relay}, no neighbour of ours")
        self.arrival()
        if message.clock <= self._delivered.get(message.sender, 0):
            return []  # it came by another path before, or is a duplicate made by the network
        return self._pass_on(message._replace(relay=self.me), came_from=message.relay)

    def _pass_on(self, message: FloodingMessage, came_from: int) -> list[Effect]:
        self._delivered[message.sender] = message.clock
        effects: list[Effect] = [
            Send(d, message) for d in self._neighbours if d != came_from and not self.gone >> d & 1
        ]
        if message.dests >> self.me & 1:
            effects.append(self.delivery(message))
        return effects

    def leave(self, process: int) -> list[Effect]:
        # The remaining processes get every message by other paths, since each process sends on all its links.
        _check_connected(self._overlay, self.n, self.gone | 1 << max(process, 0))
        return super().leave(process)


def _links(overlay: str | Iterable[Iterable[int]], n: int) -> list[tuple[int, int]]:
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


def _check_connected(links: list[tuple[int, int]], n: int, gone: int = 0) -> None:
    """Raise if two present processes cannot reach each other over the overlay."""
    neighbours: dict[int, set[int]] = {p: set() for p in range(n) if not gone >> p & 1}
    for a, b in links:
        if a in neighbours and b in neighbours:
            neighbours[a].add(b)
            neighbours[b].add(a)
    first = min(neighbours, default=0)
    reached, waiting = {first}, [first] if neighbours else []
    while waiting:
        found = neighbours[waiting.pop()] - reached
        reached |= found
        waiting += found
    if missing := neighbours.keys() - reached:
        left = f" without {', '.join(map(str, unpack(gone)))}" if gone else ""
        raise LocalProtocolError(
            f"the overlay is not connected{left}: nothing links process {min(missing)} to process {first}"
        )
