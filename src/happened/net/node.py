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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..core.clocks import Causality
from ..core.errors import LocalProtocolError, RemoteProtocolError
from ..core.places import onward_by_link
from ..ordering import DEFAULT, Relays, facts_of
from ..ordering.causal.incomplete import CausalHistory
from ..tracking import Stamp
from .batch import Batch, Delivery
from .commits import Commits
from .connections import Connections, LinkChange
from .consumers import Consumers, Subscription
from .engine import Engine
from .errors import EngineFault, NodeClosed, NodeError, NodeFull, OldJournal
from .expiry import Expiry, check_expiry
from .flow import Flow
from .identity import MutualTls
from .journal import Identity, Journal
from .lifecycle import Lifecycle, State
from .limits import Limits
from .link import Outbox
from .membership import InitialMembers, Membership, Peer, addresses_of
from .message import REQUEST, STAMP, Health, Message, Pending, Sent, note_sent, relation, tells_if_cancelled
from .payloads import Payloads, check_headers
from .qualified import keywords
from .refused_frames import Quarantine, Quarantined
from .requests import Requests
from .send_stamps import check_stamps, stamp_to_text
from .site import Site, proposal, read_site
from .site_changes import SiteChanges
from .site_failures import How, check_witnesses, succession_proposal
from .tcp import TcpTransport
from .terms import FEATURES, HIGHEST, LOWEST, Terms, check_cluster, digest_of_members, digest_of_options
from .timing import Histogram, Timing
from .tracked import check_tracker
from .transport import Guard, Hello, Shared, Sharing, Transport
from .turns import Turns
from .udp_multicast import UdpMulticast

if TYPE_CHECKING:
    from .trace_recorder import TraceRecorder

log = logging.getLogger("happened.node")


class Node:
    """One process.

    cluster     the name of the system, the same everywhere: a node of another one is refused; empty: none
    peers       names and addresses of the others; of those in `members`, only the ones we talk with.
                Names alone where the transport needs no addresses, as over NATS
    members     everybody, in the order of their indices, the same everywhere; default: all names, sorted
    groups      names for sets of members, usable as destinations
    codec       what values are sent as: None for bytes, JSON, MsgPack(), a dataclass, a pydantic model, or
                an object of your own (payloads.py); the same everywhere
    headers     whether messages have headers, which requests and replies need; the same everywhere
    stamps      whether messages carry the tracker's timestamp of their sending, for `relation`
    options     the ordering protocol's own, with names for processes
    tracker     a tracking protocol for `relevant` events, as in `p3-reduced` or `p2:4`, the same everywhere
    expiry      seconds in which every message is delivered, whoever is away meanwhile: protocols that keep
                histories forget what is older (expiry.py); None: nothing is forgotten by the clock
    topology    a file (docs/topology.md) from which members, links, routers and groups follow; of the peers
                only those are called that it links the process with
    journal     a file; None: memory only
    flush       whether every commit waits for the disk (a power failure), or only for the system (kill -9)
    trace       a directory for the events of this node
    guard       how peers are authenticated: there is no default
    transport   instead of TCP, which `listen` and `guard` are for
    medium      beside TCP, carries a multicast once for all its destinations (docs/runtime.md)
    """

    def __init__(
        self,
        name: str,
        *,
        peers: Mapping[str, str] | Iterable[str],
        listen: str = "127.0.0.1:0",
        protocol: str = DEFAULT,
        options: Mapping[str, Any] | None = None,
        tracker: str | None = None,
        expiry: float | None = None,
        topology: str | Path | None = None,
        members: Sequence[str] | None = None,
        groups: Mapping[str, Iterable[str]] | None = None,
        codec: object = None,
        headers: bool = False,
        stamps: bool = False,
        journal: str | Path | None = None,
        flush: bool = True,
        trace: str | Path | None = None,
        computation: str = "",
        guard: Guard | None = None,
        transport: Transport | None = None,
        limits: Limits | None = None,
        medium: UdpMulticast | None = None,
        cluster: str = "",
    ) -> None:
        self._cluster = check_cluster(cluster)
        self._limits = limits or Limits()
        self.name = name
        self._facts = facts_of(protocol)
        if self._facts.qualifier and tracker is not None:
            raise LocalProtocolError(f"{protocol} is an incomplete order, which no tracker can ride on")
        if self._facts.serialized and journal is None:
            raise LocalProtocolError(
                f"{protocol} passes a token from sender to sender, which would end with a process that is "
                "killed: give every node a journal"
            )
        self._protocol = protocol
        self._options = dict(options or {})
        self.payloads = Payloads(codec, headers=headers)
        peers = addresses_of(peers, transport)
        self._first_site: Site | None = None
        if topology is not None:
            self._first_site = site = read_site(Path(topology), name, self._facts, members)
            peers, members = site.reachable(peers), site.members
            groups = {**site.groups, **(groups or {})}
        self._initial = InitialMembers(name, peers, members, groups, self._limits)
        self._journal_path = Path(journal) if journal is not None else None
        self._flush = flush
        self._trace_directory = Path(trace) if trace is not None else None
        self._computation = computation
        self._guard = guard
        if transport is None:
            if guard is None:
                raise LocalProtocolError(
                    "say how peers are authenticated: certificates, a shared key, or guard=Plaintext() to "
                    "believe every name, which is for one machine only"
                )
            transport = TcpTransport(listen, guard, self._limits)
            if medium is not None:
                transport = medium.over(transport, guard)
        elif medium is not None:
            raise LocalProtocolError("a UDP medium stands beside TCP links; give it without a transport")
        self.transport: Transport = transport
        self._medium = transport if isinstance(transport, Sharing) else None
        if self._medium is not None:
            self._options = self._facts.sharing(self._options)
        if expiry is not None:
            check_expiry(expiry, self._facts)
        self._seconds_to_expiry = expiry
        self._expiry: Expiry | None = None
        self._tracker = tracker
        if tracker is not None:
            check_tracker(tracker, self._facts, transport)
        self._stamps = stamps
        if stamps:
            check_stamps(tracker, headers=headers)

        self._life = Lifecycle(name)
        self._connections = Connections(name)
        self._quarantine = Quarantine()
        relays_for_others = self._facts.relays is Relays.COORDINATOR
        self._sends_directly = self._facts.relays is Relays.NOBODY and topology is None
        self._flow = Flow(self._limits, relays=relays_for_others)
        self._journal: Journal | None = None
        self._turns: Turns | None = None  # where sends must be serialized
        self._timing: Timing | None = None
        self._recorder: TraceRecorder | None = None
        self._consumers = Consumers(self, self._life)
        self._requests = Requests(self.payloads, self._consumers.own.hand)
        self._room = asyncio.Event()  # for multicasts; while closing: somebody has acknowledged, or is gone
        self._has_ended = asyncio.Event()
        self._paused: set[int] = set()
        self._frames_received = self._frames_duplicate = self._refused = 0

    # Life.

    async def __aenter__(self) -> "Node":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def failure(self) -> BaseException | None:
        """Why the node has stopped by itself; None as long as it has not."""
        return self._life.failure

    async def start(self) -> None:
        """Replay the journal, if there is one, and begin to take part."""
        if self._life.state is not State.NEW:
            raise LocalProtocolError("a node is started once; make another one")
        self._loop = asyncio.get_running_loop()
        self._room.set()
        with contextlib.ExitStack() as if_it_fails:
            if_it_fails.callback(self._end)
            self._life.move(State.REPLAYING)
            await self._load(if_it_fails)
            self._life.move(State.RUNNING)
            for peer in self._members.peers():
                self._add_peer(peer)
            self._consumers.deliver(self._engine.unacknowledged.values())
            await self.transport.start(self)
            if_it_fails.pop_all()
        self._regulate()
        self._measure_room()
        if (seconds := self._seconds_to_expiry) is not None:
            self._expiry = Expiry(
                self._engine, self._loop, seconds, self._commits.stamp, self._commits.schedule
            )
        again = len(self._engine.unacknowledged)
        log.info("started", extra={"node": self.name, "events": self._engine.events, "again": again})

    async def _load(self, if_it_fails: contextlib.ExitStack) -> None:
        options = self._facts.numbered(self._options, self._initial.index)
        members, journaled = self._initial.members, self._journal_path is not None
        site = self._first_site
        self._engine = Engine(
            self.name, members, self._protocol, options, journaled=journaled, tracker=self._tracker, site=site
        )
        incarnation = os.urandom(8)
        if self._journal_path is not None:
            self._journal = Journal(self._journal_path, flush=self._flush)
            if_it_fails.callback(self._journal.close)
            described = json.dumps(options | ({"topology": site.digest} if site else {}), sort_keys=True)
            identity = Identity(self.name, self._protocol, described, members, self._tracker or "")
            incarnation = self._journal.open(identity)
        if self._trace_directory is not None:
            self._record_into(self._trace_directory)
        self._commits = Commits(
            self._engine,
            self._journal,
            self._recorder,
            compaction=self._limits.compaction,
            committed=self._committed,
            failed=self._fail,
        )
        if_it_fails.callback(self._commits.close)
        self._engine.shares = self._medium is not None
        self._engine.links.bound(self._limits.outbox)
        await self._commits.recover()
        if self._engine.serialization is not None:
            self._turns = Turns(self._engine, self._loop, self._commits.stamp, self._after_a_turn)
        self._members = Membership(
            self._initial, self._engine, self._protocol, incarnation, self._terms(options)
        )
        self._joined = self._engine.members.joined
        self._know_routes()

    def _terms(self, options: Mapping[str, Any]) -> Terms:
        return Terms(
            self._cluster,
            digest_of_members(self._initial.members),
            digest_of_options(self._engine.machine, options),
            self._limits.frame,
            LOWEST,
            HIGHEST,
            FEATURES,
        )

    def _record_into(self, directory: Path) -> None:
        from .trace_recorder import TraceRecorder  # which needs pyarrow

        self._recorder = TraceRecorder(
            directory, self.name, lambda index: self._engine.roster.name(index), self._computation
        )
        self._engine.recorder = self._recorder

    async def close(self) -> None:
        """Stop taking part: what was sent is given `limits.linger` seconds to arrive, then all is saved."""
        life = self._life
        if life.state is State.NEW:
            self._end()
        if life.state is State.REPLAYING:
            raise LocalProtocolError(f"{self.name!r} is still starting: cancel that, or close it when it has")
        if life.state in (State.CLOSING, State.SAVING, State.CLOSED):
            await self._has_ended.wait()
            return
        try:
            try:
                if life.is_running:
                    # Links are still read: peers that close now need our acknowledgements.
                    life.move(State.CLOSING)
                    if self._expiry is not None:
                        self._expiry.stop()
                    self._measure_room()  # which passes the token on
                    with contextlib.suppress(TimeoutError, NodeClosed):
                        await asyncio.wait_for(self._drained(), self._limits.linger)
            finally:
                await self.transport.close()
            if life.takes_input:  # nothing has failed meanwhile
                life.move(State.SAVING)
                await self._commits.settled()
                await self._commits.save()
        except (NodeClosed, NodeError) as error:
            self._fail(error)
        finally:
            self._wake_everybody()
            self._commits.close()
            self._end()
        log.info("closed", extra={"node": self.name, "events": self._engine.events})

    def _end(self) -> None:
        if self._life.state is not State.CLOSED:  # two who close a failed node do so at once
            self._life.move(State.CLOSED)
        self._has_ended.set()

    async def _drained(self) -> None:
        """Wait until every peer has acknowledged everything, or is away while the journal keeps it."""
        await self.flush()
        while any(map(self._is_waited_for, self._engine.present_links())) or self._awaits_token():
            self._room.clear()
            await self._room.wait()
            self._life.check_takes_input()

    def _awaits_token(self) -> bool:
        """Whether the token is for us next: if we were not there, nobody could send."""
        there = self._connections.calling
        return bool(there) and self._turns is not None and self._turns.is_asking

    def _is_waited_for(self, link: int) -> bool:
        is_there = self._members.names[link] in self._connections.calling
        return bool(self._engine.outboxes[link]) and (is_there or self._journal is None)

    def _fail(self, error: BaseException) -> None:
        """Stop at once: nothing more is sent, delivered or confirmed."""
        if self._life.fail(error):
            log.error(
                "%s has stopped: %s",
                self.name,
                error,
                extra={"event": "stopped", "node": self.name, "error": str(error)},
            )
            self._wake_everybody()
            self._loop.create_task(self.transport.close())

    def _wake_everybody(self) -> None:
        """Let everybody who waits see that the node has stopped."""
        self._consumers.stop()
        self._requests.stop(self._life.closed_error)
        self._room.set()
        if self._turns is not None:
            self._turns.cancel()
        if self._expiry is not None:
            self._expiry.stop()
        self._commits.stop(self._life.closed_error)

    # The application's side.

    async def multicast(
        self,
        to: str | Iterable[str],
        value: Any,
        *,
        headers: Mapping[str, str] | None = None,
        ordered: bool = True,
        label: str | None = None,
        priority: int | None = None,
        after: CausalHistory | None = None,
        timeout: float | None = None,
    ) -> Sent:
        """Returns the message's name when it is certain to be delivered: journaled, if there is a journal.
        If it is cancelled, `was_sent(error)` tells whether the message goes out all the same.

        value           what the codec takes: bytes, unless the node has another one
        ordered=False   it is delivered as soon as it arrives, once at each destination: it waits for nothing,
                        nothing waits for it, and no order leads through it (docs/runtime.md)
        label, priority, after   what an incomplete order takes (docs/large-systems.md)
        timeout         NodeFull, and nothing is sent, if there is no room for it within so many seconds
        """
        to = _listed(to)
        await self.room(to, timeout=timeout)
        name = self.multicast_nowait(
            to, value, headers=headers, ordered=ordered, label=label, priority=priority, after=after
        )
        await self._until_journaled(name)
        return name

    async def _until_journaled(self, name: Sent) -> None:
        if self._journal is not None:
            with tells_if_cancelled(name):
                await self.flush()

    def multicast_nowait(
        self,
        to: str | Iterable[str],
        value: Any,
        *,
        headers: Mapping[str, str] | None = None,
        ordered: bool = True,
        label: str | None = None,
        priority: int | None = None,
        after: CausalHistory | None = None,
    ) -> Sent:
        """The same without waiting: the message is certain to be delivered after the next commit. Raises
        NodeFull above the limits."""
        check_headers(headers or {})
        body = self.payloads.encode(value)
        return self._multicast_now(to, body, headers, ordered, label=label, priority=priority, after=after)

    def _multicast_now(
        self,
        to: str | Iterable[str],
        body: bytes,
        headers: Mapping[str, str] | None,
        ordered: bool = True,
        **how: Any,
    ) -> Sent:
        self._life.check_running()
        destinations = self._members.destinations(to)
        if (why := self._why_wait(destinations)) is not None:
            raise NodeFull(f"{self.name!r} {why}; wait for room()")
        payload = self._sealed(body, headers)
        self._check_frame(destinations, len(payload))
        if (site := self.site) is not None:
            site.check_traffic(destinations)
        self._commits.stamp()
        try:
            qualified = keywords(self._facts, **how)
            if ordered:
                if self._stamps:
                    stamp = self._engine.relevant("send")
                    payload = self._sealed(body, {**(headers or {}), STAMP: stamp_to_text(stamp)})
                clock = self._engine.multicast(destinations, payload, qualified)
            else:
                clock = self._engine.multicast_unordered(destinations, payload)
        except EngineFault as error:
            self._fail(error)
            raise
        self._commits.schedule()
        self._measure_room()
        sent = Sent(f"{self.name}:{clock}")
        if ordered and self._engine.history is not None:
            sent.history = self._engine.history
        return sent

    def _check_frame(self, destinations: Iterable[int], size: int) -> None:
        """Refuse a payload whose frame somebody on its way would not take, as far as they have told."""
        smallest = self._members.smallest_limit
        if smallest is None or size <= smallest * 15 // 16:  # nearly always, and without a look at everybody
            return
        relayed = bool(self._facts.relays) or self.site is not None
        links = self._engine.present_links() if relayed else destinations
        longest = self._members.longest_frame(links)
        if longest is not None and size > longest * 15 // 16:  # the rest is for control information
            raise LocalProtocolError(
                f"a payload of {size} bytes is too long for a peer that takes frames of {longest}: raise "
                "limits.frame there, or send less at once"
            )

    def _sealed(self, body: bytes, headers: Mapping[str, str] | None) -> bytes:
        payload = self.payloads.seal(body, headers)
        most = min(self._limits.payload, self.transport.max_payload)
        if len(payload) > most:
            raise LocalProtocolError(f"a payload of {len(payload)} bytes exceeds the limit of {most}")
        return payload

    async def broadcast(
        self, value: Any, *, headers: Mapping[str, str] | None = None, timeout: float | None = None
    ) -> Sent:
        """Multicast to all the others who are present; to ourselves too: `multicast(node.members, value)`."""
        return await self.multicast(self.others, value, headers=headers, timeout=timeout)

    async def request(self, to: str, value: Any, *, timeout: float | None = None) -> Message:
        """Ask one process, and wait for what its application gives to `message.reply`; needs headers.

        The reply is yours to acknowledge. It is handed over past messages that wait to be taken, and comes
        like any other message if nobody waits for it any more: after a timeout, or after a restart.
        NodeFull: no room in time, and nothing was sent. TimeoutError: no reply in time; `was_sent` has the
        request's name.
        """
        if not self.payloads.has_headers:
            raise LocalProtocolError("requests need Node(headers=True), on every node")
        body = self.payloads.encode(value)
        deadline = None if timeout is None else self._loop.time() + timeout
        await self.room(to, timeout=timeout)
        name = self._multicast_now(to, body, {REQUEST: "1"})
        with tells_if_cancelled(name):
            try:
                async with asyncio.timeout_at(deadline):
                    return await self._requests.reply(name)
            except TimeoutError:
                error = TimeoutError(
                    f"{to!r} has not replied to {name} within {timeout} s; a late reply comes as a message"
                )
                raise note_sent(error, name) from None

    async def multicast_with(
        self,
        then: Callable[[], None],
        to: str | Iterable[str],
        value: Any,
        headers: Mapping[str, str] | None,
    ) -> Sent:
        body, to = self.payloads.encode(value), _listed(to)
        await self.room(to)
        # Nothing is committed between these two, for nothing is awaited.
        name = self._multicast_now(to, body, headers)
        then()
        await self._until_journaled(name)
        return name

    def relevant(self, label: str = "") -> Stamp:
        """Record a relevant event, which follows everything sent and delivered here so far; returns what the
        tracker tells of it. It is certain after the next commit: `await flush()` before it counts."""
        self._life.check_running()
        if not isinstance(label, str):
            raise LocalProtocolError(f"a label is text, not {type(label).__name__}")
        self._commits.stamp()
        stamp = self._engine.relevant(label)
        self._commits.schedule()
        return stamp

    @property
    def sent(self) -> int:
        """How many multicasts this process has made in its life: after a restart, where to go on."""
        return self._engine.sent

    @property
    def delivered(self) -> int:
        """How many messages were delivered here, acknowledged or not."""
        return self._engine.delivered

    @property
    def acknowledged(self) -> int:
        """The number up to which all deliveries are acknowledged (without a journal: taken). After a restart,
        deliveries with higher numbers come again, but for those of them that were acknowledged."""
        return self._engine.acknowledged

    async def room(self, to: str | Iterable[str] | None = None, *, timeout: float | None = None) -> None:
        """Wait until the journal and the outboxes of these destinations (None: of everybody) are below their
        limits, so that one more may be sent; where sends are serialized, until it is this node's turn.
        NodeFull if that takes longer than `timeout` seconds."""
        self._life.check_running()
        links = None if to is None else self._members.destinations(to)
        with self._turns.waiting() if self._turns is not None else contextlib.nullcontext():
            try:
                async with asyncio.timeout(timeout):
                    while self._why_wait(links) is not None:
                        self._room.clear()
                        await self._room.wait()
                        self._life.check_running()
            except TimeoutError:
                why = self._why_wait(links) or "had no room in time"
                raise NodeFull(f"{self.name!r} {why}; nothing was sent") from None

    def _why_wait(self, links: Sequence[int] | None) -> str | None:
        """Why a multicast to these members must wait now; None: it need not. Where others pass messages on, a
        full outbox concerns every multicast."""
        engine = self._engine
        if engine.sites is not None and engine.sites.change is not None:
            return "waits until the topology has changed"
        if not engine.has_turn:
            return "does not have the token"
        if not self._flow.has_room(engine.staged, engine.queued_bytes):
            return "has too much that is not journaled, or that the protocol keeps back"
        if engine.links.full:
            full = engine.links.full - engine.gone
            if links is not None and self._sends_directly:
                full &= set(links)
            if full:
                names = ", ".join(sorted(self._members.names[link] for link in full))
                return f"has too much that is not acknowledged by {names}"
        return None

    async def flush(self) -> None:
        """Wait until everything so far is journaled, and may be seen by others."""
        self._life.check_takes_input()
        await self._commits.settled()

    # Taking messages: see consumers.py.

    def __aiter__(self) -> "Node":
        return self

    async def __anext__(self) -> Message:
        """The next message. Several tasks may iterate: each message goes to one of them."""
        return await self._consumers.own.take()

    def receive_nowait(self) -> Message | None:
        """The next message; None if there is none, or the node has failed."""
        return self._consumers.own.take_nowait()

    def subscribe(self) -> Subscription:
        """A consumer of its own, that gets every message. A message is acknowledged when all subscriptions
        that got it have acknowledged it. Make all of them before the first one reads: it gets what waits.
        While there are any, iterating over the node itself is refused."""
        return self._consumers.subscribe()

    @property
    def is_journaled(self) -> bool:
        return self._journal is not None

    def name_of(self, process: int) -> str:
        return self._members.names[process]

    def is_open(self, number: int) -> bool:
        return number in self._engine.unacknowledged

    def finish(self, number: int) -> None:
        if self._journal is None:
            self._engine.forget(number)
        else:
            self._commits.stamp()
            if self._engine.acknowledge(number):
                self._commits.schedule()
        if self._paused:
            self._regulate()

    def revive(self, delivery: Delivery) -> None:
        self._engine.remember(delivery)
        self._regulate()

    def relation(self, one: Message, other: Message) -> Causality:
        """Whether the sending of one message happened before that of another, after it, or neither. Of two
        messages of one sender that is always known; of others with Node(stamps=True)."""
        return relation(one, other)

    def pending(self) -> list[Pending]:
        """What is held back here, and what each message waits for."""
        names = self._members.names
        return [
            Pending(
                f"{names[held.message.sender]}:{held.message.clock}",
                tuple(f"{names[sender]}:{clock}" for sender, clock in held.waits_for),
                held.since,
            )
            for held in self._engine.pending()
        ]

    def stats(self) -> dict[str, Any]:
        """Numbers about this node, and about each peer."""
        engine = self._engine
        return {
            "frames_received": self._frames_received,
            "frames_duplicate": self._frames_duplicate,
            "commits": self._commits.count,
            "refused": self._refused,
            "state": self._life.state.value,
            "multicasts": engine.sent,
            "deliveries": engine.delivered,
            "events": engine.events,
            "undelivered": self._consumers.waiting,
            "unacknowledged": len(engine.unacknowledged),
            "held": engine.held_count(),
            "held_bytes": engine.held_bytes,
            "queued": engine.machine.queued,
            "queued_bytes": engine.queued_bytes,
            "staged_bytes": engine.staged,
            "journal_bytes": self._journal.bytes if self._journal is not None else 0,
            "failures": self._connections.troubles,
            "quarantined": len(self._quarantine.frames()),
            "medium": self._medium.medium_counts() if self._medium is not None else {},
            "peers": {self._members.names[link]: self._peer_stats(link) for link in engine.outboxes},
        }

    def quarantined(self) -> list[Quarantined]:
        """Frames that one end of a link will not take, ours and those of peers; what follows them waits."""
        return self._quarantine.frames()

    def timings(self) -> dict[str, Histogram]:
        """How long messages were held, and took to the application, since this was first called (timing.py):
        measuring costs some microseconds for each message, so it begins then."""
        self._life.check_running()
        if self._timing is None:
            self._timing = self._engine.recorder = Timing(self._loop.time, self._engine.recorder)
        return self._timing.histograms()

    def health(self) -> Health:
        """Live: it has not failed and is not closed. Ready: it takes multicasts now, and can reach everybody
        that it has something for. A peer that is away is a problem all the same, and is named."""
        life = self._life
        problems = [] if life.failure is None else [f"stopped: {life.failure}"]
        if not life.is_running:
            return Health(life.state in (State.NEW, State.REPLAYING), False, (*problems, life.state.value))
        why = self._why_wait(None) if self._engine.has_turn else None  # turns come and go
        if why is not None:
            problems.append(f"{why}: multicasts wait")
        names = self._members.names
        linked = [link for link in self._engine.present_links() if self._members.is_linked(link)]
        away = [link for link in linked if names[link] not in self._connections.calling]
        problems += [f"no link to {names[link]}{self._why_away(names[link])}" for link in away]
        behind = [link for link in away if self._engine.outboxes[link]]
        for each in self._quarantine.frames():
            way = "to" if each.outgoing else "from"
            problems.append(f"frame {each.number} {way} {each.peer} is set aside: {each.reason}")
        return Health(True, why is None and not behind, tuple(problems))

    def _why_away(self, peer: str) -> str:
        reasons = list(self._connections.troubles_with(peer))
        return f": {reasons[-1]}" if reasons else ""

    def reload_certificates(self) -> None:
        """Read certificate, key and authority again: connections from now on use them, those there are last
        until a certificate of theirs expires. IdentityError, and nothing changes, if they cannot be used."""
        if not isinstance(self._guard, MutualTls):
            raise LocalProtocolError(f"{self.name!r} has no certificates")
        self._guard.reload()
        log.info("certificates were read again", extra={"node": self.name})

    def on_link(self, listener: Callable[[LinkChange], object]) -> None:
        """Call `listener` whenever a connection with a peer is made or ends."""
        self._connections.listeners.append(listener)

    def _peer_stats(self, link: int) -> dict[str, Any]:
        engine, name = self._engine, self._members.names[link]
        outbox = engine.outboxes[link]
        return {
            "outbox_frames": len(outbox),
            "outbox_bytes": outbox.bytes,
            "sent": outbox.released,
            "acknowledged": outbox.acknowledged,
            "received": engine.inboxes[link].durable,
            "paused": link in self._paused,
            "calling": name in self._connections.calling,
            "called": name in self._connections.called,
            "gone": link in engine.gone,
        }

    # Members.

    @property
    def members(self) -> tuple[str, ...]:
        """Who is present."""
        return tuple(self._engine.roster)

    @property
    def others(self) -> tuple[str, ...]:
        """Who is present and has an application, but for this process."""
        routers = () if self.site is None else self.site.forwarders
        return tuple(name for name in self.members if name != self.name and name not in routers)

    def _check_may_change(self) -> None:
        self._life.check_running()
        if (site := self.site) is not None:
            raise LocalProtocolError(
                f"members follow from {site.source}: write another topology, and change_topology to it"
            )

    async def join(self, name: str, address: str) -> tuple[str, ...]:
        """Admit a process; returns the `members` it must be started with."""
        self._check_may_change()
        self.transport.check_address(name, address)  # before everybody hears of it, for ever
        self._commits.stamp()
        before = self._members.names
        members = self._members.join(name, address)
        self._joined = self._engine.members.joined
        for former in self._members.replaced(before):
            self.transport.remove_peer(former)
        self.transport.add_peer(name, address)
        self._commits.schedule()
        await self.flush()
        return members

    async def leave(self, timeout: float = 30.0) -> None:
        """Leave for good. Returns once every other member has confirmed it, so that all they had sent us is
        here and all we had sent is there; NodeError if that takes longer than `timeout` seconds."""
        self._check_may_change()
        deadline = self._loop.time() + timeout
        while self._engine.machine.queued:
            await self._pause_until(deadline, f"{self.name!r} could not send all its messages")
        with self._turns.waiting() if self._turns is not None else contextlib.nullcontext():
            while not self._engine.has_turn:
                await self._pause_until(deadline, f"{self.name!r} did not get the token")
        self._commits.stamp()
        self._members.leave()
        self._commits.schedule()
        await self.flush()
        while not self._members.everybody_said_farewell:
            await self._pause_until(deadline, f"not everybody has said farewell to {self.name!r}")

    async def _pause_until(self, deadline: float, why: str) -> None:
        if self._loop.time() > deadline:
            raise NodeError(f"{why} in time; it is still a member where that has not been heard")
        await asyncio.sleep(0.01)

    async def expel(self, name: str) -> None:
        """Declare that a process will not come back: nothing more is addressed to it, nothing of it is
        listened to, and no outbox waits for it. What it had sent to some of us and not to others is not
        waited for where it is missing, once everybody has heard. Refused where the protocol could not go
        on without it."""
        self._check_may_change()
        self._commits.stamp()
        self._members.expel(name)
        self._commits.schedule()
        self._measure_room()
        await self.flush()
        self.transport.remove_peer(name)

    @property
    def site(self) -> Site | None:
        """Where this process stands, if a topology says so."""
        return self._engine.sites.site if self._engine.sites is not None else None

    async def change_topology(
        self, file: str | Path, addresses: Mapping[str, str] | None = None, timeout: float = 60.0
    ) -> tuple[str, ...]:
        """Put another topology in the place of the present one, for everybody: processes and links may come
        and go. Multicasts wait meanwhile, until everything sent before has arrived; killed processes must
        come back for that. Returns the `members` that new processes must be started with.

        addresses   of those at both ends of new links, as far as they are not peers of this node
        NodeError   it takes longer than `timeout` seconds, and names whom it waits for; it goes on
        """
        sites = self._changing()
        text = proposal(Path(file), sites.site, self._known_addresses(addresses), sites.past)
        return await self._change_site(sites, text, timeout)

    async def succeed(
        self,
        failed: str,
        heir: str | None,
        how: str = "witness",
        addresses: Mapping[str, str] | None = None,
        timeout: float = 60.0,
    ) -> tuple[str, ...]:
        """Declare that a process of the topology has failed for good, and put another in its place. Be sure
        of it: it is not taken back. Multicasts wait until all that was sent before, and can be had, has
        arrived. Returns the `members` that a new process must be started with.

        heir        who takes its place; None: nobody, which is refused if others are reached through it
        how         "witness": the heir is a witness of the failed router, and forwards what that one left;
                    "collection": what only the failed process had is lost, and `lost` tells how much
        addresses   as for `change_topology`; a witness has all the links that it needs
        NodeError   it takes longer than `timeout` seconds, and names whom it waits for; it goes on
        """
        sites = self._changing()
        if how not in (each.value for each in How):
            raise LocalProtocolError(f"a process is succeeded by witness or by collection, not by {how!r}")
        check_witnesses(self._facts, How(how))
        if How(how) is How.WITNESS and not self.transport.acknowledges_for_peers:
            raise LocalProtocolError(
                f"{type(self.transport).__name__} keeps messages itself, so a witness cannot know what the "
                "failed process sent: start that one again from its journal, or succeed it by collection"
            )
        known = self._known_addresses(addresses)
        text = succession_proposal(sites.site, failed, heir, How(how), known, sites.past)
        return await self._change_site(sites, text, timeout)

    @property
    def lost(self) -> dict[str, int]:
        """How many messages of ours, sent before somebody was last succeeded, have not come to whom."""
        return self._engine.sites.lost() if self._engine.sites is not None else {}

    @property
    def unaccounted(self) -> list[str]:
        """Those to whom we sent before somebody was last succeeded, and who have not told yet what came."""
        return self._engine.sites.unaccounted() if self._engine.sites is not None else []

    def _changing(self) -> SiteChanges:
        self._life.check_running()
        if self._engine.sites is None:
            raise LocalProtocolError(f"{self.name!r} has no topology: start it with one to change it")
        return self._engine.sites

    def _known_addresses(self, given: Mapping[str, str] | None) -> dict[str, str]:
        return {**self._initial.peers, **self._engine.members.addresses, **(given or {})}

    async def _change_site(self, sites: SiteChanges, text: str, timeout: float) -> tuple[str, ...]:
        self._commits.stamp()
        self._engine.propose_site(text)
        self._commits.schedule()
        self._measure_room()
        await self.flush()
        self._after_a_change()
        deadline = self._loop.time() + timeout
        while sites.change is not None:
            await self._pause_until(deadline, f"{', '.join(sites.awaited())} did not finish the change")
        return tuple(self._members.names)

    def _know_routes(self) -> None:
        if (site := self.site) is not None:
            self._flow.onward = onward_by_link(site.place)

    def _after_a_turn(self) -> None:
        self._commits.schedule()
        self._measure_room()

    def _after_a_change(self) -> None:
        if self._engine.members.joined != self._joined:
            self._meet_new_members()
            self._know_routes()
            self._measure_room()

    # The transport's side: see transport.Host.

    def hello(self, peer: str) -> Hello:
        hello = self._members.hello(peer)
        # A broker acknowledges what it keeps: that says nothing of the peer's journal.
        return hello if self.transport.acknowledges_for_peers else hello._replace(confirmed=0)

    def check(self, peer: str, hello: Hello) -> None:
        with self._stops_if_old():
            self._members.check_hello(peer, hello)

    def meet(self, peer: str, hello: Hello) -> None:
        with self._stops_if_old():
            is_new = self._members.check_hello(peer, hello)
        if is_new:
            self._commits.stamp()
            self._engine.meet(self._members.index[peer], hello.incarnation)
            self._commits.schedule()

    def outbox(self, peer: str) -> Outbox:
        return self._engine.outboxes[self._members.index[peer]]

    @contextlib.contextmanager
    def _stops_if_old(self) -> Iterator[None]:
        """Stop if a peer shows that our journal is old: on other links, what we send now under numbers that
        were used before would be taken for what we sent then."""
        try:
            yield
        except OldJournal as error:
            self._fail(error)
            raise

    def confirmed(self, peer: str, number: int) -> None:
        with self._stops_if_old():
            self._members.check_confirmed(peer, number)

    def resumes(self, peer: str, number: int) -> None:
        with self._stops_if_old():
            self._members.check_resuming(peer, number)
        self.freed(peer, number)

    def freed(self, peer: str, number: int) -> None:
        if self.failure is not None:
            return
        with self._stops_if_old():
            self._members.check_acknowledged(peer, number)
        link = self._members.index[peer]
        self._commits.stamp()
        if self._engine.free(link, number):
            self._quarantine.passed(peer, True, number)
            self._commits.schedule()
            for other in self._engine.let_go():
                self.transport.wake(self._members.names[other])
            self._measure_room()
            if self._paused:
                self._regulate()
            self._part_if_done(link)

    def _part_if_done(self, link: int) -> None:
        """Close the link with a process that has left, if both have everything. Not at once: if the link
        breaks now, the other calls again to hear that we have all of its frames."""
        if self._members.is_done_with(link):
            self._loop.call_later(self._limits.linger, self._part, self._members.names[link])

    def _part(self, peer: str) -> None:
        if self._life.takes_input:
            self.transport.remove_peer(peer)

    def expects(self, peer: str) -> int:
        return self._engine.inboxes[self._members.index[peer]].received_through + 1

    def received(self, peer: str) -> int:
        return self._engine.inboxes[self._members.index[peer]].durable

    def arrived(self, peer: str, frames: Sequence[tuple[int, bytes]]) -> None:
        if not self._life.takes_input:
            return
        link = self._members.index[peer]
        engine = self._engine
        inbox, receive = engine.inboxes[link], engine.receive
        self._commits.stamp()
        before, is_refused = inbox.received_through, False
        try:
            for number, frame in frames:
                if number == inbox.received_through + 1 or inbox.is_new(number):
                    receive(link, frame)
        except RemoteProtocolError as error:
            self._refused += 1
            is_refused = True
            if number == inbox.received_through + 1:
                self._quarantine.put(peer, False, number, len(frame), str(error))
            raise
        except EngineFault as error:
            self._fail(error)
        else:
            self._frames_duplicate += len(frames) - (inbox.received_through - before)
        finally:
            if new := inbox.received_through - before:
                self._frames_received += new
                self._commits.schedule()
                self._after_a_change()
                self._regulate()
                if self._quarantine:
                    self._quarantine.passed(peer, False, inbox.received_through)
            elif not is_refused and not engine.is_dirty and not self._commits.is_under_way:
                self.transport.durable(peer, inbox.durable)

    def set_aside(self, peer: str, number: int, reason: str) -> None:
        frames = self.outbox(peer).after(number - 1, 1)
        size = len(frames[0][1]) if frames else 0
        self._quarantine.put(peer, True, number, size, reason)

    def _meet_new_members(self) -> None:
        """Call those who were admitted; the links of those who had their indices are no more."""
        self._joined, before = self._engine.members.joined, self._members.names
        admitted = self._members.newly_admitted()
        failed = self._engine.sites.failed if self._engine.sites is not None else ()
        for name in (*self._members.replaced(before), *(self._members.names[each] for each in failed)):
            self.transport.remove_peer(name)
        for member in admitted:
            self._add_peer(member)

    def _add_peer(self, peer: Peer) -> None:
        try:
            self.transport.add_peer(peer.name, peer.address)
        except NodeError as error:
            if not peer.joined:
                raise
            # An address that another process admitted must not stop us, now or at the next start.
            log.error(
                "%s cannot call %s: %s",
                self.name,
                peer.name,
                error,
                extra={"event": "cannot call", "node": self.name, "peer": peer.name, "error": str(error)},
            )

    def connected(self, peer: str, outgoing: bool) -> None:
        self._connections.opened(peer, outgoing)

    def disconnected(self, peer: str, outgoing: bool, reason: str) -> None:
        self._connections.closed(peer, outgoing, reason, is_member=peer in self._members.index)
        if self._life.state is State.CLOSING:
            self._room.set()

    # After each step.

    def _committed(self, batch: Batch) -> None:
        """A batch is durable: its frames may leave, those it received are acknowledged, it is delivered."""
        transport, names = self.transport, self._members.names
        if self._medium is not None and batch.shared:
            named = [(frame, {names[link]: k for link, k in on.items()}) for frame, on in batch.shared]
            self._medium.share([Shared(*each) for each in named])
        for link in batch.released_through:
            transport.wake(names[link])
        for link, number in batch.received_through.items():
            transport.durable(names[link], number)
            self._part_if_done(link)
        if batch.deliveries:
            if self._timing is not None:
                self._timing.committed(batch.deliveries)
            self._consumers.deliver(self._requests.answered(batch.deliveries))
        self._regulate()
        self._measure_room()

    def _measure_room(self) -> None:
        """Let whoever waits for room look again."""
        if self._turns is not None:
            if self._life.is_running:
                self._turns.notice()
            elif self._life.state is State.CLOSING:
                self._turns.pass_on()
        self._room.set()

    def _regulate(self) -> None:
        """Pause and resume the reading of links."""
        engine = self._engine
        wanted = self._flow.links_to_pause(
            undelivered=len(engine.unacknowledged),
            undelivered_bytes=engine.unacknowledged_bytes,
            staged=engine.staged,
            outbox_bytes=[outbox.bytes for link, outbox in engine.outboxes.items() if link not in engine.gone]
            if self._flow.relays
            else (),
            held_on_link=engine.links.held,
            held_bytes=engine.held_bytes,
        )
        if self.site is not None:
            wanted |= self._flow.routes_to_pause({p: outbox.bytes for p, outbox in engine.outboxes.items()})
        if wanted != self._paused:
            names = self._members.names
            for link in wanted - self._paused:
                self.transport.pause(names[link])
            for link in self._paused - wanted:
                self.transport.resume(names[link])
            self._paused = wanted


def _listed(to: str | Iterable[str]) -> str | tuple[str, ...]:
    """Destinations that can be looked at twice: for whether there is room, and to send."""
    return to if isinstance(to, str) else tuple(to)
