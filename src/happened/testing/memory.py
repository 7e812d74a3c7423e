"""A network in memory: the links of nodes that run in one event loop, with faults drawn from a seed.

Promises   the promises of net/transport.py, whatever breaks: a frame that a node confirmed arrives once and
           in order.
Faults     every transmission takes up to `delay` seconds, drawn anew, so that what different processes send
           arrives in any order; with probability `cuts` the connection breaks under it, which loses what is
           on its way there and back, and is made again `repair` seconds later. `cut`, `heal`: at will.
Leaves out virtual time: delays are real, and the event loop orders what happens at the same time.
           The same seed gives the same faults, not the same schedule to the microsecond.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from random import Random
from typing import Any

from ..core.errors import LocalProtocolError, RemoteProtocolError
from ..net import Limits, Node
from ..net.transport import Host

BATCH = 64 << 10
"""Bytes of frames in one transmission."""
WINDOW = 1 << 20
"""Bytes on their way before a link waits."""


class MemoryNetwork:
    """Connects the nodes of one test."""

    def __init__(
        self, seed: int = 0, *, delay: float = 0.002, cuts: float = 0.0, repair: float = 0.01
    ) -> None:
        if not 0 <= cuts < 1 or delay < 0 or repair < 0:
            raise LocalProtocolError("cuts is a probability below 1; delay and repair are seconds from 0 on")
        self.dice = Random(seed)
        self.delay, self.cuts, self.repair = delay, cuts, repair
        self.breaks = 0  # connections that broke
        self._there: dict[str, MemoryTransport] = {}
        self._cut: set[frozenset[str]] = set()

    def transport(self, name: str) -> "MemoryTransport":
        """The transport of one node, to be given to `Node(transport=…)`."""
        return MemoryTransport(self, name)

    @asynccontextmanager
    async def nodes(self, *names: str, **options: Any) -> AsyncIterator[tuple[Node, ...]]:
        """Started nodes of these names, each with the others as peers; `options` are those of `Node`."""
        options.setdefault("limits", Limits(linger=1.0))
        async with AsyncExitStack() as stack:
            started = [await stack.enter_async_context(self.node(name, names, **options)) for name in names]
            yield tuple(started)

    def node(self, name: str, names: tuple[str, ...], **options: Any) -> Node:
        """One node, not started: for tests that close it and start it again with its journal."""
        return Node(name, peers=dict.fromkeys(names, "memory"), transport=self.transport(name), **options)

    def cut(self, a: str, b: str) -> None:
        """Break the connections between two processes, until `heal`."""
        self._cut.add(frozenset((a, b)))
        for one, other in ((a, b), (b, a)):
            if one in self._there:
                self._there[one].lose(other, "the network is cut")

    def heal(self) -> None:
        """Let everybody connect again."""
        self._cut.clear()
        for transport in self._there.values():
            transport.connect_all()

    # What transports ask.

    def reached(self, source: str, to: str) -> "MemoryTransport | None":
        """The other end, if it is started and the connection is not cut."""
        return None if frozenset((source, to)) in self._cut else self._there.get(to)

    def enter(self, transport: "MemoryTransport") -> None:
        if transport.name in self._there:
            raise LocalProtocolError(f"a node called {transport.name!r} is on this network already")
        self._there[transport.name] = transport
        for other in list(self._there.values()):
            other.connect_all()

    def depart(self, transport: "MemoryTransport") -> None:
        if self._there.get(transport.name) is transport:
            del self._there[transport.name]
            for other in self._there.values():
                other.lose(transport.name, "the other side closed it")


class MemoryTransport:
    """The links of one node on a MemoryNetwork."""

    keeps_order = True
    acknowledges_for_peers = True

    def __init__(self, network: MemoryNetwork, name: str) -> None:
        self.network, self.name = network, name
        self._host: Host | None = None
        self._peers: set[str] = set()
        self._links: dict[str, _Link] = {}  # to whom we send
        self._waiting: dict[str, list[Callable[[], None]]] = {}  # by paused peer: what has arrived

    @property
    def host(self) -> Host:
        if self._host is None:
            raise LocalProtocolError(f"{self.name!r} is not started")
        return self._host

    async def start(self, host: Host) -> None:
        self._host = host
        self.network.enter(self)

    @property
    def max_payload(self) -> int:
        return Limits().payload

    def check_address(self, peer: str, address: str) -> None:
        """Any address will do: processes find each other by name."""

    def add_peer(self, peer: str, address: str) -> None:
        self._peers.add(peer)
        if self._host is not None:
            self.connect(peer)

    def remove_peer(self, peer: str) -> None:
        self._peers.discard(peer)
        self.lose(peer, "")
        other = self.network.reached(self.name, peer)
        if other is not None:
            other.lose(self.name, "it is no longer a member")

    def wake(self, peer: str) -> None:
        if peer in self._links:
            self._links[peer].pump()

    def durable(self, peer: str, number: int) -> None:
        other = self.network.reached(self.name, peer)
        if other is not None and self.name in other._links:
            other._links[self.name].confirm(number)

    def pause(self, peer: str) -> None:
        self._waiting.setdefault(peer, [])

    def resume(self, peer: str) -> None:
        for act in self._waiting.pop(peer, []):
            act()

    async def close(self) -> None:
        for peer in list(self._links):
            self.lose(peer, "")
        self.network.depart(self)
        self._waiting.clear()

    # Connections.

    def connect_all(self) -> None:
        for peer in self._peers:
            self.connect(peer)

    def connect(self, peer: str) -> None:
        """Connect our link to a peer, if it is there, knows us, and we are not connected."""
        other = self.network.reached(self.name, peer)
        if peer in self._links or other is None or other is self or self.name not in other._peers:
            return
        try:
            ours, theirs = self.host.hello(peer), other.host.hello(self.name)
            other.host.check(self.name, ours)
            self.host.check(peer, theirs)
            has = other.host.received(self.name)
            self.host.resumes(peer, has, theirs.heard)
            other.host.meet(self.name, ours)
            self.host.meet(peer, theirs)
        except RemoteProtocolError as error:
            self.host.disconnected(peer, True, str(error))
            return
        other.host.numbered_in(self.name, ours.lives)
        self._links[peer] = link = _Link(self, other, has)
        self.host.connected(peer, True)
        other.host.connected(self.name, False)
        link.pump()

    def lose(self, peer: str, reason: str) -> None:
        """End the connection of our link to a peer; what is on its way is lost."""
        link = self._links.pop(peer, None)
        if link is not None:
            link.is_open = False
            self.host.disconnected(peer, True, reason)
            link.other.host.disconnected(self.name, False, reason)

    def take(self, peer: str, act: Callable[[], None]) -> None:
        """Take frames that have arrived from a peer, now or once it is resumed."""
        if peer in self._waiting:
            self._waiting[peer].append(act)
        else:
            act()


class _Link:
    """One connection, from the process that sends to the one that receives."""

    def __init__(self, source: MemoryTransport, other: MemoryTransport, sent: int) -> None:
        self._source, self.other = source, other
        self._sent = sent
        self._under_way = 0
        self._arrives = self._returns = 0.0  # frames are not reordered on a link, in either direction
        self.is_open = True

    def pump(self) -> None:
        outbox = self._source.host.outbox(self.other.name)
        while self.is_open and self._sent < outbox.released and self._under_way < WINDOW:
            frames = outbox.after(self._sent, BATCH)
            if not frames:
                return
            self._sent = frames[-1][0]
            size = sum(len(frame) for _, frame in frames)
            self._under_way += size
            if self._breaks():
                return
            self._arrives = self._at(self._arrives, partial(self._arrive, frames, size))

    def confirm(self, number: int) -> None:
        if self.is_open and not self._breaks():
            self._returns = self._at(self._returns, lambda: self._confirmed(number))

    def _arrive(self, frames: list[tuple[int, bytes]], size: int) -> None:
        self.other.take(self._source.name, lambda: self._taken(frames, size))

    def _taken(self, frames: list[tuple[int, bytes]], size: int) -> None:
        if not self.is_open:
            return
        self._under_way -= size
        try:
            self.other.host.arrived(self._source.name, frames)
        except RemoteProtocolError as error:
            self._lose(str(error))
        else:
            self.pump()

    def _confirmed(self, number: int) -> None:
        if self.is_open:
            self._source.host.freed(self.other.name, number)

    def _at(self, not_before: float, act: Callable[[], None]) -> float:
        loop, network = asyncio.get_running_loop(), self._source.network
        # Later than the previous one: the event loop keeps no order among callbacks of one time.
        when = max(math.nextafter(not_before, math.inf), loop.time() + network.dice.uniform(0, network.delay))
        loop.call_at(when, act)
        return when

    def _breaks(self) -> bool:
        network = self._source.network
        if network.dice.random() >= network.cuts:
            return False
        network.breaks += 1
        self._lose("the connection broke")
        return True

    def _lose(self, reason: str) -> None:
        peer, source = self.other.name, self._source
        source.lose(peer, reason)
        asyncio.get_running_loop().call_later(source.network.repair, source.connect, peer)
