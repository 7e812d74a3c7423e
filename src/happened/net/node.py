"""A process of a group: its multicasts arrive in order, even if processes are killed or links cut.

    peers = {"alice": "127.0.0.1:7001", "bob": "127.0.0.1:7002"}
    async with Node("alice", peers=peers, listen=peers["alice"], guard=Plaintext()) as node:
        await node.multicast(["bob"], b"hello")
        async for message in node:
            print(message.sender, message.payload)
            await message.ack()

Assumes    what the ordering protocol assumes (docs/ordering.md), and that members are listed alike
           everywhere. The node makes the FIFO reliable links itself.
Promises   every confirmed multicast is delivered at each destination, in order; after a crash it is delivered
           again unless it was acknowledged. With a journal, a node killed at any instant continues as if
           it had only been slow; without one, its state ends with it and its peers refuse it when it
           comes back. Nothing is shown to others, nor to the application, before it is journaled.
Leaves out agreement on members beyond the registrar's (member_changes.py), and protection from peers that lie
           about their own state.
Bounds     those of limits.py: above them `multicast` waits and links are not read.
"""

import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any

from ..core.clocks import Causality
from ..core.errors import LocalProtocolError
from ..ordering.causal.incomplete import CausalHistory
from ..tracking import Stamp
from . import observation
from .connections import LinkChange
from .consumers import Subscription
from .identity import MutualTls
from .living import Living
from .message import Health, Message, Pending, Sent, relation
from .payloads import check_headers
from .qualified import PLAIN, How, keywords
from .refused_frames import Quarantined
from .site import Site
from .timing import Histogram, Timing
from .tracked import Tracking

log = logging.getLogger("happened.node")


class Node(Living):
    """One process of a group.

    cluster     the name of the system, the same everywhere: a node of another system is refused; empty: none
    peers       names and addresses of the others; of those in `members`, only the ones we talk with.
                Names suffice where the transport needs no addresses, as over NATS
    members     everybody, in the order of their indices, the same everywhere; default: all names, sorted
    groups      names for sets of members, usable as destinations
    codec       how values are encoded: None for bytes, JSON, MsgPack(), a dataclass, a pydantic model, or
                an object of your own (payloads.py); the same everywhere
    headers     whether messages have headers, which requests and replies need; the same everywhere
    telemetry   whether there are OpenTelemetry spans of what is sent, held, delivered and processed: True for
                the process's tracer provider, or another provider; needs headers (docs/messaging.md)
    stamps      whether messages carry the tracker's timestamp of their sending, for `relation`
    options     the options of the ordering protocol; processes are given by name
    tracker     a tracking protocol for `relevant` events, as in `p3-reduced` or `p2:4`, the same everywhere
    expiry      seconds within which every message is delivered, even while a process is away: protocols that
                keep histories forget what is older (running.py); None: nothing is forgotten by the clock
    topology    a file (docs/topology.md) that gives members, links, routers and groups; of the peers, only
                those are called that it links this process with
    journal     a file; None: the state is in memory only
    flush       whether commits wait for the disk (survives a power failure) or the system (survives kill -9)
    trace       a directory for the events of this node
    guard       how peers are authenticated: there is no default
    transport   replaces TCP, for which `listen` and `guard` are
    full        what a multicast does while a peer's outbox is full: "wait", "refuse" or "park" for every
                peer, or by name (limits.py); names may be those of peers that join later
    signatures  signs our messages and checks those of others (signatures.py), so that processes that forward
                them cannot alter them; on all nodes or none, and needs a cluster (docs/runtime.md)
    state       returns the application's state, as a value for the codec, for processes that are admitted
                here: it has the effects of all acknowledged messages, and of nothing else (docs/runtime.md)
    state_from  for a process that joins: the name of the process that admits it and gives it its state first
    medium      beside TCP, carries a multicast once for all its destinations (docs/runtime.md)
    """

    # Methods for the application.

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
        If the call is cancelled, `was_sent(error)` tells whether the message goes out anyway.

        value           what the codec takes: bytes, unless the node has another codec
        ordered=False   the message is delivered once at each destination, as soon as it arrives: it waits for
                        nothing, nothing waits for it, and no order passes through it (docs/runtime.md)
        label, priority, after   arguments of incomplete orders (docs/large-systems.md)
        timeout         seconds to wait for room; then NodeFull, and nothing is sent. NodeFull is raised at
                        once if a peer is full for which `full` says "refuse"
        """
        self.life.check_running()
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
        """`multicast` without waiting: the message is certain to be delivered after the next commit. Raises
        NodeFull above the limits."""
        self.life.check_running()
        if headers:
            check_headers(headers)
        return self._sending.now(to, value, headers, ordered, self._how(label, priority, after))

    def _how(self, label: str | None, priority: int | None, after: CausalHistory | None) -> How:
        return keywords(self._facts, label=label, priority=priority, after=after)

    async def broadcast(
        self, value: Any, *, headers: Mapping[str, str] | None = None, timeout: float | None = None
    ) -> Sent:
        """Multicast to all other present members; to include this one: `multicast(node.members, value)`."""
        return await self.multicast(self.others, value, headers=headers, timeout=timeout)

    async def request(self, to: str, value: Any, *, timeout: float | None = None) -> Message:
        """Ask one process, and wait for its application's reply (`message.reply`); needs headers.

        Acknowledge the reply. It is handed over ahead of messages that wait to be taken, and comes like any
        other message if nobody waits for it any more, after a timeout or a restart.
        NodeFull: there was no room in time, and nothing was sent. TimeoutError: no reply in time; `was_sent`
        gives the request's name.
        """
        self.life.check_running()
        return await self._sending.request(to, value, timeout)

    def _tracking(self) -> Tracking:
        if self._engine.tracking is None:
            raise LocalProtocolError(
                f'{self.name!r} has no tracker: give one, as in Node(…, tracker="p3-reduced"), on every node'
            )
        return self._engine.tracking

    def relevant(self, label: str = "") -> Stamp:
        """Record a relevant event, which follows everything sent and delivered here so far; returns the
        tracker's timestamp. It is certain after the next commit: `await flush()` before it counts."""
        self.life.check_running()
        if not isinstance(label, str):
            raise LocalProtocolError(f"a label is text, not {type(label).__name__}")
        with self._running.input():
            return self._tracking().relevant(label)

    @property
    def sent(self) -> int:
        """How many multicasts this process has ever made: after a restart, the place to continue from."""
        return self._engine.sent

    @property
    def delivered(self) -> int:
        """How many messages were delivered here, acknowledged or not."""
        return self._engine.delivered

    @property
    def acknowledged(self) -> int:
        """The number up to which all deliveries are acknowledged (without a journal: taken). After a restart,
        deliveries with higher numbers come again, except those that were acknowledged."""
        return self._engine.acknowledged

    async def room(self, to: str | Iterable[str] | None = None, *, timeout: float | None = None) -> None:
        """Wait until the journal and the outboxes of these destinations (None: of everybody) are below their
        limits, so that one more message may be sent; where sends are serialized, wait for this node's turn.
        NodeFull if that takes longer than `timeout` seconds."""
        self.life.check_running()
        await self._sending.room(to, timeout)

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
        """A separate consumer that gets every message. A message is acknowledged when all subscriptions that
        got it have acknowledged it. Make all subscriptions before the first one reads, since that takes the
        waiting messages. While subscriptions exist, iterating over the node itself is refused."""
        return self._consumers.subscribe()

    def relation(self, one: Message, other: Message) -> Causality:
        """Whether the sending of one message happened before that of another, after it, or neither. For two
        messages of one sender that is always known; for others only with Node(stamps=True)."""
        return relation(one, other)

    def pending(self) -> list[Pending]:
        """The messages held back here, and what each waits for."""
        return observation.pending(self._running)

    def stats(self) -> dict[str, Any]:
        """Statistics of this node, and of each peer."""
        return observation.stats(self._running, self.host) | {
            "undelivered": self._consumers.waiting,
            "journal_bytes": self._journal.bytes if self._journal is not None else 0,
            "medium": self._medium.medium_counts() if self._medium is not None else {},
        }

    def quarantined(self) -> list[Quarantined]:
        """Frames, ours and the peers', that one end of a link refuses; the frames behind them wait."""
        return self._running.quarantine.frames()

    def timings(self) -> dict[str, Histogram]:
        """How long messages were held, and took to the application, since the first call (timing.py).
        Measuring costs some microseconds for each message, so it begins only then."""
        self.life.check_running()
        if self._timing is None:
            self._timing = self._engine.recorder = Timing(self._loop.time, self._engine.recorder)
            self._on_deliveries.append(self._timing.committed)
        return self._timing.histograms()

    def health(self) -> Health:
        """Live: the node has not failed and is not closed. Ready: it takes multicasts now, and can reach
        every peer that it has frames for. A peer that is away is always listed as a problem."""
        life = self.life
        if not life.is_running:
            problems = [] if life.failure is None else [f"stopped: {life.failure}"]
            return observation.health_at_rest(life.state, problems)
        # Not having the turn is no problem: turns come and go.
        why = self._sending.why_wait(None) if self._engine.has_turn else None
        return observation.health(self._running, why, list(self._states.problems()))

    def reload_certificates(self) -> None:
        """Read certificate, key and authority again: connections and signatures from now on use them; present
        connections last until one of their certificates expires. IdentityError if the files cannot be used:
        then the earlier ones stay in use."""
        guard = self._guard if isinstance(self._guard, MutualTls) else None
        holders = [each for each in (guard, self._signatures) if each is not None]
        if not holders:
            raise LocalProtocolError(f"{self.name!r} has no certificates")
        for each in holders:
            each.reload()
        log.info("certificates were read again", extra={"node": self.name})

    def on_link(self, listener: Callable[[LinkChange], object]) -> None:
        """Call `listener` whenever a connection with a peer is made or ends."""
        self._connections.listeners.append(listener)

    # Members.

    @property
    def members(self) -> tuple[str, ...]:
        """The present members."""
        return tuple(self._engine.roster)

    @property
    def others(self) -> tuple[str, ...]:
        """The present members that have an application, except this process."""
        return tuple(name for name in self._running.members.with_applications() if name != self.name)

    async def join(self, name: str, address: str) -> tuple[str, ...]:
        """Admit a process; returns the `members` it must be started with. If this node has a `state`, the
        process gets that: start it with `state_from` naming this node. Called again for the process that
        joined last, it returns the same: a crash may have come between the admission and the answer."""
        self.life.check_running()
        return await self._operations.join(name, address)

    async def leave(self, timeout: float = 30.0) -> None:
        """Leave for good. Returns once every other member has confirmed it, so that all messages sent to us
        are here and all we sent are there; NodeError if that takes longer than `timeout` seconds."""
        self.life.check_running()
        await self._operations.leave(timeout)

    async def expel(self, name: str) -> None:
        """Declare that a process will not come back: nothing more is sent to it or taken from it, and no
        outbox waits for it. Once all have heard of it, messages that it sent only to some are no longer
        waited for by the others. Refused where the protocol could not go on without it."""
        self.life.check_running()
        await self._operations.expel(name)

    @property
    def site(self) -> Site | None:
        """Where this process stands, if there is a topology."""
        return self._running.site

    async def change_topology(
        self, file: str | Path, addresses: Mapping[str, str] | None = None, timeout: float = 60.0
    ) -> tuple[str, ...]:
        """Replace the present topology by another one, for everybody: processes and links may come and go.
        Multicasts wait meanwhile, until everything sent before has arrived; killed processes must come back
        for that. Returns the `members` that new processes must be started with.

        addresses   of the processes at both ends of new links, as far as they are not peers of this node
        NodeError   it takes longer than `timeout` seconds; names the awaited processes; the change goes on
        """
        self.life.check_running()
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
        of the failure: it cannot be taken back. Multicasts wait until all messages sent before that can be
        recovered have arrived. Returns the `members` that a new process must be started with.

        heir        who takes its place; None: nobody, which is refused if others are reached through it
        how         "witness": the heir is a witness of the failed router, and forwards what the router left;
                    "collection": what only the failed process had is lost, and `lost` tells how much
        addresses   as for `change_topology`; a witness has all the links that it needs
        NodeError   it takes longer than `timeout` seconds; names the awaited processes; the change goes on
        """
        self.life.check_running()
        return await self._operations.succeed(failed, heir, how, addresses, timeout)

    @property
    def lost(self) -> dict[str, int]:
        """By destination, how many of our messages from before the last succession did not arrive."""
        return self._engine.sites.lost() if self._engine.sites is not None else {}

    @property
    def unaccounted(self) -> list[str]:
        """Destinations that have not yet reported which messages from before the last succession arrived."""
        return self._engine.sites.unaccounted() if self._engine.sites is not None else []
