"""The life of a node: its arguments, how its parts are put together, and how it starts and ends.

node.py adds the methods for applications and operators.
"""

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..core.errors import LocalProtocolError
from ..ordering import DEFAULT, Facts, facts_of
from .batch import Batch, Delivery
from .commits import Commits
from .connections import Connections
from .consumers import Consumers, Requests
from .engine import Engine
from .errors import NodeClosed, NodeError
from .hosting import Hosting
from .journal import Identity, Journal
from .lifecycle import Lifecycle, State
from .limits import Limits, Policies, WhenFull
from .lives import TOKEN_BYTES
from .membership import InitialMembers, Membership, addresses_of
from .message import Sent, check_stamps
from .operations import Operations
from .payloads import Payloads
from .running import Expiry, Running, check_expiry
from .sending import Sending, StateGiving, check_state
from .serialized import Turns
from .signed import SCHEME, Signed, Signer, check_node
from .site import Site, read_site
from .tcp import TcpTransport
from .terms import FEATURES, Terms, check_cluster, digest, digest_of_options
from .timing import Timing
from .tracked import check_tracker
from .transport import Guard, Shared, Sharing, Signing, Transport
from .udp_multicast import UdpMulticast

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from .signatures import Signatures
    from .telemetry import Telemetry
    from .trace_recorder import TraceRecorder

log = logging.getLogger("happened.node")


def check_order(facts: Facts, tracker: str | None, journal: object) -> None:
    if facts.qualifier.keyword and tracker is not None:
        raise LocalProtocolError(f"{facts.name} is an incomplete order, which no tracker can ride on")
    if facts.assumes.serialized and journal is None:
        raise LocalProtocolError(
            f"{facts.name} passes a token from sender to sender, which would end with a process that is "
            "killed: give every node a journal"
        )


def telemetry_of(
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


def tcp_of(
    listen: str, guard: Guard | None, limits: Limits, medium: UdpMulticast | None, signer: Signer | None
) -> Transport:
    if guard is None:
        raise LocalProtocolError(
            "say how peers are authenticated: certificates, a shared key, or guard=Plaintext() to "
            "believe every name, which is for one machine only"
        )
    links = TcpTransport(listen, guard, limits)
    return links if medium is None else medium.over(links, guard, signer)


class Living:
    """A node from its start to its end; `Node` documents the arguments."""

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
        check_order(self._facts, tracker, journal)
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
        self.transport = transport or tcp_of(listen, guard, self._limits, medium, signatures)
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
        self.life = Lifecycle(name)
        self._connections = Connections(name)
        self._telemetry = telemetry_of(telemetry, name, cluster, self.payloads)
        self._on_deliveries: list[Callable[[Iterable[Delivery]], None]] = []
        self._on_finish: list[Callable[[int], None]] = []
        self._at_end: list[Callable[[], None]] = []
        processing = None if self._telemetry is None else self._telemetry.processing
        self._consumers = Consumers(self, repeats=journal is not None, processing=processing)
        self._requests = Requests(self.payloads, self._consumers.own.hand)
        self._journal: Journal | None = None
        self._timing: Timing | None = None
        self._recorder: TraceRecorder | None = None
        self._has_ended = asyncio.Event()
        self._process = os.getpid()

    # Start and end.

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def failure(self) -> BaseException | None:
        return self.life.failure

    async def start(self) -> None:
        """Replay the journal, if there is one, and begin to take part."""
        if self.life.state is not State.NEW:
            raise LocalProtocolError("a node is started once; make another one")
        self._loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as if_it_fails:
            if_it_fails.callback(self._end)
            self.life.move(State.REPLAYING)
            await self._load(if_it_fails)
            self.life.move(State.RUNNING)
            if self._journal is not None:
                with self._running.input():
                    self._engine.begin_life(os.urandom(TOKEN_BYTES))
                await self._commits.settled()  # nothing is sent in a life before that life is journaled
            if self._state_from is not None:
                await self._states.await_from(self._state_from)
            for peer in self._running.members.peers():
                self._running.add_peer(peer)
            for note in self._on_deliveries:
                note(self._engine.unacknowledged.values())
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
            self._at_end.append(Expiry(self._engine, seconds, self._running.input).stop)
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
            from .trace_recorder import TraceRecorder  # trace_recorder.py needs pyarrow

            directory = self._trace_directory
            self._recorder = TraceRecorder(directory, self.name, self._engine.members, self._computation)
            self._engine.recorder = self._recorder
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
        self._put_together(incarnation, options)

    def _put_together(self, incarnation: bytes, options: Mapping[str, Any]) -> None:
        """Make the parts that need the engine in the state in which the node last stopped."""
        engine, initial = self._engine, self._initial
        terms = Terms(
            self._cluster,
            digest(initial.members),
            digest_of_options(engine.machine, options),
            self._limits.frame,
            features=FEATURES,
            signatures=SCHEME if self._signatures is not None else "",
        )
        turns = None
        if engine.serialization is not None:
            turns = Turns(engine.serialization, self._loop, self._turn_input)
        self._running = Running(
            name=self.name,
            facts=self._facts,
            limits=self._limits,
            life=self.life,
            engine=engine,
            commits=self._commits,
            members=Membership(initial, engine, self._protocol, incarnation, terms),
            transport=self.transport,
            connections=self._connections,
            policies=self._policies,
            turns=turns,
            fail=self._fail,
            loop=self._loop,
        )
        self.host = Hosting(self._running)
        self._states = StateGiving(self._running, self.payloads, self._take_state)
        self._sending = self._make_sending()
        self._operations = Operations(self._running, initial.peers, self._states)

    def _may_park(self, link: int) -> bool:
        # With an agreed order, a receiver that holds too much acknowledges nothing (running.py): the messages
        # that give what it holds their places would stay parked here for ever.
        return (
            not self._facts.is_agreed and self._policies.of(self._engine.roster.name(link)) is WhenFull.PARK
        )

    def _make_sending(self) -> Sending:
        """With telemetry, a Sending that makes spans; a listener at the engine makes the other spans."""
        how = {"stamps": self._stamps, "confirms": self.is_journaled}
        if self._telemetry is None:
            return Sending(self._running, self.payloads, self._requests, self._states, **how)
        from .telemetry import SpanListener, TracedSending  # they need opentelemetry-api

        engine = self._engine
        spans = SpanListener(self._telemetry, engine.recorder, engine.me, engine.pending, self.name_of)
        engine.recorder = spans
        self._on_deliveries.append(spans.committed)
        self._on_finish.append(self._telemetry.forget)
        return TracedSending(
            self._telemetry, self._running, self.payloads, self._requests, self._states, **how
        )

    @contextlib.contextmanager
    def _turn_input(self) -> Iterator[None]:
        with self._running.input():
            yield
        self._running.measure_room()

    async def close(self) -> None:
        """Stop taking part: sent messages get `limits.linger` seconds to arrive, then all state is saved. In
        a child made by fork it does nothing: the links and the journal are its parent's."""
        life = self.life
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
                    # Links are still read: peers that are closing now need our acknowledgements.
                    life.move(State.CLOSING)
                    self._stop_timers()
                    self._running.measure_room()  # this passes the token on
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
        if self.life.state is not State.CLOSED:  # two tasks that close a failed node get here at once
            self.life.move(State.CLOSED)
        self._has_ended.set()

    async def _drained(self) -> None:
        """Wait until every peer has acknowledged everything, or is away while the journal keeps its frames.
        Wait for the token, too, if we are next: while we are not there, nobody could send."""
        running, engine, calling = self._running, self._engine, self._connections.calling
        await self.flush()
        while any(
            engine.outboxes[link] and (self._journal is None or running.members.names[link] in calling)
            for link in engine.present_links()
        ) or (calling and running.turns is not None and running.turns.is_asking):
            running.room.clear()
            await running.room.wait()
            self.life.check_takes_input()

    def _fail(self, error: BaseException) -> None:
        if self.life.fail(error):
            more = {"event": "stopped", "node": self.name, "error": str(error)}
            log.error("%s has stopped: %s", self.name, error, extra=more)
            self._wake_everybody()
            self._loop.create_task(self.transport.close())

    def _stop_timers(self) -> None:
        for stop in self._at_end:
            stop()

    def _wake_everybody(self) -> None:
        """Wake all waiting tasks, so that they see that the node has stopped."""
        self._consumers.stop()
        self._requests.stop(self.life.closed_error)
        self._running.room.set()
        self._stop_timers()
        if self._running.turns is not None:
            self._running.turns.cancel()
        self._commits.stop(self.life.closed_error)

    async def flush(self) -> None:
        """Wait until everything so far is journaled, so that others may see it."""
        self.life.check_takes_input()
        await self._running.flush()

    # Methods that consumers call: see consumers.Desk.

    @property
    def is_journaled(self) -> bool:
        return self._journal is not None

    def name_of(self, process: int) -> str:
        return self._running.members.names[process]

    def is_open(self, number: int) -> bool:
        return number in self._engine.unacknowledged

    def finish(self, number: int) -> None:
        for note in self._on_finish:
            note(number)
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

    async def multicast_with(
        self, then: Callable[[], None], to: str | Iterable[str], value: Any, headers: Mapping[str, str] | None
    ) -> Sent:
        """Multicast when there is room, and call `then` in the same commit unless that is refused."""
        return await self._sending.multicast(to, value, headers, then=then)

    # After each commit.

    def _committed(self, batch: Batch) -> None:
        """A batch is durable: release its frames, acknowledge those it received, hand over its deliveries."""
        if self._medium is not None and batch.shared:
            names = self._running.members.names
            shared = ({names[link]: number for link, number in on.items()} for _, on in batch.shared)
            frames = (frame for frame, _ in batch.shared)
            self._medium.share(list(map(Shared, frames, shared)))
        self._running.released(batch)
        if batch.deliveries:
            for note in self._on_deliveries:
                note(batch.deliveries)
            deliveries = batch.deliveries
            if self._requests.waiting:
                deliveries = self._requests.answered(deliveries)
            self._consumers.deliver(deliveries)
        transfers = self._engine.transfers
        if transfers.owed or transfers.awaited is not None:
            self._states.notice()
        self._running.regulate()
        self._running.measure_room()
