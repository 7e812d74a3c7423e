"""A network in memory: the links of nodes that run in one event loop, with faults drawn from a seed.

Promises   those of net/transport.py, whatever breaks: a frame that a node confirmed arrives once and in
           order.
Faults     every transmission takes up to `delay` seconds, drawn anew, so that frames of different processes
           arrive in any order. With probability `cuts` a transmission breaks its connection, which loses
           what is under way both ways and is made again `repair` seconds later. `cut`, `heal`: on demand.
Leaves out virtual time: delays are real, and the event loop orders simultaneous events. The same seed gives
           the same faults, not the same schedule to the microsecond.
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
from ..net.transport import Host, Transport

BATCH = 64 << 10
"""How many bytes of frames go into one transmission."""
WINDOW = 1 << 20
"""How many bytes may be under way before a link waits."""


class MemoryNetwork:
    """Connects the nodes of one test with one another."""

    def __init__(
        self, seed: int = 0, *, delay: float = 0.002, cuts: float = 0.0, repair: float = 0.01
    ) -> None:
        if not 0 <= cuts < 1 or delay < 0 or repair < 0:
            raise LocalProtocolError("cuts is a probability below 1; delay and repair are seconds from 0 on")
        self.dice = Random(seed)
        self.delay, self.cuts, self.repair = delay, cuts, repair
        self.breaks = 0  # how many connections broke
        self._there: dict[str, MemoryTransport] = {}
        self._cut: set[frozenset[str]] = set()

    def transport(self, name: str) -> "MemoryTransport":
        """The transport of one node, for `Node(transport=…)`."""
        return MemoryTransport(self, name)

    @asynccontextmanager
    async def nodes(self, *names: str, **options: Any) -> AsyncIterator[tuple[Node, ...]]:
        """Start nodes of these names, each with the others as peers; `options` are those of `Node`."""
        options.setdefault("limits", Limits(linger=1.0))
        async with AsyncExitStack() as stack:
            started = [await stack.enter_async_context(self.node(name, names, **options)) for name in names]
            yield tuple(started)

    def node(self, name: str, names: tuple[str, ...], **options: Any) -> Node:
        """One node, not yet started: for tests that close it and start it again with its journal."""
        return Node(name, peers=dict.fromkeys(names, "memory"), transport=self.transport(name), **options)

    def cut(self, a: str, b: str) -> None:
        """Break the connections between two processes, until `heal`."""
        for link in (self.link(a, b), self.link(b, a)):
            if link is not None:
                link.lose("the network is cut")
        self._cut.add(frozenset((a, b)))

    def heal(self) -> None:
        """Let all processes connect again."""
        self._cut.clear()
        self._connect_all()

    def _connect_all(self) -> None:
        for transport in self._there.values():
            for link in transport.links():
                link.connect()

    # Methods that transports call.

    def link(self, name: str, peer: str) -> "MemoryLink | None":
        """The link of a process with a peer, if the process is started and the two are not cut."""
        there = None if frozenset((name, peer)) in self._cut else self._there.get(name)
        return None if there is None else there.link(peer)

    def enter(self, transport: "MemoryTransport") -> None:
        if transport.name in self._there:
            raise LocalProtocolError(f"a node called {transport.name!r} is on this network already")
        self._there[transport.name] = transport
        self._connect_all()

    def depart(self, transport: "MemoryTransport") -> None:
        if self._there.get(transport.name) is transport:
            for name in self._there:
                if (link := self.link(name, transport.name)) is not None:
                    link.lose("the other side closed it")
            del self._there[transport.name]


class MemoryTransport(Transport):
    """The links of one node on a MemoryNetwork."""

    max_payload = Limits().payload

    def __init__(self, network: MemoryNetwork, name: str) -> None:
        super().__init__()
        self.network, self.name = network, name

    async def start(self, host: Host) -> None:
        self._host = host
        self._make_links()
        self.network.enter(self)

    def _link_with(self, peer: str) -> "MemoryLink":
        return MemoryLink(self.network, self.host, peer)

    def add_peer(self, peer: str, address: str) -> None:
        super().add_peer(peer, address)
        if peer in self._links:
            self._links[peer].connect()

    def links(self) -> "list[MemoryLink]":
        return list(self._links.values())

    def link(self, peer: str) -> "MemoryLink | None":
        return self._links.get(peer)

    async def close(self) -> None:
        for link in self.links():
            link.lose("")
        self.network.depart(self)
        self._links.clear()


class MemoryLink:
    """The connection on which we send to a peer, made again when it breaks; while paused, it keeps the frames
    that have arrived from the peer."""

    def __init__(self, network: MemoryNetwork, host: Host, peer: str) -> None:
        self._network, self.host, self._me, self._peer = network, host, host.name, peer
        self._there: MemoryLink | None = None  # the peer's end, while connected
        self._connections = 0  # how many there were so far
        self._waiting: list[Callable[[], None]] | None = None  # while paused: frames that arrived

    def connect(self) -> None:
        """Connect, if the peer is there and knows us, and there is no connection."""
        host, peer, me, there = self.host, self._peer, self._me, self._network.link(self._peer, self._me)
        if self._there is not None or there is None or there is self:
            return
        try:
            ours, theirs = host.hello(peer), there.host.hello(me)
            there.host.check(me, ours)
            host.check(peer, theirs)
            has = there.host.received(me)
            host.resumes(peer, has, theirs.heard)
            there.host.meet(me, ours)
            host.meet(peer, theirs)
        except RemoteProtocolError as error:
            host.disconnected(peer, True, str(error))
            return
        there.host.numbered_in(me, ours.lives)
        self._there, self._sent, self._under_way = there, has, 0
        self._connections += 1
        self._arrives = self._returns = 0.0  # a link does not reorder frames, in either direction
        host.connected(peer, True)
        there.host.connected(me, False)
        self.wake()

    def lose(self, reason: str) -> None:
        """End the connection; what is under way is lost."""
        if self._there is not None:
            there, self._there = self._there, None
            self.host.disconnected(self._peer, True, reason)
            there.host.disconnected(self._me, False, reason)

    def close(self, reason: str) -> None:
        self.lose("")
        if (back := self._network.link(self._peer, self._me)) is not None:
            back.lose(reason)

    def pause(self) -> None:
        self._waiting = self._waiting or []

    def resume(self) -> None:
        waiting, self._waiting = self._waiting or [], None
        for act in waiting:
            act()

    def wake(self) -> None:
        """Send released frames, as long as fewer than WINDOW bytes are under way."""
        outbox = self.host.outbox(self._peer)
        while self._there is not None and self._sent < outbox.released and self._under_way < WINDOW:
            frames = outbox.after(self._sent, BATCH)
            if not frames:
                return
            self._sent = frames[-1][0]
            self._under_way += (size := sum(len(frame) for _, frame in frames))
            if not self._breaks():
                taken = self._if_connected(partial(self._taken, self._there, frames, size))
                self._arrives = self._at(self._arrives, partial(self._there.take, taken))

    def take(self, act: Callable[[], None]) -> None:
        """Take frames that have arrived from the peer, now or once the link is resumed."""
        if self._waiting is None:
            act()
        else:
            self._waiting.append(act)

    def _taken(self, there: "MemoryLink", frames: list[tuple[int, bytes]], size: int) -> None:
        self._under_way -= size
        try:
            there.host.arrived(self._me, frames)
        except RemoteProtocolError as error:
            self._break(str(error))
        else:
            self.wake()

    def durable(self, number: int) -> None:
        if (back := self._network.link(self._peer, self._me)) is not None:
            back.confirm(number)

    def confirm(self, number: int) -> None:
        """The peer acknowledges our frames up to this number."""
        if self._there is not None and not self._breaks():
            self._returns = self._at(self._returns, partial(self.host.freed, self._peer, number))

    def _at(self, not_before: float, act: Callable[[], None]) -> float:
        loop, network = asyncio.get_running_loop(), self._network
        # Later than the previous one: the event loop does not keep the order of callbacks for one time.
        when = max(math.nextafter(not_before, math.inf), loop.time() + network.dice.uniform(0, network.delay))
        loop.call_at(when, self._if_connected(act))
        return when

    def _if_connected(self, act: Callable[[], None]) -> Callable[[], None]:
        """Returns `act`, made to do nothing if the present connection has ended by then."""
        present = self._connections
        return lambda: act() if self._there is not None and self._connections == present else None

    def _breaks(self) -> bool:
        if self._network.dice.random() >= self._network.cuts:
            return False
        self._network.breaks += 1
        self._break("the connection broke")
        return True

    def _break(self, reason: str) -> None:
        self.lose(reason)
        asyncio.get_running_loop().call_later(self._network.repair, self._again)

    def _again(self) -> None:
        if self._network.link(self._me, self._peer) is self:
            self.connect()
