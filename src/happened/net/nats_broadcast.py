"""A broadcast medium over NATS JetStream: a multicast is one publication for all its destinations.

    stream      STREAM-common, beside the links' own: a message is kept until every consumer that matches its
                subject has acknowledged it
    subject     STREAM-common.from.b0.b1.….end, where b of index i is a mark of the name of process i if that
                is a destination and 0 if not: the broker hands a message to its destinations alone. Let each
                publish to `STREAM-common.me.>`, and make consumers there, for those it sends to, and on
                `STREAM-common.*.….mark.>` with its own index and mark
    consumer    one durable pull consumer per (to, from); its sender makes it before it publishes anything
                for it, so that nothing is published that somebody would miss
    message     a packet (wire/packets.py)

Assumes    what the links over JetStream assume (nats.py).
Promises   the contract of `transport`. A publication that fails goes by the links, and so do the first frame
           to a peer, by which that comes to know our incarnation, and frames that would be too long.
           With a key and without TLS everything goes by the links (nats_rereading.py).
           A link publishes nothing behind a frame that is on its way here (medium.py). So the frames on each
           of a receiver's two subjects come in the order of their numbers but for the links' WINDOW, and
           the next one that it needs is never behind IN_HAND others.
Bounds     WINDOW packets are under way to the broker; what waits for that is in the outboxes.
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
from .link import Sendable
from .medium import Claims, Run, Unclaimed, runs
from .nats import NatsTransport
from .nats_link import (
    BATCH_BYTES,
    PUBLISH_SECONDS,
    RETRY_SECONDS,
    WINDOW,
    Link,
    consumer_name,
    reason,
    token,
)
from .nats_receipts import last_message
from .nats_security import Seal
from .transport import Shared

COUNTS = ("packets", "bytes", "copies", "repaired", "received")
"""Packets published and their bytes; copies that links did not carry; those left to the links after a
failure; frames that came for us."""


MOST_MARKS = 2048
"""Bytes of a subject, of which a server takes 4096 with the rest of a line."""


def mark(name: str) -> str:
    """A name within a subject. Who has the index of a process that left is told from it by this."""
    return urlsafe_b64encode(packets.tag(name)[:3]).decode()


class NatsBroadcast(NatsTransport):
    """Links over NATS, and a stream for what several get alike. Arguments are those of `NatsTransport`."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._common = f"{self._stream}-common"
        self._queue: deque[Shared] = deque()
        self._awake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._counts = dict.fromkeys(COUNTS, 0)

    def _streams(self) -> list[api.StreamConfig]:
        common = self._stream_of(self._common, f"{self._common}.>", api.RetentionPolicy.INTEREST)
        return [*super()._streams(), common]

    def _new_link(self, peer: str) -> "SharedLink":
        if self._task is None:
            self._task = asyncio.create_task(self._publish())
        assert self._host is not None
        return SharedLink(
            self._host,
            peer,
            self._client,
            self._stream,
            self._replicas,
            self._seal,
            self._common,
            self._counts,
        )

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        await super().close()

    def medium_counts(self) -> dict[str, int]:
        return dict(self._counts)

    def share(self, released: Sequence[Shared]) -> None:
        for frame, numbers in released:
            ready = {peer: number for peer, number in numbers.items() if self._is_ready(peer)}
            # Behind others that are under way here, the link would have to wait for those.
            is_worth_it = len(ready) > 1 or any(self._link(peer).claims for peer in ready)
            if is_worth_it and self._fits(frame, ready):
                for peer, number in ready.items():
                    self._link(peer).claims.claim(number)
                self._queue.append(Shared(frame, ready))
        if self._queue:
            self._awake.set()

    def _fits(self, frame: bytes, ready: dict[str, int]) -> bool:
        assert self._host is not None
        marks = 2 * len(self._host.hello(next(iter(ready))).members) + 4 * len(ready)
        return len(frame) <= self.max_payload - 512 - 16 * len(ready) and marks <= MOST_MARKS

    def _link(self, peer: str) -> "SharedLink":
        link = self._links[peer]
        assert isinstance(link, SharedLink)
        return link

    def _is_ready(self, peer: str) -> bool:
        return peer in self._links and self._link(peer).is_ready

    async def _publish(self) -> None:
        """Keep a window of packets under way, in order, and tell the links of each that is stored."""
        under_way: deque[tuple[Run, asyncio.Future[Any]]] = deque()
        waiting: deque[Run] = deque()
        while True:
            self._awake.clear()
            try:
                if not waiting:
                    waiting.extend(runs(self._queue, lambda _: self._batch_bytes()))
                    self._queue.clear()
                while waiting and len(under_way) < WINDOW:
                    under_way.append((waiting[0], await self._publish_run(waiting[0])))
                    waiting.popleft()
                if not under_way:
                    await self._awake.wait()
                    continue
                async with asyncio.timeout(PUBLISH_SECONDS):
                    await under_way[0][1]
                self._note_stored(under_way.popleft()[0])
            except Exception as error:  # whatever it is, the links do without
                for _, future in under_way:
                    future.cancel()
                under_way.clear()
                waiting.clear()
                self._leave_to_links(error)
                await asyncio.sleep(RETRY_SECONDS)

    def _note_stored(self, run: Run) -> None:
        for peer, first in run.first.items():
            if peer in self._links:
                self._link(peer).shared(first, first + len(run.frames) - 1)

    def _batch_bytes(self) -> int:
        return min(BATCH_BYTES, self.max_payload // 4)

    async def _publish_run(self, run: Run) -> "asyncio.Future[Any]":
        assert self._host is not None and self._client is not None
        me, hello = self._host.name, self._host.hello(next(iter(run.first)))
        marks = ".".join(mark(name) if name in run.first else "0" for name in hello.members)
        packet = packets.encode(me, hello.incarnation, run.first, run.frames)
        self._counts["packets"] += 1
        self._counts["bytes"] += len(packet)
        self._counts["copies"] += len(run.first) * len(run.frames)
        jetstream = self._client.jetstream(timeout=PUBLISH_SECONDS)
        headers = self._seal.headers(self._common, me, packet) or None
        return await jetstream.publish_async(
            f"{self._common}.{token(me)}.{marks}.end", packet, headers=headers
        )

    def _leave_to_links(self, error: Exception) -> None:
        """After a failure nobody knows what is stored: the links carry all that was under way."""
        assert self._host is not None
        self._queue.clear()
        for peer in self._links:
            if given_back := self._link(peer).give_back():
                self._counts["repaired"] += given_back
                self._host.disconnected(peer, True, f"not published for all: {reason(error)}")


class SharedLink(Link):
    """A link whose sender publishes some of its frames for others too."""

    def __init__(
        self,
        host: Any,
        peer: str,
        client: Any,
        stream: str,
        replicas: int,
        seal: Seal,
        common: str,
        counts: dict[str, int],
    ) -> None:
        self.claims = Claims()
        self._common, self._counts = common, counts
        self._has_consumer = False  # at the other end, for what we publish
        self._shared: deque[tuple[int, int]] = deque()  # stored, while frames before them may be not
        super().__init__(host, peer, client, stream, replicas, seal)

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
        await self._make_common_consumer(self._peer, self._host.name)
        self._has_consumer = True
        await asyncio.Event().wait()

    async def _make_common_consumer(self, to: str, sender: str) -> str:
        """The consumer of one process for what another one publishes: the same, whoever makes it."""
        name = consumer_name(to, sender)
        await self._make_consumer(self._common, name, self._common_subject(to, sender))
        return name

    def _common_subject(self, to: str, sender: str) -> str:
        before = "*." * self._host.hello(self._peer).members.index(to)
        return f"{self._common}.{token(sender)}.{before}{mark(to)}.>"

    async def _last_stored(self, incarnation: bytes) -> tuple[int, bytes]:
        last = await super()._last_stored(incarnation)
        me, peer = self._host.name, self._peer
        message = await last_message(self._jetstream, self._common, self._common_subject(peer, me))
        if message is None:
            return last
        try:
            data = message.data or b""
            self._seal.check(me, message.headers, self._common, me, data)
            packet = packets.decode(data)
            frames = packet.numbered(peer)
        except RemoteProtocolError:
            return last
        if not frames or packet.incarnation != incarnation:
            return last
        return max(last, (frames[-1][0], b""))

    def _outbox(self) -> Sendable:
        return Unclaimed(super()._outbox(), self.claims)

    def _stored(self, number: int) -> None:
        super()._stored(number)
        self._settle()

    def shared(self, first: int, last: int) -> None:
        """The broker has these frames, in a packet for several."""
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
        """Leave to the link what is claimed; returns how many frames that are."""
        given_back = self.claims.give_back()
        self._shared.clear()
        self.wake()
        return given_back

    # Incoming.

    async def _pull_common(self) -> None:
        await self._is_current.wait()
        consumer = await self._make_common_consumer(self._host.name, self._peer)
        await self._pull_from(self._common, consumer, self._take_packet)

    async def _take_packet(self, message: Any) -> None:
        """Take the frames of a packet that are for us, whose sender's subject says who sent it."""
        host, peer = self._host, self._peer
        try:
            self._seal.check(peer, message.headers, self._common, peer, message.data)
            packet = packets.decode(message.data)
            frames = packet.numbered(host.name)
            if packet.sender != peer or not frames:
                raise RemoteProtocolError(
                    f"a packet on the subject of {peer!r} that is not its own, or not for us"
                )
        except RemoteProtocolError as error:  # it is no better when it comes again
            host.disconnected(peer, False, str(error))
            with contextlib.suppress(nats.errors.Error):
                await message.term()
            return
        known = host.hello(peer).knows
        if not known:  # its first frame comes by the link, and says which life of it this is
            with contextlib.suppress(nats.errors.Error):
                await message.nak(delay=RETRY_SECONDS)
            return
        try:
            if packet.incarnation != known:
                raise RemoteProtocolError(
                    f"a packet of {peer!r} with another journal than it has on its link"
                )
            self._counts["received"] += len(frames)
            self._hand_over(frames, message, ())  # packets do not tell lives
        except RemoteProtocolError as error:
            self._refuse(error)
