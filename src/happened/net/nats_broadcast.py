"""A broadcast medium over NATS JetStream: a multicast is one publication for all its destinations.

    stream      STREAM-common, beside the links' own: it keeps a message until every consumer that matches
                the message's subject has acknowledged it
    subject     STREAM-common.from.b0.b1.….end. For each index i, b is a mark of process i's name if process i
                is a destination, else 0: so the broker hands a message to its destinations alone. Let each
                process publish to `STREAM-common.me.>`, and make consumers there for the processes it sends
                to, and on `STREAM-common.*.….mark.>` with its own index and mark
    consumer    one durable pull consumer per (to, from); the sender makes it before it publishes anything
                for that receiver, so that no publication is missed
    message     a packet (wire/packets.py)

Assumes    what the links over JetStream assume (nats.py).
Promises   the contract of `transport`. Links carry the frames of a failed publication, the first frame to a
           peer, from which the peer learns our incarnation, and frames that would be too long.
           With a key and without TLS, links carry everything (nats_broker.py).
           A link publishes no frame behind one that is under way here (medium.py). So on each of a receiver's
           two subjects frames come in the order of their numbers, except within the links' WINDOW, and
           never more than IN_HAND others are before the next one that it needs.
Bounds     WINDOW packets are being published; further frames wait in the outboxes.
"""

import asyncio
import contextlib
from base64 import urlsafe_b64encode
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import nats.errors
from nats.js import api

from ..core.errors import RemoteProtocolError
from ..wire import packets
from . import nats_broker as broker
from .link import Sendable
from .medium import Claims, Run, Unclaimed, claimed, runs
from .nats import NatsTransport
from .nats_broker import RETRY_SECONDS, end, kept, reason, token
from .nats_link import Frames, Link, most_bytes
from .transport import Shared

COUNTS = ("packets", "bytes", "copies", "repaired", "received")
"""Packets published and their bytes; copies that links did not carry; those left to the links after a
failure; frames that came for us."""
MOST_MARKS = 2048
"""The longest part of a subject for marks, in bytes; a server takes lines of 4096."""


def mark(name: str) -> str:
    """A short token for a name within a subject. It tells a process from the earlier owner of its index."""
    return urlsafe_b64encode(packets.tag(name)[:3]).decode()


class NatsBroadcast(NatsTransport):
    """Links over NATS, and a stream for frames that several peers get alike. Arguments: as NatsTransport."""

    _links: "dict[str, SharedLink]"  # type: ignore[assignment]

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.common = f"{self.stream}-common"
        self.counts = dict.fromkeys(COUNTS, 0)
        self._queue: deque[Shared] = deque()
        self._runs: deque[Run] = deque()
        self._awake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def _streams(self) -> list[api.StreamConfig]:
        common = self._stream_of(self.common, f"{self.common}.>", api.RetentionPolicy.INTEREST)
        return [*super()._streams(), common]

    def _link_with(self, peer: str) -> "SharedLink":
        if self._task is None:
            publishing = broker.publish_in_order(
                self._next_run, self._publish_run, self._note_stored, self._leave_to_links, self._awake
            )
            self._task = asyncio.create_task(publishing)
        return SharedLink(self, peer)

    async def close(self) -> None:
        if self._task is not None:
            await end([self._task])
            self._task = None
        await super().close()

    def medium_counts(self) -> dict[str, int]:
        return dict(self.counts)

    def share(self, released: Sequence[Shared]) -> None:
        self._queue += claimed(released, self._claims_of, self._fits)
        if self._queue:
            self._awake.set()

    def _claims_of(self, peer: str, number: int) -> Claims | None:
        link = self._links.get(peer)
        return link.claims if link is not None and link.is_ready else None

    def _fits(self, frame: bytes, ready: dict[str, int]) -> bool:
        marks = 2 * len(self.host.hello(next(iter(ready))).members) + 4 * len(ready)
        return len(frame) <= self.max_payload - 512 - 16 * len(ready) and marks <= MOST_MARKS

    def _next_run(self) -> Run | None:
        if not self._runs:
            self._runs.extend(runs(self._queue, lambda _: most_bytes(self.client)))
            self._queue.clear()
        return self._runs.popleft() if self._runs else None

    async def _note_stored(self, run: Run, confirmation: api.PubAck, first: bool) -> None:
        """Tell each link which of its frames are now stored."""
        for peer, number in run.first.items():
            if peer in self._links:
                self._links[peer].shared(number, number + len(run.frames) - 1)

    async def _publish_run(self, run: Run) -> "asyncio.Future[Any]":
        me, hello = self.host.name, self.host.hello(next(iter(run.first)))
        marks = ".".join(mark(name) if name in run.first else "0" for name in hello.members)
        packet = packets.encode(me, hello.incarnation, run.first, run.frames)
        self.counts["packets"] += 1
        self.counts["bytes"] += len(packet)
        self.counts["copies"] += len(run.first) * len(run.frames)
        jetstream = self.client.jetstream(timeout=broker.PUBLISH_SECONDS)
        headers = self.seal.headers(self.common, me, packet) or None
        return await jetstream.publish_async(
            f"{self.common}.{token(me)}.{marks}.end", packet, headers=headers
        )

    def _leave_to_links(self, error: Exception) -> None:
        """After a failure it is unknown what is stored: the links carry all frames that were under way."""
        self._queue.clear()
        self._runs.clear()
        for peer, link in self._links.items():
            if given_back := link.give_back():
                self.counts["repaired"] += given_back
                self.host.disconnected(peer, True, f"not published for all: {reason(error)}")


class SharedLink(Link):
    """A link whose sender publishes some of its frames for several peers at once."""

    def __init__(self, owner: NatsBroadcast, peer: str) -> None:
        self.claims = Claims()
        self._common, self._counts = owner.common, owner.counts
        self._has_consumer = False  # the peer has a consumer for our packets
        self._shared: deque[tuple[int, int]] = deque()  # stored frames; earlier ones may not be
        super().__init__(owner, peer)

    def _acts(self) -> list[Callable[[], Awaitable[None]]]:
        return [*super()._acts(), self._prepare, self._pull_common]

    # Outgoing.

    @property
    def is_ready(self) -> bool:
        return (
            not self._seal.rereads
            and self._has_consumer
            and self._is_current.is_set()
            and self._host.outbox(self._peer).acknowledged > 0
        )

    async def _prepare(self) -> None:
        to, me = self._peer, self._host.name
        await self._make_consumer(self._common, to, me, self._common_subject(to, me))
        self._has_consumer = True
        await asyncio.Event().wait()

    def _common_subject(self, to: str, sender: str) -> str:
        before = "*." * self._host.hello(self._peer).members.index(to)
        return f"{self._common}.{token(sender)}.{before}{mark(to)}.>"

    async def _last_stored(self, incarnation: bytes) -> tuple[int, bytes]:
        last = await super()._last_stored(incarnation)
        me, peer = self._host.name, self._peer
        message = await kept(self._jetstream, self._common, subject=self._common_subject(peer, me))
        if message is None:
            return last
        with contextlib.suppress(RemoteProtocolError):
            packet, frames = self._opened(message, me, peer)
            if packet.incarnation == incarnation:
                return max(last, (frames[-1][0], b""))
        return last

    def _opened(self, message: Any, sender: str, to: str) -> tuple[packets.Packet, Frames]:
        """A packet on the subject of `sender`, and its frames for `to`; RemoteProtocolError if the packet is
        not by `sender`, or not for `to`."""
        self._seal.check(sender, message.headers, self._common, sender, message.data)
        packet = packets.decode(message.data)
        frames = packet.numbered(to)
        if packet.sender != sender or not frames:
            raise RemoteProtocolError(
                f"a packet on the subject of {sender!r} that is not its own, or not for us"
            )
        return packet, frames

    def _outbox(self) -> Sendable:
        return Unclaimed(super()._outbox(), self.claims)

    def _stored(self, number: int) -> None:
        super()._stored(number)
        self._settle()

    def shared(self, first: int, last: int) -> None:
        """The broker has stored these frames, in a packet for several peers."""
        if self.claims:  # otherwise they were left to the link meanwhile
            self._shared.append((first, last))
            self._settle()

    def _settle(self) -> None:
        while self._shared and self._shared[0][0] <= self._host.outbox(self._peer).acknowledged + 1:
            _, last = self._shared.popleft()
            self._host.freed(self._peer, last)
            self.claims.settle(last)
            self.wake()

    def give_back(self) -> int:
        """Leave all claimed frames to the link; returns how many."""
        given_back = self.claims.give_back()
        self._shared.clear()
        self.wake()
        return given_back

    # Incoming.

    async def _pull_common(self) -> None:
        await self._pull_from(
            self._common, self._common_subject(self._host.name, self._peer), self._take_packet
        )

    async def _take_packet(self, message: Any) -> None:
        """Take the frames for us from a packet; the packet must be by the sender whose subject it came on."""
        host, peer = self._host, self._peer
        try:
            packet, frames = self._opened(message, peer, host.name)
        except RemoteProtocolError as error:  # the packet would be no better if it came again
            host.disconnected(peer, False, str(error))
            with contextlib.suppress(nats.errors.Error):
                await message.term()
            return
        known = host.hello(peer).knows
        if not known:  # the peer's first frame comes by the link, and tells its incarnation
            with contextlib.suppress(nats.errors.Error):
                await message.nak(delay=RETRY_SECONDS)
            return
        try:
            if packet.incarnation != known:
                raise RemoteProtocolError(
                    f"a packet of {peer!r} with another journal than it has on its link"
                )
            self._counts["received"] += len(frames)
            self._hand_over(frames, message, ())  # packets do not tell the sender's lives
        except RemoteProtocolError as error:
            self._refuse(error)
