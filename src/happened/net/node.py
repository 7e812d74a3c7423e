"""A process among others: multicasts that arrive in order, whatever is killed or cut in between.

    peers = {"alice": "127.0.0.1:7001", "bob": "127.0.0.1:7002"}
    async with Node("alice", peers=peers, listen=peers["alice"], guard=Plaintext()) as node:
        await node.multicast(["bob"], b"hello")
        async for message in node:
            print(message.sender, message.payload)
            await message.ack()

Assumes    what the ordering protocol assumes (docs/ordering.md), and that members are listed alike
           everywhere. FIFO reliable links are made here.
Promises   every multicast that was confirmed is delivered at each destination, in order, and delivered again
           after a crash until it is acknowledged, never after. With a journal, a node killed at any instant
           goes on as if it had only been slow; without, its state ends with it and its peers refuse it when
           it comes back. Nothing is shown to others, nor to the application, before it is journaled.
Leaves out agreement on members beyond the registrar's (engine.py), and peers that lie about their own state.
Bounds     those of limits.py: above them `multicast` waits and links are not read.
"""

import asyncio
import contextlib
import json
import logging
import os
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from ..core.errors import LocalProtocolError, RemoteProtocolError
from ..ordering import DEFAULT, protocols
from .engine import Batch, Delivery, Engine
from .errors import EngineFault, JournalError, NodeClosed, NodeError, NodeFull, PeerRefused
from .handshake import check_name
from .journal import MAX_SNAPSHOT, Identity, Journal
from .limits import Limits
from .link import Outbox
from .tcp import TcpTransport
from .transport import Guard, Hello, Transport

log = logging.getLogger("happened.node")

LOGGED_REASONS = 1000
"""Different troubles that are logged once each, with each peer and with all strangers together; beyond them,
only counted."""


class Message:
    """A delivered message. `name` is the same at its sender and everywhere it is delivered."""

    __slots__ = ("_node", "_number", "clock", "payload", "sender")

    def __init__(self, node: "Node", delivery: Delivery, sender: str) -> None:
        self._node = node
        self._number = delivery.number
        self.sender = sender
        self.clock = delivery.clock
        self.payload = delivery.payload

    @property
    def name(self) -> str:
        return f"{self.sender}:{self.clock}"

    @property
    def number(self) -> int:
        """Its place among all deliveries here, from 1; the same when it is delivered again."""
        return self._number

    async def ack(self) -> None:
        """It need not be delivered again; returns when that is certain."""
        self._node._acknowledge(self._number)
        await self._node.flush()

    def ack_nowait(self) -> None:
        """The same without waiting: certain after the next commit, some milliseconds from now."""
        self._node._acknowledge(self._number)

    def __repr__(self) -> str:
        return f"<Message {self.name}, {len(self.payload)} bytes>"


class Pending(NamedTuple):
    """A message that arrived and may not be delivered yet."""

    message: str
    waits_for: tuple[str, ...]  # messages not delivered here; itself: it lacks its place in the total order
    since: int  # the seq of its arrival


class Node:
    """One process.

    peers       names and addresses of the others; of those in `members`, only the ones we talk with
    members     everybody, in the order of their indices, the same everywhere; default: all names, sorted
    groups      names for sets of members, usable as destinations
    options     the ordering protocol's own, with names for processes
    journal     a file; None: memory only
    flush       whether every commit waits for the disk (a power failure), or only for the system (kill -9)
    trace       a directory for the events of this node
    guard       how peers are authenticated: there is no default
    transport   instead of TCP, which `listen` and `guard` are for
    """

    def __init__(
        self,
        name: str,
        *,
        peers: Mapping[str, str],
        listen: str = "127.0.0.1:0",
        protocol: str = DEFAULT,
        options: Mapping[str, Any] | None = None,
        members: Sequence[str] | None = None,
        groups: Mapping[str, Iterable[str]] | None = None,
        journal: str | Path | None = None,
        flush: bool = True,
        trace: str | Path | None = None,
        computation: str = "",
        guard: Guard | None = None,
        transport: Transport | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.name = check_name(name)
        if protocol not in protocols():
            raise LocalProtocolError(
                f"no ordering protocol is called {protocol!r}; there are: {', '.join(sorted(protocols()))}"
            )
        self._limits = limits or Limits()
        self._peers = {check_name(peer): address for peer, address in peers.items() if peer != name}
        first = tuple(members) if members is not None else tuple(sorted({name, *self._peers}))
        if name not in first or not self._peers.keys() <= set(first):
            raise LocalProtocolError(f"members {', '.join(first)} must have {name!r} and all its peers")
        if len(self._peers) > self._limits.peers:
            raise LocalProtocolError(f"{len(self._peers)} peers; the limit is {self._limits.peers}")
        self._protocol = protocol
        self._first_members = first
        self._options = dict(options or {})
        self._groups = {group: tuple(names) for group, names in (groups or {}).items()}
        self._check_groups()
        self._journal_path = Path(journal) if journal is not None else None
        self._flush = flush
        self._trace_directory = Path(trace) if trace is not None else None
        self._computation = computation
        if transport is None:
            if guard is None:
                raise LocalProtocolError(
                    "say how peers are authenticated: certificates, a shared key, or guard=Plaintext() to "
                    "believe every name, which is for one machine only"
                )
            transport = TcpTransport(listen, guard, self._limits)
        self.transport: Transport = transport

        self.failure: BaseException | None = None
        self._state = "new"
        self._journal: Journal | None = None
        self._recorder: Any = None
        self._index: dict[str, int] = {}
        self._names: list[str] = []
        self._ready: deque[Delivery] = deque()
        self._committing = False
        self._scheduled = False
        self._cuts = 0  # batches begun
        self._durable = 0  # batches durable
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._paused: set[int] = set()
        self._snapshot_bytes = 0
        self._told: dict[str, dict[tuple[str, str], int]] = {}  # by peer; "" for strangers
        self._counts = dict.fromkeys(("frames_received", "frames_duplicate", "commits", "refused"), 0)
        self._connected: dict[bool, set[str]] = {True: set(), False: set()}

    # Life.

    async def __aenter__(self) -> "Node":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        if self._state != "new":
            raise LocalProtocolError("a node is started once; make another one")
        self._loop = asyncio.get_running_loop()
        self._news, self._space = asyncio.Event(), asyncio.Event()
        self._space.set()
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"journal-{self.name}")
        try:
            self._load()
            self._state = "running"
            engine = self._engine
            for peer, address in {**self._peers, **engine.addresses}.items():
                index = self._index.get(peer)
                if index is not None and not (engine.is_gone(index) and not engine.outboxes[index]):
                    self._add_peer(peer, address, is_joined=peer in engine.addresses)
            self._ready.extend(engine.unacknowledged.values())
            if self._ready:
                self._news.set()
            await self.transport.start(self)
        except BaseException:
            self._state = "closed"
            self._release_files()
            raise
        self._regulate()
        log.info("started", extra={"node": self.name, "events": engine.events, "again": len(self._ready)})

    def _load(self) -> None:
        options = self._machine_options()
        identity = Identity(
            self.name, self._protocol, json.dumps(options, sort_keys=True), self._first_members
        )
        if self._journal_path is not None:
            self._journal = Journal(self._journal_path, flush=self._flush)
            self._incarnation = self._journal.open(identity)
        else:
            self._incarnation = os.urandom(8)
        try:
            self._engine = Engine(
                self.name, self._first_members, self._protocol, options, journaled=self._journal is not None
            )
        except TypeError as error:
            raise LocalProtocolError(f"these are no options of {self._protocol!r}: {error}") from error
        if self._trace_directory is not None:
            from .recording import TraceRecorder

            self._recorder = TraceRecorder(
                self._trace_directory,
                self.name,
                lambda index: self._engine.roster.name(index),
                self._computation,
            )
            self._engine.recorder = self._recorder
        if self._journal is not None:
            self._replay(self._journal)
        elif self._recorder is not None and self._recorder.written:
            raise NodeError(
                f"{self._trace_directory} has a trace of {self.name!r}; without a journal it cannot go on"
            )
        self._number_members()
        self._began_with = {link: outbox.last for link, outbox in self._engine.outboxes.items()}

    def _replay(self, journal: Journal) -> None:
        try:
            state = journal.snapshot()
            if state is not None:
                self._engine.restore(state)
                self._snapshot_bytes = len(state)
            if self._recorder is not None:
                self._recorder.continues(self._engine.events)
            for when, entries in journal.batches():
                self._engine.replay(entries, when)
                if self._recorder is not None:
                    self._recorder.keep(self._recorder.cut())
            if self._recorder is not None and self._recorder.written > self._engine.events:
                raise NodeError(
                    f"{self._trace_directory} has {self._recorder.written} events of {self.name!r} and "
                    f"{journal.path} knows of {self._engine.events}: it is an old copy or a new journal. "
                    "Restore the newest, or give another directory"
                )
        except (ValueError, KeyError, RemoteProtocolError, LocalProtocolError) as error:
            raise JournalError(
                f"{journal.path}: cannot be replayed ({error}); was it written by another version?"
            ) from error

    def _number_members(self) -> None:
        engine = self._engine
        for index in range(len(engine.roster)):
            self._index[engine.roster.name(index)] = index  # of two of one name, the later
        self._names = [engine.roster.name(index) for index in range(len(engine.roster))]

    async def close(self) -> None:
        """Stop taking part: what was sent is given `limits.linger` seconds to arrive, then all is saved."""
        if self._state in ("closed", "new"):
            self._state = "closed"
            return
        try:
            try:
                if self._state == "running":
                    # Links are still read: peers that close now need our acknowledgements.
                    self._state = "closing"
                    with contextlib.suppress(TimeoutError, NodeClosed):
                        await asyncio.wait_for(self._drained(), self._limits.linger)
            finally:
                await self.transport.close()
            if self._state == "closing":
                self._state = "closed"  # the application may acknowledge until here
                await self._settled()
                await self._put_away()
        except (NodeClosed, NodeError) as error:
            self._fail(error)
        finally:
            self._state = "closed"
            self._wake_everybody()
            self._release_files()
        log.info("closed", extra={"node": self.name, "events": self._engine.events})

    async def _drained(self) -> None:
        """Every peer that is present has acknowledged everything, or is away and the journal keeps it."""
        await self.flush()
        while any(map(self._is_waited_for, self._engine.present_links())):
            self._space.clear()
            await self._space.wait()
            self._check_running(closing=True)

    def _is_waited_for(self, link: int) -> bool:
        is_there = self._names[link] in self._connected[True]
        return bool(self._engine.outboxes[link]) and (is_there or self._journal is None)

    async def _put_away(self) -> None:
        """A last snapshot, so that the next start has nothing to replay."""
        if self._journal is not None:
            state = self._engine.snapshot()
            if len(state) > MAX_SNAPSHOT:
                return
            run = self._loop.run_in_executor
            after = await run(self._pool, self._journal.append, time.time_ns(), b"", state)
            if self._recorder is not None:
                self._recorder.flush()
            await run(self._pool, self._journal.forget, after)

    def _release_files(self) -> None:
        self._pool.shutdown(wait=True)
        if self._recorder is not None:
            try:
                self._recorder.flush()
            except NodeError as error:
                log.error("trace", extra={"node": self.name, "error": str(error)})
        if self._journal is not None:
            try:
                self._journal.close()
            except JournalError as error:
                log.error("journal", extra={"node": self.name, "error": str(error)})

    def _fail(self, error: BaseException) -> None:
        """Stop at once: nothing more is sent, delivered or confirmed."""
        if self.failure is None:
            self.failure = error
            self._state = "failed"
            log.error("stopped", extra={"node": self.name, "error": str(error)})
            self._wake_everybody()
            self._loop.create_task(self.transport.close())

    def _wake_everybody(self) -> None:
        self._news.set()
        self._space.set()
        while self._waiters:
            _, waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(self._closed_error())
                waiter.exception()  # it may have nobody who waits

    def _closed_error(self) -> NodeClosed:
        if self.failure is not None:
            error = NodeClosed(f"{self.name!r} has stopped: {self.failure}")
            error.__cause__ = self.failure
            return error
        return NodeClosed(f"{self.name!r} is closed")

    def _check_running(self, *, closing: bool = False) -> None:
        if self._state != "running" and not (closing and self._state == "closing"):
            raise self._closed_error()

    # The application's side.

    async def multicast(self, to: str | Iterable[str], payload: bytes) -> str:
        """Returns the message's name when it is certain to be delivered: journaled, if there is a journal."""
        await self.room()
        name = self.multicast_nowait(to, payload)
        if self._journal is not None:
            await self.flush()
        return name

    def multicast_nowait(self, to: str | Iterable[str], payload: bytes) -> str:
        """The same without waiting: NodeFull above the limits; certain after the next commit."""
        self._check_running()
        if not self._space.is_set():
            raise NodeFull(f"{self.name!r} has too much that is not acknowledged; wait for room()")
        most = min(self._limits.payload, self.transport.max_payload)
        if len(payload) > most:
            raise LocalProtocolError(f"a payload of {len(payload)} bytes exceeds the limit of {most}")
        self._stamp()
        try:
            clock = self._engine.multicast(self._destinations(to), payload)
        except EngineFault as error:
            self._fail(error)
            raise
        self._schedule()
        self._measure()
        return f"{self.name}:{clock}"

    @property
    def sent(self) -> int:
        """How many multicasts this process has made in its life: after a restart, where to go on."""
        return self._engine.sent

    @property
    def delivered(self) -> int:
        """How many messages were delivered here, acknowledged or not."""
        return self._engine.delivered

    async def room(self) -> None:
        """Wait until the outboxes are below their limit."""
        self._check_running()
        while not self._space.is_set():
            await self._space.wait()
            self._check_running()

    async def flush(self) -> None:
        """Wait until everything so far is journaled, and may be seen by others."""
        self._check_running(closing=True)
        await self._settled()

    async def _settled(self) -> None:
        if self._durable == self._cuts and not self._engine.is_dirty:
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append((self._cuts + self._engine.is_dirty, waiter))
        await waiter

    def __aiter__(self) -> "Node":
        return self

    async def __anext__(self) -> Message:
        while not self._ready:
            if self.failure is not None:
                raise self._closed_error()
            if self._state in ("closed", "closing"):
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        if self.failure is not None:
            raise self._closed_error()
        return self._next()

    def receive_nowait(self) -> Message | None:
        """The next message if there is one."""
        return self._next() if self._ready and self.failure is None else None

    def _next(self) -> Message:
        delivery = self._ready.popleft()
        if self._journal is None:  # nothing to be delivered again after
            self._engine.forget(delivery.number)
            if self._paused:
                self._regulate()
        return Message(self, delivery, self._names[delivery.sender])

    def pending(self) -> list[Pending]:
        """What is held back here, and what each message waits for."""
        name = self._engine.roster.name
        return [
            Pending(
                f"{name(held.message.sender)}:{held.message.clock}",
                tuple(f"{name(sender)}:{clock}" for sender, clock in held.waits_for),
                held.since,
            )
            for held in self._engine.pending()
        ]

    def stats(self) -> dict[str, Any]:
        """Numbers about this node, and about each peer."""
        engine = self._engine
        name = engine.roster.name
        return {
            **self._counts,
            "state": self._state,
            "multicasts": engine.sent,
            "deliveries": engine.delivered,
            "events": engine.events,
            "undelivered": len(self._ready),
            "unacknowledged": len(engine.unacknowledged),
            "held": sum(engine.held.values()),
            "staged_bytes": engine.staged,
            "journal_bytes": self._journal.bytes if self._journal is not None else 0,
            "peers": {
                name(link): {
                    "outbox_frames": len(outbox),
                    "outbox_bytes": outbox.bytes,
                    "sent": outbox.released,
                    "acknowledged": outbox.acknowledged,
                    "received": engine.inboxes[link].durable,
                    "paused": link in self._paused,
                    "calling": name(link) in self._connected[True],
                    "called": name(link) in self._connected[False],
                    "gone": engine.is_gone(link),
                }
                for link, outbox in engine.outboxes.items()
            },
        }

    @property
    def members(self) -> tuple[str, ...]:
        """Who is present."""
        return tuple(self._engine.roster)

    async def join(self, name: str, address: str) -> tuple[str, ...]:
        """Admit a process; returns the `members` it must be started with."""
        self._check_running()
        check_name(name)
        if len(self._engine.present_links()) >= self._limits.peers:
            raise LocalProtocolError(f"there are {self._limits.peers} peers, which is the limit")
        self.transport.check_address(name, address)  # before everybody hears of it, for ever
        self._stamp()
        self._engine.join(name, address)
        self._number_members()
        self.transport.add_peer(name, address)
        self._schedule()
        await self.flush()
        roster = self._engine.roster
        return tuple(roster.name(index) for index in range(len(roster)))

    async def leave(self, timeout: float = 30.0) -> None:
        """Leave the others for good: returns when all they sent us before they knew has arrived."""
        self._check_running()
        self._stamp()
        self._engine.leave(self.name)
        self._schedule()
        await self.flush()
        deadline = self._loop.time() + timeout
        while not self._engine.farewells.issuperset(self._engine.present_links()):
            if self._loop.time() > deadline:
                raise NodeError(f"not everybody has said farewell to {self.name!r} in {timeout} s")
            await asyncio.sleep(0.01)

    async def expel(self, name: str) -> None:
        """A process will not come back: nothing more is addressed to it, and no outbox waits for it. What it
        had sent to some of us and not to others stays awaited where it is missing: see `pending`."""
        self._check_running()
        self._stamp()
        self._engine.leave(name)
        self._schedule()
        self._measure()
        await self.flush()
        self.transport.remove_peer(name)

    def _destinations(self, to: str | Iterable[str]) -> tuple[int, ...]:
        found: dict[int, None] = {}
        index = self._engine.roster.index
        for name in (to,) if isinstance(to, str) else to:
            if name in self._groups:
                for member in self._groups[name]:
                    if member in self._engine.roster:
                        found[index(member)] = None
            else:
                found[index(name)] = None
        return tuple(found)

    def _check_groups(self) -> None:
        for group, names in self._groups.items():
            if group in self._first_members:
                raise LocalProtocolError(f"{group!r} is a member and cannot be the name of a group")
            if not names:
                raise LocalProtocolError(f"group {group!r} has no members")

    def _machine_options(self) -> dict[str, Any]:
        """The protocol's options with indices for names."""
        number = {name: index for index, name in enumerate(self._first_members)}

        def indices(value: Any) -> Any:
            if isinstance(value, list | tuple | set | frozenset):
                return [indices(each) for each in value]
            return number.get(value, value) if isinstance(value, str) else value

        return {key: indices(value) for key, value in self._options.items()}

    def _acknowledge(self, number: int) -> None:
        self._check_running(closing=True)
        if self._journal is not None:
            self._stamp()
            if self._engine.acknowledge(number):
                self._schedule()
                if self._paused:
                    self._regulate()

    # The transport's side.

    def hello(self, peer: str) -> Hello:
        roster = self._engine.roster
        knows = self._engine.incarnations.get(self._index[peer], b"")
        members = tuple(roster.name(index) for index in range(len(roster)))
        return Hello(self._incarnation, knows, self._protocol, members)

    def meet(self, peer: str, hello: Hello) -> None:
        engine, link = self._engine, self._index.get(peer)
        if link is None:
            raise PeerRefused(f"{peer!r} is not a member here")
        ours = self.hello(peer)
        if hello.protocol != ours.protocol:
            raise PeerRefused(
                f"{peer!r} runs protocol {hello.protocol!r} and {self.name!r} {ours.protocol!r}"
            )
        if any(a != b for a, b in zip(hello.members, ours.members, strict=False)):
            raise PeerRefused(
                f"{peer!r} lists members {', '.join(hello.members)}, and {self.name!r} "
                f"{', '.join(ours.members)}: they must be the same, in the same order"
            )
        if ours.knows and hello.incarnation != ours.knows:
            raise PeerRefused(
                f"{peer!r} came back without its journal: its clocks are lost, and what it sends now could "
                "be taken for what it sent before. Restore its journal, or let it join under a new name"
            )
        if hello.knows and hello.knows != ours.incarnation:
            raise PeerRefused(
                f"{peer!r} knows {self.name!r} with another journal; restore that, or join under a new name"
            )
        if not ours.knows:
            self._stamp()
            engine.meet(link, hello.incarnation)
            self._schedule()

    def outbox(self, peer: str) -> Outbox:
        return self._engine.outboxes[self._index[peer]]

    def resumes(self, peer: str, number: int) -> None:
        link = self._index[peer]
        # It never says less than on an earlier connection, unless it has forgotten.
        if number < (before := self._engine.outboxes[link].acknowledged):
            raise PeerRefused(
                f"{peer!r} had {before} frames of {self.name!r} and now has {number}: its journal is an old "
                "copy, or has lost its end. Restore the newest, or let it join under a new name"
            )
        # Nor more, the first time, than our journal had when we started: what we have numbered since then,
        # it cannot have. If it does, those are others under the same numbers, and ours would be dropped.
        if number > self._began_with.get(link, number):
            self._refuse_old_copy(peer, number, self._began_with[link])
        self._began_with.pop(link, None)
        self.acknowledged(peer, number)

    def _refuse_old_copy(self, peer: str, number: int, known: int) -> None:
        raise PeerRefused(
            f"{peer!r} has {number} frames of {self.name!r}, whose journal knows {known}: it is an old copy, "
            "or has lost its end. Restore the newest one, or join under a new name"
        )

    def acknowledged(self, peer: str, number: int) -> None:
        if self.failure is not None:
            return
        link = self._index[peer]
        if number > self._engine.outboxes[link].released:
            self._refuse_old_copy(peer, number, self._engine.outboxes[link].released)
        self._stamp()
        if self._engine.free(link, number):
            self._schedule()
            self._measure()
            if self._paused:
                self._regulate()
            if self._engine.is_gone(link) and not self._engine.outboxes[link]:
                self._loop.call_soon(self.transport.remove_peer, peer)  # it has had our farewell

    def expects(self, peer: str) -> int:
        return self._engine.inboxes[self._index[peer]].taken + 1

    def received(self, peer: str) -> int:
        return self._engine.inboxes[self._index[peer]].durable

    def arrived(self, peer: str, frames: Sequence[tuple[int, bytes]]) -> None:
        if self.failure is not None or self._state == "closed":
            return
        link = self._index[peer]
        engine = self._engine
        inbox, receive = engine.inboxes[link], engine.receive
        self._stamp()
        known = len(engine.roster)
        before = inbox.taken
        try:
            for number, frame in frames:
                if number == inbox.taken + 1 or inbox.is_new(number):
                    receive(link, frame)
        except RemoteProtocolError:
            self._counts["refused"] += 1
            raise
        except EngineFault as error:
            self._fail(error)
        else:
            self._counts["frames_duplicate"] += len(frames) - (inbox.taken - before)
        finally:
            taken = inbox.taken - before
            self._counts["frames_received"] += taken
            if taken:
                self._schedule()
                if len(engine.roster) != known:
                    self._meet_new(known)
                self._regulate()
            elif not engine.is_dirty and not self._committing:
                self.transport.durable(peer, inbox.durable)

    def _meet_new(self, known: int) -> None:
        """Members that others have admitted."""
        self._number_members()
        for index in range(known, len(self._engine.roster)):
            name = self._engine.roster.name(index)
            self._add_peer(name, self._engine.addresses[name], is_joined=True)

    def _add_peer(self, name: str, address: str, *, is_joined: bool) -> None:
        """An address that another admitted must not stop us, now or at the next start."""
        try:
            self.transport.add_peer(name, address)
        except NodeError as error:
            if not is_joined:
                raise
            log.error("cannot call", extra={"node": self.name, "peer": name, "error": str(error)})

    def connected(self, peer: str, outgoing: bool) -> None:
        self._connected[outgoing].add(peer)
        log.info("connected", extra={"node": self.name, "peer": peer, "outgoing": outgoing})

    def disconnected(self, peer: str, outgoing: bool, reason: str) -> None:
        self._connected[outgoing].discard(peer)
        if self._state == "closing":
            self._space.set()
        if not reason:
            return
        key = (peer, reason)
        told = self._told.setdefault(peer if peer in self._index else "", {})
        if key not in told and len(told) < LOGGED_REASONS:
            log.warning(
                "disconnected",
                extra={"node": self.name, "peer": peer, "outgoing": outgoing, "reason": reason},
            )
        if key in told or len(told) < LOGGED_REASONS:
            told[key] = told.get(key, 0) + 1

    # Commits.

    def _stamp(self) -> None:
        """The time of the inputs that follow. The journal keeps one for a batch, its last: rows of a trace
        that replay has to make again have that, and the others their own."""
        if self._recorder is not None or not self._engine.is_dirty:
            self._engine.time = time.time_ns()

    def _schedule(self) -> None:
        if not self._scheduled and not self._committing:
            self._scheduled = True
            self._loop.call_soon(self._commit)

    def _commit(self) -> None:
        self._scheduled = False
        if self._committing or self.failure is not None or not self._engine.is_dirty:
            return
        batch = self._engine.cut()
        rows = self._recorder.cut() if self._recorder is not None else ()
        self._cuts += 1
        if self._journal is None:
            self._committed(batch, rows)
            return
        self._committing = True
        due = self._journal.bytes > self._limits.compaction + 2 * self._snapshot_bytes
        snapshot = self._engine.snapshot() if due else None
        if snapshot is not None and len(snapshot) > MAX_SNAPSHOT:  # too much is on its way: later
            self._snapshot_bytes, snapshot = len(snapshot), None
        future = self._loop.run_in_executor(
            self._pool, self._journal.append, batch.time, batch.entries, snapshot
        )
        future.add_done_callback(lambda done: self._appended(done, batch, rows, snapshot))

    def _appended(self, done: "asyncio.Future[int]", batch: Batch, rows: Any, snapshot: bytes | None) -> None:
        self._committing = False
        error = done.exception()
        if error is not None:
            self._fail(error)
            return
        if self._state == "failed":
            return
        self._committed(batch, rows)
        if self.failure is not None:
            return
        if snapshot is not None:
            self._snapshot_bytes = len(snapshot)
            self._compact(done.result())
        elif self._engine.is_dirty:
            self._commit()

    def _compact(self, after: int) -> None:
        """Shorten the journal, once the trace has what only the old inputs can tell."""
        if self._journal is None:
            return
        if self._recorder is not None:
            try:
                self._recorder.flush()
            except NodeError as error:
                self._fail(error)
                return
        self._committing = True
        future = self._loop.run_in_executor(self._pool, self._journal.forget, after)
        future.add_done_callback(self._compacted)

    def _compacted(self, done: "asyncio.Future[None]") -> None:
        self._committing = False
        error = done.exception()
        if error is not None:
            self._fail(error)
        elif self._engine.is_dirty:
            self._commit()

    def _committed(self, batch: Batch, rows: Any) -> None:
        """A batch is durable: let it be seen."""
        engine = self._engine
        self._durable += 1
        self._counts["commits"] += 1
        engine.release(batch)
        if self._recorder is not None:
            try:
                self._recorder.keep(rows)
            except NodeError as error:  # the journal has them: the next start makes the rows again
                self._fail(error)
                return
        name = engine.roster.name
        for link in batch.released:
            self.transport.wake(name(link))
        for link, number in batch.taken.items():
            self.transport.durable(name(link), number)
        if batch.deliveries:
            self._ready.extend(batch.deliveries)
            self._news.set()
        while self._waiters and self._waiters[0][0] <= self._durable:
            _, waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
        self._regulate()
        self._measure()

    # Back-pressure.

    def _measure(self) -> None:
        """Whether there is room for more multicasts."""
        engine, limits = self._engine, self._limits
        full = engine.staged > limits.staged or any(
            outbox.bytes > limits.outbox and not engine.is_gone(link)
            for link, outbox in engine.outboxes.items()
        )
        if full and self._state == "running":
            self._space.clear()
        elif not self._space.is_set():
            self._space.set()

    def _relays_too_much(self) -> bool:
        """A sequencer sends what others multicast: only unread links make them wait for a peer that is away.
        Twice the limit, which our own multicasts never reach: two nodes must not wait for each other."""
        return self._protocol == "sequencer" and any(
            outbox.bytes > 2 * self._limits.outbox + self._limits.frame and not self._engine.is_gone(link)
            for link, outbox in self._engine.outboxes.items()
        )

    def _regulate(self) -> None:
        """Which links to read."""
        engine, limits = self._engine, self._limits
        if (
            len(engine.unacknowledged) > limits.undelivered
            or engine.unacknowledged_bytes > limits.undelivered_bytes
            or engine.staged > limits.staged
            or self._relays_too_much()
        ):
            wanted = set(engine.outboxes)
        elif sum(engine.held.values()) > limits.held:
            wanted = {link for link, held in engine.held.items() if held}
        else:
            wanted = set()
        if wanted != self._paused:
            name = engine.roster.name
            for link in wanted - self._paused:
                self.transport.pause(name(link))
            for link in self._paused - wanted:
                self.transport.resume(name(link))
            self._paused = wanted
