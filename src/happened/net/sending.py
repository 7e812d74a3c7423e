"""The application's multicasts: whether there is room, what is refused, and what goes to the engine."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..core.destinations import pack, unpack
from ..core.errors import LocalProtocolError
from ..core.places import outgoing
from ..ordering import Relays
from .errors import EngineFault, NodeFull
from .giving_state import StateGiving
from .message import REQUEST, STAMP, Message, Sent, note_sent, tells_if_cancelled
from .payloads import Payloads
from .qualified import PLAIN, How
from .requests import Requests
from .running import Running
from .send_stamps import stamp_to_text
from .signed import HEAD
from .when_full import WhenFull


def listed(to: str | Iterable[str]) -> str | tuple[str, ...]:
    """Destinations that can be looked at twice: for whether there is room, and to send."""
    return to if isinstance(to, str) else tuple(to)


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
        engine = self._engine
        if engine.sites is not None and engine.sites.change is not None:
            return "waits until the topology has changed"
        if self._running.is_leaving:
            return "is leaving"
        if engine.serialization is not None and not engine.has_turn:
            return "does not have the token"
        transfers = engine.transfers
        if transfers.awaited is not None or transfers.owed:
            why = self._states.why_wait(links if self._is_alone else None)
            if why is not None:
                return why
        kept = engine.queued_bytes + engine.machine.kept_bytes
        if not self._running.flow.has_room(engine.staged, kept):
            return "has too much that is not journaled, or that the protocol keeps back or until all have it"
        if engine.links.full and (names := self._full(links)):
            return f"has too much that is not acknowledged by {', '.join(names)}"
        return None

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

    def now(
        self,
        to: str | Iterable[str],
        body: bytes,
        headers: Mapping[str, str] | None,
        ordered: bool = True,
        how: How = PLAIN,
    ) -> Sent:
        """Multicast without waiting: the message is certain to be delivered after the next commit."""
        running = self._running
        running.life.check_running()
        destinations = running.members.destinations(to)
        if (why := self.why_wait(destinations)) is not None:
            raise NodeFull(f"{running.name!r} {why}; wait for room()")
        payload = self._sealed(body, headers)
        smallest = running.members.smallest_limit
        if smallest is not None and len(payload) + self._beside > smallest * 15 // 16:
            self._check_frame(destinations, len(payload) + self._beside)
        if (site := running.site) is not None:
            site.check_traffic(destinations)
        try:
            running.commits.stamp()
            if ordered and not self._stamps:
                qualified = self._engine.qualified
                if qualified is not None and how:
                    clock = qualified.multicast(destinations, payload, how)
                else:
                    clock = self._engine.multicast(destinations, payload)
            else:
                clock = self._give(destinations, body, headers, payload, ordered)
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
    ) -> int:
        if not ordered:
            return self._engine.unordered.multicast(destinations, payload)
        assert self._engine.tracking is not None
        stamp = self._engine.tracking.relevant("send")
        stamped = self._sealed(body, {**(headers or {}), STAMP: stamp_to_text(stamp)})
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

    def _sealed(self, body: bytes, headers: Mapping[str, str] | None) -> bytes:
        payload = self._payloads.seal(body, headers)
        running = self._running
        if len(payload) > running.limits.payload or len(payload) > running.transport.max_payload:
            most = min(running.limits.payload, running.transport.max_payload)
            raise LocalProtocolError(f"a payload of {len(payload)} bytes exceeds the limit of {most}")
        return payload

    async def until_journaled(self, name: Sent) -> None:
        if self._confirms:
            with tells_if_cancelled(name):
                await self._running.flush()

    async def request(self, to: str, value: Any, timeout: float | None) -> Message:
        if not self._payloads.has_headers:
            raise LocalProtocolError("requests need Node(headers=True), on every node")
        body = self._payloads.encode(value)
        deadline = None if timeout is None else self._running.loop.time() + timeout
        await self.room(to, timeout, refuses=True)
        name = self.now(to, body, {REQUEST: "1"})
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
        """Multicast, and do `then` in the same commit."""
        body, to = self._payloads.encode(value), listed(to)
        await self.room(to, None, refuses=True)
        # Nothing is committed between these two, for nothing is awaited.
        name = self.now(to, body, headers)
        then()
        await self.until_journaled(name)
        return name
