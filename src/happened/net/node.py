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
Leaves out agreement on members beyond the registrar's (member_changes.py), and peers that lie about their own
           state.
Bounds     those of limits.py: above them `multicast` waits and links are not read.
"""

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..core.clocks import Causality
from ..core.errors import LocalProtocolError
from ..ordering import DEFAULT, Facts, Relays, facts_of
from ..ordering.causal.incomplete import CausalHistory
from ..tracking import Stamp
from . import observation
from .batch import Batch, Delivery
from .commits import Commits
from .connections import Connections, LinkChange
from .consumers import Consumers, Subscription
from .engine import Engine
from .errors import NodeClosed, NodeError
from .expiry import Expiry, check_expiry
from .flow import Flow
from .giving_state import StateGiving, check_state
from .hosting import Hosting
from .identity import MutualTls
from .journal import Identity, Journal
from .lifecycle import Lifecycle, State
from .limits import Limits
from .lives import TOKEN_BYTES
from .membership import InitialMembers, Membership, addresses_of
from .message import Health, Message, Pending, Sent, relation
from .operations import Operations
from .payloads import Payloads, check_headers
from .qualified import PLAIN, How, keywords
from .refused_frames import Quarantine, Quarantined
from .requests import Requests
from .running import Running
from .send_stamps import check_stamps
from .sending import Sending
from .signed import SCHEME, Signed, Signer, check_node
from .site import Site, read_site
from .tcp import TcpTransport
from .terms import FEATURES, HIGHEST, LOWEST, Terms, check_cluster, digest_of_members, digest_of_options
from .timing import Histogram, Timing
from .tracked import Tracking, check_tracker
from .transport import Guard, Shared, Sharing, Signing, Transport
from .turns import Turns
from .udp_multicast import UdpMulticast
from .when_full import Policies, WhenFull

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from .signatures import Signatures
    from .telemetry import SpanListener, Telemetry
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
    telemetry   whether there are OpenTelemetry spans of what is sent, held, delivered and processed: True for
                the process's tracer provider, or another provider; needs headers (docs/messaging.md)
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
    full        what a multicast does while a peer's outbox is full: "wait", "refuse" or "park" for every
                peer, or by name (when_full.py); names may be those of peers that join later
    signatures  what signs our messages and checks those of others (signatures.py): whoever passes them on
                cannot alter them; on all nodes or none, and needs a cluster (docs/runtime.md)
    state       gives the application's state, as a value for the codec, to processes that are admitted here:
                it has the effects of what is acknowledged, and of nothing else (docs/runtime.md)
    state_from  for a process that joins: the name of the one that admits it, whose state comes first
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
        telemetry: "bool | TracerProvider" = False,
        journal: str | Path | None = None,
        flush: bool = True,
        trace: str | Path | None = None,
        computation: str = "",
        guard: Guard | None = None,
        transport: Transport | None = None,
        limits: Limits | None = None,
        medium: UdpMulticast | None = None,
        cluster: str = "",
        signatures: "Signatures | None" = None,
        full: str | Mapping[str, str] = WhenFull.WAIT,
        state: Callable[[], Any] | None = None,
        state_from: str | None = None,
    ) -> None:
        self._cluster = check_cluster(cluster)
        self._limits = limits or Limits()
        self.name = name
        self._protocol, self._facts = protocol, facts_of(protocol)
        _check_order(self._facts, tracker, journal)
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
        self._policies = Policies(full, journaled=journal is not None)
        self._trace_directory = Path(trace) if trace is not None else None
        self._computation = computation
        self._take_state, self._state_from = state, state_from
        if state is not None or state_from is not None:
            check_state(self._facts, journaled=journal is not None, topology=topology is not None)
        self._guard = guard
        self.transport = transport or _tcp(listen, guard, self._limits, medium, signatures)
        if transport is not None and medium is not None:
            raise LocalProtocolError("a UDP medium stands beside TCP links; give it without a transport")
        self._signatures = signatures
        if signatures is not None:
            check_node(name, signatures, cluster)
            if isinstance(self.transport, Signing):
                self.transport.sign_with(signatures)
        self._medium = self.transport if isinstance(self.transport, Sharing) else None
        if self._medium is not None:
            self._options = self._facts.sharing(self._options)
        if expiry is not None:
            check_expiry(expiry, self._facts)
        self._seconds_to_expiry = expiry
        self._tracker = tracker
        if tracker is not None:
            check_tracker(tracker, self._facts, self.transport)
        self._stamps = stamps
        if stamps:
            check_stamps(tracker, headers=headers)
        self._life = Lifecycle(name)
        self._connections = Connections(name)
        self._telemetry = _telemetry(telemetry, name, cluster, self.payloads)
        self._spans: SpanListener | None = None
        self._consumers = Consumers(self, self._life, repeats=journal is not None, spans=self._telemetry)
        self._requests = Requests(self.payloads, self._consumers.own.hand)
        self._expiry: Expiry | None = None
        self._journal: Journal | None = None
        self._timing: Timing | None = None
        self._recorder: TraceRecorder | None = None
        self._has_ended = asyncio.Event()
        self._process = os.getpid()

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
        with contextlib.ExitStack() as if_it_fails:
            if_it_fails.callback(self._end)
            self._life.move(State.REPLAYING)
            await self._load(if_it_fails)
            self._life.move(State.RUNNING)
            if self._journal is not None:
                with self._running.input():
                    self._engine.begin_life(os.urandom(TOKEN_BYTES))
                await self._commits.settled()  # nothing is sent in a life that could be forgotten
            if self._state_from is not None:
                await self._states.await_from(self._state_from)
            for peer in self._running.members.peers():
                self._running.add_peer(peer)
            if self._spans is not None:
                self._spans.committed(self._engine.unacknowledged.values())
            self._consumers.deliver(self._engine.unacknowledged.values())
            await self.transport.start(self.host)
            if_it_fails.pop_all()
        self._running.regulate()
        self._running.measure_room()
        self._running.unpark()
        self._states.notice()
        if strangers := self._policies.strangers(self._running.members.names):
            log.warning("%s: `full` names %s, who are no members yet", self.name, ", ".join(strangers))
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
        signatures = self._signatures
        self._engine = Engine(
            self.name,
            members,
            self._protocol,
            options,
            journaled=journaled,
            tracker=self._tracker,
            site=site,
            signed=None if signatures is None else Signed(signatures, self._cluster),
            shares=self._medium is not None,
        )
        incarnation = os.urandom(8)
        if self._journal_path is not None:
            self._journal = Journal(self._journal_path, flush=self._flush)
            if_it_fails.callback(self._journal.close)
            more = {"topology": site.digest} if site else {}
            more |= {"signatures": SCHEME} if signatures is not None else {}
            described = json.dumps(options | more, sort_keys=True)
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
        self._engine.links.bound(self._limits.outbox, self._limits.parked, self._may_park)
        await self._commits.recover()
        self._put_together(incarnation, self._terms(options))

    def _put_together(self, incarnation: bytes, terms: Terms) -> None:
        """Make the parts that need the engine as it was when it stopped."""
        engine, facts = self._engine, self._facts
        turns = None
        if engine.serialization is not None:
            turns = Turns(engine, engine.serialization, self._loop, self._commits.stamp, self._after_a_turn)
        room = asyncio.Event()
        room.set()
        self._running = Running(
            name=self.name,
            facts=facts,
            limits=self._limits,
            life=self._life,
            engine=engine,
            commits=self._commits,
            members=Membership(self._initial, engine, self._protocol, incarnation, terms),
            transport=self.transport,
            flow=Flow(self._limits, relays=facts.copies.relays is Relays.COORDINATOR),
            connections=self._connections,
            quarantine=Quarantine(),
            policies=self._policies,
            turns=turns,
            fail=self._fail,
            room=room,
            loop=self._loop,
        )
        self.host = Hosting(self._running)
        self._states = StateGiving(self._running, self.payloads, self._take_state)
        self._sending = self._make_sending()
        self._operations = Operations(self._running, self._initial.peers, self._states)

    def _may_park(self, link: int) -> bool:
        # A receiver that holds too much of what is agreed on acknowledges nothing (withheld.py), so that the
        # places of what it holds would stay parked for ever.
        return (
            not self._facts.is_agreed and self._policies.of(self._engine.roster.name(link)) is WhenFull.PARK
        )

    def _make_sending(self) -> Sending:
        """With telemetry, one that makes spans; what a started engine records makes the others."""
        how = {"stamps": self._stamps, "confirms": self.is_journaled}
        if self._telemetry is None:
            return Sending(self._running, self.payloads, self._requests, self._states, **how)
        from .telemetry import SpanListener, TracedSending  # which need opentelemetry-api

        engine = self._engine
        self._spans = SpanListener(self._telemetry, engine.recorder, engine.me, engine.pending, self.name_of)
        engine.recorder = self._spans
        return TracedSending(
            self._telemetry, self._running, self.payloads, self._requests, self._states, **how
        )

    def _after_a_turn(self) -> None:
        self._commits.schedule()
        self._running.measure_room()

    def _terms(self, options: Mapping[str, Any]) -> Terms:
        return Terms(
            self._cluster,
            digest_of_members(self._initial.members),
            digest_of_options(self._engine.machine, options),
            self._limits.frame,
            LOWEST,
            HIGHEST,
            FEATURES,
            SCHEME if self._signatures is not None else "",
        )

    def _record_into(self, directory: Path) -> None:
        from .trace_recorder import TraceRecorder  # which needs pyarrow

        self._recorder = TraceRecorder(directory, self.name, self._engine.members, self._computation)
        self._engine.recorder = self._recorder

    async def close(self) -> None:
        """Stop taking part: what was sent is given `limits.linger` seconds to arrive, then all is saved. In a
        child made by fork it does nothing: the links and the journal are its parent's."""
        life = self._life
        if os.getpid() != self._process:
            return
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
                    self._running.measure_room()  # which passes the token on
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
        running = self._running
        await self.flush()
        while any(map(self._is_waited_for, self._engine.present_links())) or self._awaits_token():
            running.room.clear()
            await running.room.wait()
            self._life.check_takes_input()

    def _awaits_token(self) -> bool:
        """Whether the token is for us next: if we were not there, nobody could send."""
        turns = self._running.turns
        return bool(self._connections.calling) and turns is not None and turns.is_asking

    def _is_waited_for(self, link: int) -> bool:
        is_there = self._running.members.names[link] in self._connections.calling
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
        self._running.room.set()
        if self._running.turns is not None:
            self._running.turns.cancel()
        if self._expiry is not None:
            self._expiry.stop()
        self._commits.stop(self._life.closed_error)

    # The application's side.

    def multicast(
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
    ) -> Coroutine[Any, Any, Sent]:
        """Returns the message's name when it is certain to be delivered: journaled, if there is a journal.
        If it is cancelled, `was_sent(error)` tells whether the message goes out all the same.

        value           what the codec takes: bytes, unless the node has another one
        ordered=False   it is delivered as soon as it arrives, once at each destination: it waits for nothing,
                        nothing waits for it, and no order leads through it (docs/runtime.md)
        label, priority, after   what an incomplete order takes (docs/large-systems.md)
        timeout         NodeFull, and nothing is sent, if there is no room for it within so many seconds; at
                        once if a peer is full that `full` says to refuse
        """
        is_plain = label is None and priority is None and after is None
        how = PLAIN if is_plain else self._how(label, priority, after)
        return self._sending.multicast(to, value, headers, ordered, how, timeout)

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
        if headers:
            check_headers(headers)
        return self._sending.now(to, value, headers, ordered, self._how(label, priority, after))

    def _how(self, label: str | None, priority: int | None, after: CausalHistory | None) -> How:
        return keywords(self._facts, label=label, priority=priority, after=after)

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
        self._life.check_running()
        return await self._sending.request(to, value, timeout)

    async def multicast_with(
        self,
        then: Callable[[], None],
        to: str | Iterable[str],
        value: Any,
        headers: Mapping[str, str] | None,
    ) -> Sent:
        return await self._sending.multicast(to, value, headers, then=then)

    def _tracking(self) -> Tracking:
        if self._engine.tracking is None:
            raise LocalProtocolError(
                f'{self.name!r} has no tracker: give one, as in Node(…, tracker="p3-reduced"), on every node'
            )
        return self._engine.tracking

    def relevant(self, label: str = "") -> Stamp:
        """Record a relevant event, which follows everything sent and delivered here so far; returns what the
        tracker tells of it. It is certain after the next commit: `await flush()` before it counts."""
        self._life.check_running()
        if not isinstance(label, str):
            raise LocalProtocolError(f"a label is text, not {type(label).__name__}")
        with self._running.input():
            return self._tracking().relevant(label)

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
        await self._sending.room(to, timeout)

    async def flush(self) -> None:
        """Wait until everything so far is journaled, and may be seen by others."""
        self._life.check_takes_input()
        await self._running.flush()

    # Taking messages: see consumers.py.

    def __aiter__(self) -> "Node":
        return self

    def __anext__(self) -> Coroutine[Any, Any, Message]:
        """The next message. Several tasks may iterate: each message goes to one of them."""
        return self._consumers.own.take()

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
        return self._running.members.names[process]

    def is_open(self, number: int) -> bool:
        return number in self._engine.unacknowledged

    def finish(self, number: int) -> None:
        if self._telemetry is not None:
            self._telemetry.forget(number)
        if self._journal is None:
            self._engine.forget(number)
        else:
            self._commits.stamp()
            if self._engine.acknowledge(number):
                self._commits.schedule()
        if self._running.paused:
            self._running.regulate()

    def revive(self, delivery: Delivery) -> None:
        self._engine.remember(delivery)
        self._running.regulate()

    def relation(self, one: Message, other: Message) -> Causality:
        """Whether the sending of one message happened before that of another, after it, or neither. Of two
        messages of one sender that is always known; of others with Node(stamps=True)."""
        return relation(one, other)

    def pending(self) -> list[Pending]:
        """What is held back here, and what each message waits for."""
        return observation.pending(self._running)

    def stats(self) -> dict[str, Any]:
        """Numbers about this node, and about each peer."""
        return observation.stats(self._running, self.host) | {
            "undelivered": self._consumers.waiting,
            "journal_bytes": self._journal.bytes if self._journal is not None else 0,
            "medium": self._medium.medium_counts() if self._medium is not None else {},
        }

    def quarantined(self) -> list[Quarantined]:
        """Frames that one end of a link will not take, ours and those of peers; what follows them waits."""
        return self._running.quarantine.frames()

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
        if not life.is_running:
            problems = [] if life.failure is None else [f"stopped: {life.failure}"]
            return observation.health_at_rest(life.state, problems)
        # Turns come and go.
        why = self._sending.why_wait(None) if self._engine.has_turn else None
        return observation.health(self._running, why, list(self._states.problems()))

    def reload_certificates(self) -> None:
        """Read certificate, key and authority again: connections and signatures from now on use them,
        connections there are last until a certificate of theirs expires. IdentityError if they cannot be
        used: what uses them goes on with those it had."""
        guard, signatures = self._guard, self._signatures
        if not isinstance(guard, MutualTls) and signatures is None:
            raise LocalProtocolError(f"{self.name!r} has no certificates")
        if isinstance(guard, MutualTls):
            guard.reload()
        if signatures is not None:
            signatures.reload()
        log.info("certificates were read again", extra={"node": self.name})

    def on_link(self, listener: Callable[[LinkChange], object]) -> None:
        """Call `listener` whenever a connection with a peer is made or ends."""
        self._connections.listeners.append(listener)

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

    async def join(self, name: str, address: str) -> tuple[str, ...]:
        """Admit a process; returns the `members` it must be started with. If this node has a `state`, the
        process gets that: start it with `state_from` this one. Asked again for the process that joined last,
        it returns the same: a crash may have come between the admission and this answer."""
        self._life.check_running()
        return await self._operations.join(name, address)

    async def leave(self, timeout: float = 30.0) -> None:
        """Leave for good. Returns once every other member has confirmed it, so that all they had sent us is
        here and all we had sent is there; NodeError if that takes longer than `timeout` seconds."""
        self._life.check_running()
        await self._operations.leave(timeout)

    async def expel(self, name: str) -> None:
        """Declare that a process will not come back: nothing more is addressed to it, nothing of it is
        listened to, and no outbox waits for it. What it had sent to some of us and not to others is not
        waited for where it is missing, once everybody has heard. Refused where the protocol could not go
        on without it."""
        self._life.check_running()
        await self._operations.expel(name)

    @property
    def site(self) -> Site | None:
        """Where this process stands, if a topology says so."""
        return self._running.site

    async def change_topology(
        self, file: str | Path, addresses: Mapping[str, str] | None = None, timeout: float = 60.0
    ) -> tuple[str, ...]:
        """Put another topology in the place of the present one, for everybody: processes and links may come
        and go. Multicasts wait meanwhile, until everything sent before has arrived; killed processes must
        come back for that. Returns the `members` that new processes must be started with.

        addresses   of those at both ends of new links, as far as they are not peers of this node
        NodeError   it takes longer than `timeout` seconds, and names whom it waits for; it goes on
        """
        self._life.check_running()
        return await self._operations.change_topology(Path(file), addresses, timeout)

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
        self._life.check_running()
        return await self._operations.succeed(failed, heir, how, addresses, timeout)

    @property
    def lost(self) -> dict[str, int]:
        """How many messages of ours, sent before somebody was last succeeded, have not come to whom."""
        return self._engine.sites.lost() if self._engine.sites is not None else {}

    @property
    def unaccounted(self) -> list[str]:
        """Those to whom we sent before somebody was last succeeded, and who have not told yet what came."""
        return self._engine.sites.unaccounted() if self._engine.sites is not None else []

    # After each commit.

    def _committed(self, batch: Batch) -> None:
        """A batch is durable: its frames may leave, those it received are acknowledged, it is delivered."""
        if self._medium is not None and batch.shared:
            names = self._running.members.names
            named = [(frame, {names[link]: k for link, k in on.items()}) for frame, on in batch.shared]
            self._medium.share([Shared(*each) for each in named])
        self._running.released(batch)
        if batch.deliveries:
            if self._timing is not None:
                self._timing.committed(batch.deliveries)
            if self._spans is not None:
                self._spans.committed(batch.deliveries)
            deliveries = batch.deliveries
            if self._requests.waiting:
                deliveries = self._requests.answered(deliveries)
            self._consumers.deliver(deliveries)
        transfers = self._engine.transfers
        if transfers.owed or transfers.awaited is not None:
            self._states.notice()
        self._running.regulate()
        self._running.measure_room()


def _check_order(facts: Facts, tracker: str | None, journal: object) -> None:
    if facts.qualifier.keyword and tracker is not None:
        raise LocalProtocolError(f"{facts.name} is an incomplete order, which no tracker can ride on")
    if facts.assumes.serialized and journal is None:
        raise LocalProtocolError(
            f"{facts.name} passes a token from sender to sender, which would end with a process that is "
            "killed: give every node a journal"
        )


def _telemetry(
    asked: "bool | TracerProvider", name: str, cluster: str, payloads: Payloads
) -> "Telemetry | None":
    if asked is False:
        return None
    if not payloads.has_headers:
        raise LocalProtocolError("spans travel in headers: telemetry needs Node(headers=True), on every node")
    try:
        from .telemetry import Telemetry
    except ImportError as error:
        raise LocalProtocolError(
            "telemetry needs opentelemetry-api: pip install 'happened[telemetry]'"
        ) from error
    return Telemetry(None if asked is True else asked, name, cluster, payloads)


def _tcp(
    listen: str, guard: Guard | None, limits: Limits, medium: UdpMulticast | None, signer: Signer | None
) -> Transport:
    if guard is None:
        raise LocalProtocolError(
            "say how peers are authenticated: certificates, a shared key, or guard=Plaintext() to "
            "believe every name, which is for one machine only"
        )
    links = TcpTransport(listen, guard, limits)
    return links if medium is None else medium.over(links, guard, signer)
