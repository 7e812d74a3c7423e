"""The application's multicasts: whether there is room, what is refused, and what goes to the engine; and the
application's state, which it gives to newcomers.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from ..core.destinations import pack, unpack
from ..core.errors import LocalProtocolError
from ..core.places import outgoing
from ..ordering import Facts, Relays
from .consumers import Requests
from .errors import EngineFault, NodeError, NodeFull
from .limits import Limits, WhenFull
from .message import REQUEST, STAMP, Message, Sent, note_sent, stamp_to_text, tells_if_cancelled
from .payloads import Payloads, check_headers
from .qualified import PLAIN, How
from .running import Running
from .signed import HEAD

log = logging.getLogger("happened.node")

PART_BYTES = 128 << 10
"""How many bytes of the state one message carries."""


def check_state(facts: Facts, *, journaled: bool, topology: bool) -> None:
    """Raise LocalProtocolError where a node can neither give a state nor begin with one."""
    why = None
    if not journaled:
        why = "a journal, in which it is certain what the state contains"
    elif topology or not facts.membership.joins:
        why = "members that join, as they cannot here"
    elif facts.assumes.serialized or facts.qualifier.keyword or "unicast" not in facts.assumes.casts:
        why = f"a protocol that can order a message to one process at any time, and not {facts.name}"
    if why is not None:
        raise LocalProtocolError(f"a newcomer that begins with a state needs {why}")


class StateGiving:
    """The application's side of a state transfer (state_transfer.py). `take` returns its state; with None the
    application gives none.

    Promises   the application is asked for its state between two steps of the event loop, when it has
               acknowledged every message that was sent without the newcomer. The state is journaled together
               with the acknowledgements so far, or not at all: a node that is killed before that asks again.
    """

    def __init__(self, running: Running, payloads: Payloads, take: Callable[[], Any] | None) -> None:
        self._running, self._engine, self._payloads = running, running.engine, payloads
        self._take = take
        self._through: dict[int, int] = {}  # per newcomer, the last delivery that its state must contain
        self._troubles: dict[int, str] = {}

    @property
    def gives(self) -> bool:
        return self._take is not None

    async def await_from(self, source: str) -> None:
        """Note in a new journal that this process begins with a state; an older journal has that note."""
        engine, running = self._engine, self._running
        if engine.transfers.awaited is not None or engine.transfers.has_begun:
            return
        if engine.events or any(inbox.received_through for inbox in engine.inboxes.values()):
            raise LocalProtocolError(f"{running.name!r} has begun without a state: join under a new name")
        with running.input():
            engine.transfers.wait_for(engine.roster.index(source))
        await running.commits.settled()

    def notice(self) -> None:
        engine = self._engine
        awaited = engine.transfers.awaited
        if awaited is not None and awaited.source in engine.gone:
            why = "has gone, and has not given the state: join under a new name elsewhere"
            self._running.fail(NodeError(f"{engine.roster.name(awaited.source)!r} {why}"))
        if not engine.transfers.owed or not self._running.life.is_running or self._take is None:
            return
        for newcomer in list(engine.transfers.owed):
            if newcomer not in self._through and not engine.transfers.waits_for(newcomer):
                self._through[newcomer] = engine.delivered
            if engine.acknowledged >= self._through.get(newcomer, engine.delivered + 1):
                self._give(newcomer, self._take)

    def _give(self, newcomer: int, take: Callable[[], Any]) -> None:
        running = self._running
        if newcomer in self._troubles:
            return
        most = min(PART_BYTES, running.limits.payload, running.transport.max_payload)
        if self._engine.signed is not None:
            most = max(1, most - HEAD)
        try:
            state = self._payloads.pack(take())
            if len(state) > running.limits.state:
                raise LocalProtocolError(f"it has {len(state)} bytes, more than limits.state")
            with running.input():
                self._engine.transfers.send_state(newcomer, state, most)
        except EngineFault as error:
            running.fail(error)
        except Exception as error:  # the error is the application's, and must not end the node
            self._troubles[newcomer] = f"{type(error).__name__}: {error}"
            log.exception("%s has no state to give", running.name, extra={"node": running.name})
        self._through.pop(newcomer)

    def why_wait(self, links: Sequence[int] | None) -> str | None:
        """Why a multicast to these members must wait: a newcomer sends nothing before it has its state, and
        before that others do not send it too much."""
        engine = self._engine
        if (awaited := engine.transfers.awaited) is not None:
            return f"waits for the state that {engine.roster.name(awaited.source)!r} is to give"
        for newcomer in engine.transfers.owed:
            is_concerned = links is None or newcomer in links
            if is_concerned and engine.outboxes[newcomer].last > self._running.limits.held:
                return f"has sent much to {engine.roster.name(newcomer)!r}, whose state is not taken yet"
        return None

    def problems(self) -> Iterator[str]:
        """The state transfers that wait, and why, for `health`."""
        engine, name = self._engine, self._engine.roster.name
        if (awaited := engine.transfers.awaited) is not None:
            yield f"waits for the state that {name(awaited.source)} is to give"
        for newcomer in engine.transfers.owed:
            if newcomer in self._troubles:
                why = f"cannot be taken: {self._troubles[newcomer]}"
            elif self._take is None:
                why = "is not given by this application: start it with Node(state=…)"
            elif waits_for := engine.transfers.waits_for(newcomer):
                why = f"waits for messages of {', '.join(map(name, waits_for))}"
            else:
                why = "waits until the application has acknowledged what was delivered"
            yield f"the state for {name(newcomer)} {why}"


def lacks_room(limits: Limits, staged: int, kept: int) -> str | None:
    """The limit that is reached, if any: on bytes not journaled yet, or on bytes the protocol keeps back."""
    if staged > limits.staged:
        return f"has reached limits.staged ({limits.staged:,} bytes that are not journaled yet)"
    if kept > limits.outbox:
        why = "bytes that the protocol keeps back, or until all have it"
        return f"has reached limits.outbox ({limits.outbox:,} {why})"
    return None


class Sending:
    """The application's multicasts. `stamps`: messages carry the tracker's timestamp of their sending;
    `confirms`: a multicast waits for the journal."""

    def __init__(
        self,
        running: Running,
        payloads: Payloads,
        requests: Requests,
        states: StateGiving,
        *,
        stamps: bool,
        confirms: bool,
    ) -> None:
        self._running, self._engine, self._states = running, running.engine, states
        self._payloads, self._requests = payloads, requests
        self._stamps, self._confirms = stamps, confirms
        self._beside = HEAD if running.engine.signed is not None else 0  # a signature's bytes per payload
        facts = running.facts
        self._is_routed = facts.copies.relays is Relays.ROUTERS
        # Otherwise others forward messages, or hold messages that follow one which somebody has not got yet.
        self._is_alone = facts.copies.relays is Relays.NOBODY and facts.waits.only_for_past

    async def room(
        self, to: str | Iterable[str] | None, timeout: float | None, *, refuses: bool = False
    ) -> None:
        """Wait for room. `refuses`: do not wait for a peer whose policy is to refuse."""
        running = self._running
        running.life.check_running()
        links = None if to is None else running.members.destinations(to)
        with running.turns.waiting() if running.turns is not None else contextlib.nullcontext():
            try:
                async with asyncio.timeout(timeout):
                    while self.why_wait(links) is not None:
                        if refuses:
                            self._refuse(links)
                        running.room.clear()
                        await running.room.wait()
                        running.life.check_running()
            except TimeoutError:
                why = self.why_wait(links) or "had no room in time"
                raise NodeFull(f"{running.name!r} {why}; nothing was sent") from None

    def why_wait(self, links: Sequence[int] | None) -> str | None:
        """Why a multicast to these members must wait now; None: it need not. A full outbox concerns every
        multicast if messages wait for a place in a total order, or if everybody forwards messages; with
        routes, only the multicasts that go that way."""
        engine, limits = self._engine, self._running.limits
        if self._running.is_leaving:
            return "is leaving"
        if engine.sites is not None and engine.sites.change is not None:
            return "waits until the topology has changed"
        if engine.serialization is not None and not engine.serialization.has_turn:
            return "does not have the token"
        transfers = engine.transfers
        if transfers.awaited is not None or transfers.owed:
            why = self._states.why_wait(links if self._is_alone else None)
            if why is not None:
                return why
        staged = engine.staged_entries + engine.links.parking_bytes
        if (why := lacks_room(limits, staged, engine.queued_bytes + engine.machine.kept_bytes)) is not None:
            return why
        if engine.links.full and (names := self._full(links)):
            return f"has too much that is not acknowledged by {', '.join(names)}"
        return None

    def _full(self, links: Sequence[int] | None) -> list[str]:
        """Of the members that a multicast to these concerns, those whose outboxes are full."""
        full = self._engine.links.full - self._engine.gone
        if links is not None and self._is_alone:
            full &= set(links)
        elif links is not None and self._is_routed:
            site = self._running.site
            full &= set(links if site is None else unpack(outgoing(site.place, site.me, pack(links))))
        return sorted(self._running.members.names[link] for link in full)

    def _refuse(self, links: Sequence[int] | None) -> None:
        policies = self._running.policies
        names = [name for name in self._full(links) if policies.of(name) is WhenFull.REFUSE]
        if names:
            raise NodeFull(
                f"{self._running.name!r} has too much that is not acknowledged by {', '.join(names)}, and "
                "does not wait for that; nothing was sent"
            )

    async def multicast(
        self,
        to: str | Iterable[str],
        value: Any,
        headers: Mapping[str, str] | None = None,
        ordered: bool = True,
        how: How = PLAIN,
        timeout: float | None = None,
        then: Callable[[], None] | None = None,
    ) -> Sent:
        """Multicast when there is room, and wait for the journal; `then` is called in the same commit."""
        running = self._running
        if not running.life.is_running:
            running.life.check_running()
        if headers and then is None:
            check_headers(headers)
        if type(to) is not str and type(to) is not tuple:
            to = tuple(to)
        links = running.members.destinations(to)
        if self.why_wait(links) is not None:
            await self.room(to, timeout, refuses=True)
            links = running.members.destinations(to)
        name = self.send(to, links, self._payloads.encode(value), headers, ordered, how)
        if then is not None:
            then()  # no commit comes between these two, as nothing is awaited
        if self._confirms:
            try:
                await running.commits.settled()
            except asyncio.CancelledError as error:
                note_sent(error, name)
                raise
        return name

    def now(
        self,
        to: str | Iterable[str],
        value: Any,
        headers: Mapping[str, str] | None,
        ordered: bool = True,
        how: How = PLAIN,
    ) -> Sent:
        """Multicast without waiting: the message is certain to be delivered after the next commit."""
        running = self._running
        running.life.check_running()
        body = self._payloads.encode(value)
        to = to if isinstance(to, str) else tuple(to)
        links = running.members.destinations(to)
        if (why := self.why_wait(links)) is not None:
            raise NodeFull(f"{running.name!r} {why}; await node.room()")
        return self.send(to, links, body, headers, ordered, how)

    def send(
        self,
        to: str | Sequence[str],
        links: Sequence[int],
        body: bytes,
        headers: Mapping[str, str] | None,
        ordered: bool,
        how: How,
    ) -> Sent:
        """Give the engine a multicast for which there is room: `links` are the indices that `to` names."""
        running = self._running
        payload = body
        if headers or self._payloads.has_headers:
            payload = self._payloads.seal(body, headers)
        if len(payload) > running.limits.payload or len(payload) > running.transport.max_payload:
            self._refuse_size(len(payload))
        smallest = running.members.smallest_limit
        if smallest is not None and len(payload) + self._beside > smallest * 15 // 16:
            self._check_frame(links, len(payload) + self._beside)
        if running.engine.sites is not None:
            running.engine.sites.site.check_traffic(links)
        try:
            running.commits.stamp()
            if ordered and not self._stamps and not how:
                clock = self._engine.multicast(links, payload)
            else:
                clock = self._give(links, body, headers, payload, ordered, how)
            running.commits.schedule()
        except EngineFault as error:
            running.fail(error)
            raise
        if running.turns is not None:
            running.measure_room()
        sent = Sent(f"{running.name}:{clock}")
        if ordered and self._engine.qualified is not None and self._engine.qualified.history is not None:
            sent.history = self._engine.qualified.history
        return sent

    def _give(
        self,
        destinations: Sequence[int],
        body: bytes,
        headers: Mapping[str, str] | None,
        payload: bytes,
        ordered: bool,
        how: How,
    ) -> int:
        if not ordered:
            return self._engine.unordered.multicast(destinations, payload)
        if how:
            assert self._engine.qualified is not None
            return self._engine.qualified.multicast(destinations, payload, how)
        assert self._engine.tracking is not None
        stamp = self._engine.tracking.relevant("send")
        stamped = self._payloads.seal(body, {**(headers or {}), STAMP: stamp_to_text(stamp)})
        if len(stamped) > self._running.limits.payload or len(stamped) > self._running.transport.max_payload:
            self._refuse_size(len(stamped))
        return self._engine.multicast(destinations, stamped)

    def _check_frame(self, destinations: Iterable[int], size: int) -> None:
        """Refuse a payload whose frame is too long for a process on its way, as far as these have told."""
        members = self._running.members
        relayed = bool(self._running.facts.copies.relays) or self._running.site is not None
        links = self._engine.present_links() if relayed else destinations
        longest = members.longest_frame(links)
        if longest is not None and size > longest * 15 // 16:  # the rest is for control information
            raise LocalProtocolError(
                f"a payload of {size} bytes is too long for a peer that takes frames of {longest}: raise "
                "limits.frame there, or send less at once"
            )

    def _refuse_size(self, size: int) -> NoReturn:
        most = min(self._running.limits.payload, self._running.transport.max_payload)
        raise LocalProtocolError(f"a payload of {size} bytes exceeds the limit of {most}")

    async def request(self, to: str, value: Any, timeout: float | None) -> Message:
        if not self._payloads.has_headers:
            raise LocalProtocolError("requests need Node(headers=True), on every node")
        deadline = None if timeout is None else self._running.loop.time() + timeout
        await self.room(to, timeout, refuses=True)
        name = self.now(to, value, {REQUEST: "1"})
        with tells_if_cancelled(name):
            try:
                async with asyncio.timeout_at(deadline):
                    return await self._requests.reply(name)
            except TimeoutError:
                error = TimeoutError(
                    f"{to!r} has not replied to {name} within {timeout} s; a late reply comes as a message"
                )
                raise note_sent(error, name) from None
