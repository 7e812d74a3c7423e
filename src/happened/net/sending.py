"""The application's multicasts: whether there is room, what is refused, and what goes to the engine."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from ..core.destinations import pack, unpack
from ..core.errors import LocalProtocolError
from ..core.places import outgoing
from ..ordering import Relays
from .consumers import Requests
from .errors import EngineFault, NodeFull
from .giving_state import StateGiving
from .limits import Limits, WhenFull
from .message import REQUEST, STAMP, Message, Sent, note_sent, stamp_to_text, tells_if_cancelled
from .payloads import Payloads, check_headers
from .qualified import PLAIN, How
from .running import Running
from .signed import HEAD


def lacks_room(limits: Limits, staged: int, kept: int) -> str | None:
    """Which limit is reached, if one is: of bytes that are not journaled yet, or that the protocol keeps."""
    if staged > limits.staged:
        return f"has reached limits.staged ({limits.staged:,} bytes that are not journaled yet)"
    if kept > limits.outbox:
        why = "bytes that the protocol keeps back, or until all have it"
        return f"has reached limits.outbox ({limits.outbox:,} {why})"
    return None


class Sending:
    """`stamps`: messages carry the tracker's timestamp of their sending; `confirms`: a multicast waits for
    the journal."""

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
        self._states = states
        self._running, self._engine = running, running.engine
        self._reasons = tuple(self._why_not())
        self._payloads, self._requests = payloads, requests
        self._stamps, self._confirms = stamps, confirms
        self._beside = HEAD if running.engine.signed is not None else 0  # bytes in front of each payload
        facts = running.facts
        self._is_routed = facts.copies.relays is Relays.ROUTERS
        # Otherwise others pass messages on, or hold what follows a message that somebody else has not got.
        self._is_alone = facts.copies.relays is Relays.NOBODY and facts.waits.only_for_past

    async def room(
        self, to: str | Iterable[str] | None, timeout: float | None, *, refuses: bool = False
    ) -> None:
        """`refuses`: do not wait for a peer whose policy is to refuse."""
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
        """Why a multicast to these members must wait now; None: it need not. Where it has to wait for a place
        in a total order, or everybody passes messages on, a full outbox concerns every multicast; where there
        are routes, those that go that way."""
        engine, limits = self._engine, self._running.limits
        if self._running.is_leaving:
            return "is leaving"
        for reason in self._reasons:
            if (why := reason()) is not None:
                return why
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

    def _why_not(self) -> Iterator[Callable[[], str | None]]:
        """Reasons to wait that this node can have."""
        engine = self._engine
        if (sites := engine.sites) is not None:
            yield lambda: None if sites.change is None else "waits until the topology has changed"
        if engine.serialization is not None:
            yield lambda: None if engine.has_turn else "does not have the token"

    def _full(self, links: Sequence[int] | None) -> list[str]:
        """Of those that a multicast to these members concerns, the ones whose outboxes are full."""
        full = self._engine.links.full - self._engine.gone
        if links is not None and self._is_alone:
            full &= set(links)
        elif links is not None and self._is_routed:
            site = self._running.site
            full &= set(links if site is None else unpack(outgoing(site.place, site.me, pack(links))))
        return sorted(self._running.members.names[link] for link in full)

    def _refuse(self, links: Sequence[int] | None) -> None:
        """Raise NodeFull if a peer is full that one does not wait for."""
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
            then()  # nothing is committed between these two, for nothing is awaited
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
        """Give the engine a multicast for which there is room: `links` are the processes that `to` names."""
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
        """Refuse a payload whose frame somebody on its way would not take, as far as they have told."""
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
