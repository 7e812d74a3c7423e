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
                histories forget what is older (running.py); None: nothing is forgotten by the clock
    topology    a file (docs/topology.md) from which members, links, routers and groups follow; of the peers
                only those are called that it links the process with
    journal     a file; None: memory only
    flush       whether every commit waits for the disk (a power failure), or only for the system (kill -9)
    trace       a directory for the events of this node
    guard       how peers are authenticated: there is no default
    transport   instead of TCP, which `listen` and `guard` are for
    full        what a multicast does while a peer's outbox is full: "wait", "refuse" or "park" for every
                peer, or by name (limits.py); names may be those of peers that join later
    signatures  what signs our messages and checks those of others (signatures.py): whoever passes them on
                cannot alter them; on all nodes or none, and needs a cluster (docs/runtime.md)
    state       gives the application's state, as a value for the codec, to processes that are admitted here:
                it has the effects of what is acknowledged, and of nothing else (docs/runtime.md)
    state_from  for a process that joins: the name of the one that admits it, whose state comes first
    medium      beside TCP, carries a multicast once for all its destinations (docs/runtime.md)
    """

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
        """The same without waiting: the message is certain to be delivered after the next commit. Raises
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
        """Multicast to all the others who are present; to ourselves too: `multicast(node.members, value)`."""
        return await self.multicast(self.others, value, headers=headers, timeout=timeout)

    async def request(self, to: str, value: Any, *, timeout: float | None = None) -> Message:
        """Ask one process, and wait for what its application gives to `message.reply`; needs headers.

        The reply is yours to acknowledge. It is handed over past messages that wait to be taken, and comes
        like any other message if nobody waits for it any more: after a timeout, or after a restart.
        NodeFull: no room in time, and nothing was sent. TimeoutError: no reply in time; `was_sent` has the
        request's name.
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
        """Record a relevant event, which follows everything sent and delivered here so far; returns what the
        tracker tells of it. It is certain after the next commit: `await flush()` before it counts."""
        self.life.check_running()
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
        """A consumer of its own, that gets every message. A message is acknowledged when all subscriptions
        that got it have acknowledged it. Make all of them before the first one reads: it gets what waits.
        While there are any, iterating over the node itself is refused."""
        return self._consumers.subscribe()

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
        self.life.check_running()
        if self._timing is None:
            self._timing = self._engine.recorder = Timing(self._loop.time, self._engine.recorder)
            self._on_deliveries.append(self._timing.committed)
        return self._timing.histograms()

    def health(self) -> Health:
        """Live: it has not failed and is not closed. Ready: it takes multicasts now, and can reach everybody
        that it has something for. A peer that is away is a problem all the same, and is named."""
        life = self.life
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
        """Who is present."""
        return tuple(self._engine.roster)

    @property
    def others(self) -> tuple[str, ...]:
        """Who is present and has an application, but for this process."""
        return tuple(name for name in self._running.members.with_applications() if name != self.name)

    async def join(self, name: str, address: str) -> tuple[str, ...]:
        """Admit a process; returns the `members` it must be started with. If this node has a `state`, the
        process gets that: start it with `state_from` this one. Asked again for the process that joined last,
        it returns the same: a crash may have come between the admission and this answer."""
        self.life.check_running()
        return await self._operations.join(name, address)

    async def leave(self, timeout: float = 30.0) -> None:
        """Leave for good. Returns once every other member has confirmed it, so that all they had sent us is
        here and all we had sent is there; NodeError if that takes longer than `timeout` seconds."""
        self.life.check_running()
        await self._operations.leave(timeout)

    async def expel(self, name: str) -> None:
        """Declare that a process will not come back: nothing more is addressed to it, nothing of it is
        listened to, and no outbox waits for it. What it had sent to some of us and not to others is not
        waited for where it is missing, once everybody has heard. Refused where the protocol could not go
        on without it."""
        self.life.check_running()
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
        of it: it is not taken back. Multicasts wait until all that was sent before, and can be had, has
        arrived. Returns the `members` that a new process must be started with.

        heir        who takes its place; None: nobody, which is refused if others are reached through it
        how         "witness": the heir is a witness of the failed router, and forwards what that one left;
                    "collection": what only the failed process had is lost, and `lost` tells how much
        addresses   as for `change_topology`; a witness has all the links that it needs
        NodeError   it takes longer than `timeout` seconds, and names whom it waits for; it goes on
        """
        self.life.check_running()
        return await self._operations.succeed(failed, heir, how, addresses, timeout)

    @property
    def lost(self) -> dict[str, int]:
        """How many messages of ours, sent before somebody was last succeeded, have not come to whom."""
        return self._engine.sites.lost() if self._engine.sites is not None else {}

    @property
    def unaccounted(self) -> list[str]:
        """Those to whom we sent before somebody was last succeeded, and who have not told yet what came."""
        return self._engine.sites.unaccounted() if self._engine.sites is not None else []
