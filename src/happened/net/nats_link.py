"""One link over NATS JetStream: it publishes, pulls, acknowledges, and compares journals (nats.py)."""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol

from ..core.errors import RemoteProtocolError
from ..wire import MAX_FRAME
from .errors import NodeError
from .link import Sendable
from .lives import Life, life_of
from .nats_security import Seal
from .records import frames_in, frames_out, hello_from_json, hello_to_json
from .transport import Hello, Host

try:
    import nats.errors
    import nats.js.errors
    from nats.js import api

    from . import nats_broker as broker
    from .nats_broker import FAILURES, Receipt, Receipts, kept, reason, token
except ImportError:
    raise NodeError("the NATS transport needs nats-py: pip install 'happened[nats]'") from None

BATCH_BYTES = 128 * 1024
IN_HAND = 32
PULL_SECONDS = 5.0
REDELIVERY_SECONDS = 3.0
"""Without an acknowledgement the broker hands a message over again after this long: a restarted node waits
this long for the messages that it had in hand before."""
PATIENCE = 4
"""After this many unanswered requests of one kind in a row, on a connection that seems good, the client
makes a new connection: its subscription to the answers may have been altered on its way."""
COMPARE_SECONDS = 10.0
"""Between looks at a peer's receipt, while there are frames that the receipt does not cover."""
GAP_SECONDS = 10.0
"""A frame that is missing for this long while later ones are in hand is logged: the broker has lost it, or
the journal has lost the record of its arrival."""
FARTHEST = IN_HAND * BATCH_BYTES
"""How far ahead of the next frame a number can be: a frame has at least a byte, a message at most so many."""
OFTEN = 3
"""Deliveries after which an unreadable message is dropped, where it may have been altered on its way."""
HELLO = "Happened-Hello"
EXPIRED = "408"
"""The status when a request ended without more messages; others mean: the consumer is gone or has moved."""


Frames = list[tuple[int, bytes]]
"""Frames with their link numbers."""


class _Arrived(NamedTuple):
    """Consecutive frames that have arrived and are not journaled."""

    last: int  # link number
    frames: Frames
    message: Any  # of the broker
    lives: Sequence[Life]  # of the sender; empty: it does not say


class LinkOwner(Protocol):
    """The transport (nats.py), as its links see it."""

    stream: str
    replicas: int
    seal: Seal

    @property
    def host(self) -> Host: ...
    @property
    def client(self) -> broker.RenewedClient: ...


class Link:
    """Both directions of the link between us and one peer."""

    def __init__(self, owner: LinkOwner, peer: str) -> None:
        self._host, self._peer, self._client = owner.host, peer, owner.client
        self._stream, self._replicas, self._seal = owner.stream, owner.replicas, owner.seal
        self._jetstream = self._client.jetstream(timeout=broker.PUBLISH_SECONDS)
        self._receipts = Receipts(self._jetstream, broker.receipts_of(self._stream), self._seal)
        self._receipted = 0  # our receipt covers frames up to this number
        self._unanswered: Counter[str] = Counter()  # by kind, the requests in a row without an answer
        self._is_current = asyncio.Event()  # set once our journal is known not to be old
        self._awake = asyncio.Event()
        self._awake.set()
        self._may_pull = asyncio.Event()
        self._may_pull.set()
        self._met = ""
        # By first link number, the frames that have arrived and are not journaled.
        self._in_hand: dict[int, _Arrived] = {}
        self._awaited: tuple[int, float] | None = None  # a frame that later ones wait for, and since when
        self._journaled = asyncio.Event()
        self.tasks = [asyncio.create_task(self._keep(act)) for act in self._acts()]

    def _acts(self) -> list[Callable[[], Awaitable[None]]]:
        """The link's endless activities, each of which runs in a task of its own."""
        return [self._publish, self._pull, self._acknowledge, self._compare_journal]

    async def _compare_journal(self) -> None:
        """Stop the node if the broker knows more of this link than our journal does; otherwise let the link
        work. Later, stop the node if the peer has frames under our numbers that we did not send: then another
        node runs on a copy of our journal, and was not ahead of us when we started."""
        host, (me, peer) = self._host, (token(self._host.name), token(self._peer))
        mine = host.hello(self._peer).incarnation
        ours = await self._last_receipt(me, peer)
        if ours is not None and ours.to == mine:
            host.confirmed(self._peer, ours.number)
            self._receipted = ours.number
        has, life = await self._last_stored(mine)
        theirs = await self._last_receipt(peer, me)
        if theirs is not None and theirs.sender == mine and theirs.number > has:
            has, life = theirs.number, theirs.life
        # Receipts may lag behind the broker's own answers, so a receipt for fewer frames shows nothing.
        if has < (known := self._outbox().acknowledged):
            has, life = known, b""
        self._note_answer("start")
        host.resumes(self._peer, has, life)
        self._is_current.set()
        began = compared = self._outbox().acknowledged
        while True:
            await asyncio.sleep(COMPARE_SECONDS)
            if self._outbox().acknowledged != compared:
                theirs = await self._last_receipt(peer, me)
                if theirs is not None and theirs.sender == mine and theirs.number > began:
                    host.shows(self._peer, theirs.number, theirs.life)
                    compared = theirs.number

    async def _last_receipt(self, to: str, sender: str) -> Receipt | None:
        try:
            return await self._receipts.last(to, sender)
        except RemoteProtocolError as error:  # whoever put it there must not keep the link from working
            self._host.disconnected(self._peer, False, str(error))
            return None

    async def _last_stored(self, incarnation: bytes) -> tuple[int, bytes]:
        """The last of our frames that is still in the links' stream, and its life."""
        message = await kept(self._jetstream, self._stream, subject=self._subject())
        if message is None:
            return 0, b""
        try:
            frames = self._read(message, self._peer, self._host.name)
        except RemoteProtocolError:
            return 0, b""  # not ours: its receiver refuses the message too
        hello = _read_hello((message.headers or {})[HELLO])
        last = frames[-1][0]
        return (last, life_of(last, hello.lives)) if hello.incarnation == incarnation else (0, b"")

    def _read(self, message: Any, to: str, sender: str) -> Frames:
        """The frames of a message on a link's subject, if a node of the group sent it there."""
        if HELLO not in (message.headers or {}):
            raise RemoteProtocolError("a message on our subject is not one of ours")
        frames = frames_in(message.data, MAX_FRAME)
        if not frames or any(number != frames[0][0] + place for place, (number, _) in enumerate(frames)):
            raise RemoteProtocolError("a message holds no consecutive frames")
        place = self._stream, to, sender
        self._seal.check(sender, message.headers, *place, message.headers[HELLO], message.data)
        return frames

    def wake(self) -> None:
        self._awake.set()

    def durable(self, number: int) -> None:
        self._journaled.set()

    def pause(self) -> None:
        self._may_pull.clear()

    def resume(self) -> None:
        self._may_pull.set()

    def close(self, reason: str = "") -> None:
        self._ending = asyncio.create_task(broker.end(self.tasks))

    async def _keep(self, act: Callable[[], Awaitable[None]]) -> None:
        """Run one activity of the link for ever: an error is logged, and the activity begins again."""
        while True:
            try:
                await act()
            except Exception as error:
                self._note_failure("start", error)
                self._host.disconnected(self._peer, act == self._publish, f"{type(error).__name__}: {error}")
                await asyncio.sleep(broker.RETRY_SECONDS)

    def _note_answer(self, kind: str) -> None:
        del self._unanswered[kind]

    def _note_failure(self, kind: str, error: Exception) -> None:
        """If no answer of this kind came in time, count it as owed; after PATIENCE owed answers the client is
        lost."""
        if isinstance(error, TimeoutError) and self._client.is_connected:
            self._unanswered[kind] += 1
            if self._unanswered[kind] >= PATIENCE:
                self._client.is_lost.set()

    # Outgoing.

    def _outbox(self) -> Sendable:
        return self._host.outbox(self._peer)

    def _stored(self, number: int) -> None:
        """The broker has stored all our frames up to this number."""
        self._host.freed(self._peer, number)

    async def _publish(self) -> None:
        await self._is_current.wait()
        self._published = self._outbox().acknowledged
        await broker.publish_in_order(
            self._next_batch, self._publish_batch, self._note_stored, self._note_failed, self._awake
        )

    def _next_batch(self) -> Frames:
        batch = self._outbox().after(self._published, most_bytes(self._client))
        if batch:
            self._published = batch[-1][0]
        return batch

    async def _note_stored(self, batch: Frames, confirmation: api.PubAck, first: bool) -> None:
        await self._check_stored(confirmation, batch)
        self._note_answer("publication")
        if first:
            self._host.connected(self._peer, True)
        self._stored(batch[-1][0])

    def _note_failed(self, error: Exception) -> None:
        self._note_failure("publication", error)
        self._published = self._outbox().acknowledged
        self._host.disconnected(self._peer, True, f"not published: {reason(error)}")

    async def _check_stored(self, confirmation: api.PubAck, batch: Frames) -> None:
        """Raise RemoteProtocolError if the stored message is not what we published (nats_broker.py)."""
        if not self._seal.rereads:
            return
        me, peer = self._host.name, self._peer
        try:
            message = await kept(self._jetstream, self._stream, seq=confirmation.seq)
            if message is None:  # its receiver has journaled it, or has refused it
                receipt = await self._last_receipt(token(peer), token(me))
                mine = self._host.hello(peer).incarnation
                is_there = receipt is not None and receipt.sender == mine and receipt.number >= batch[-1][0]
            else:
                is_there = message.subject == self._subject() and self._read(message, peer, me) == batch
        except (RemoteProtocolError, *FAILURES):
            is_there = False
        if not is_there:
            raise RemoteProtocolError(f"frame {batch[0][0]} was altered on its way to the broker: use `tls`")

    def _subject(self) -> str:
        """The subject of our messages to the peer."""
        return f"{self._stream}.{token(self._peer)}.{token(self._host.name)}"

    async def _publish_batch(self, batch: Frames) -> "asyncio.Future[Any]":
        me, peer = self._host.name, self._peer
        hello = self._host.hello(peer)
        # Of our lives, send only that of the last frame: receipts tell which life the receiver has.
        lives = ((life, 0),) if (life := life_of(batch[-1][0], hello.lives)) else ()
        hello = hello._replace(lives=lives, heard=b"")
        headers = {HELLO: json.dumps(hello_to_json(hello), separators=(",", ":"))}
        subject, data = self._subject(), frames_out(batch)
        headers |= self._seal.headers(self._stream, peer, me, headers[HELLO], data)
        return await self._jetstream.publish_async(subject, data, headers=headers)

    # Incoming.

    async def _pull(self) -> None:
        me, peer = token(self._host.name), token(self._peer)
        await self._pull_from(self._stream, f"{self._stream}.{me}.{peer}", self._take)

    async def _pull_from(self, stream: str, subject: str, take: Callable[[Any], Awaitable[None]]) -> None:
        """Ask the broker for messages while the link is not paused, and take them when they come."""
        await self._is_current.wait()
        consumer = await self._make_consumer(stream, self._host.name, self._peer, subject)
        inbox = self._client.new_inbox()
        subscription = await self._client.subscribe(inbox)
        request = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        asked = json.dumps({"batch": IN_HAND // 2, "expires": int(PULL_SECONDS * 1e9)}).encode()
        try:
            while True:
                await self._may_pull.wait()
                try:
                    await self._client.publish(request, asked, reply=inbox)
                    for _ in range(IN_HAND // 2):
                        message = await subscription.next_msg(timeout=PULL_SECONDS + 1)
                        self._note_answer(request)
                        if (status := (message.headers or {}).get(api.Header.STATUS)) is not None:
                            if status != EXPIRED:
                                raise NodeError(f"the broker answers a request for messages with {status}")
                            break
                        await take(message)
                        if not self._may_pull.is_set():
                            break
                except (TimeoutError, nats.errors.Error) as error:
                    self._note_failure(request, error)
                    await asyncio.sleep(0 if self._client.is_connected else broker.RETRY_SECONDS)
        finally:
            with contextlib.suppress(nats.errors.Error):
                await subscription.unsubscribe()

    async def _make_consumer(self, stream: str, to: str, sender: str, subject: str) -> str:
        """Make the consumer of one process for another's messages, the same whoever makes it; its name."""
        # A consumer's name allows fewer characters than a subject.
        name = f"{token(to)}-from-{token(sender)}".replace("%", "=")
        config = api.ConsumerConfig(
            name=name,
            durable_name=name,
            filter_subject=subject,
            ack_policy=api.AckPolicy.EXPLICIT,
            ack_wait=REDELIVERY_SECONDS,
            max_ack_pending=IN_HAND,
            num_replicas=self._replicas,
        )
        while True:
            try:
                await self._jetstream.add_consumer(stream, config)
                self._note_answer("consumer")
                return name
            except (TimeoutError, OSError, nats.errors.Error) as error:
                self._note_failure("consumer", error)
                self._host.disconnected(self._peer, False, f"no consumer: {reason(error)}")
                await asyncio.sleep(broker.RETRY_SECONDS)

    async def _take(self, message: Any) -> None:
        """Hand the next frames to the node, and keep early ones for later."""
        host, peer = self._host, self._peer
        try:
            frames, hello, told = self._understood(message)
        except RemoteProtocolError as error:
            host.disconnected(peer, False, str(error))
            if (again := await self._read_again(message)) is None:
                return
            frames, hello, told = again
        try:
            if hello != self._met:
                host.meet(peer, told._replace(confirmed=0, lives=()))  # the lives are those of the message
                self._met = hello
                host.connected(peer, False)
            self._hand_over(frames, message, told.lives)
        except RemoteProtocolError as error:
            self._refuse(error)

    def _understood(self, message: Any) -> tuple[Frames, str, Hello]:
        """The frames of a message to us, and its sender's hello, as text and decoded."""
        host, peer = self._host, self._peer
        frames, hello = self._read(message, host.name, peer), message.headers[HELLO]
        if frames[0][0] > host.expects(peer) + FARTHEST:
            raise RemoteProtocolError(
                f"frame {frames[0][0]} is farther ahead of {host.expects(peer)} than any link gets"
            )
        return frames, hello, _read_hello(hello)

    async def _read_again(self, message: Any) -> tuple[Frames, str, Hello] | None:
        """Read a refused message again, and return what the broker has if that is valid; otherwise drop it,
        at once or after it has come some more times (nats_broker.py)."""
        with contextlib.suppress(*FAILURES):
            is_last = not self._seal.rereads or message.metadata.num_delivered >= OFTEN
            with contextlib.suppress(RemoteProtocolError):
                number = message.metadata.sequence.stream if self._seal.rereads else 0
                if number and (there := await kept(self._jetstream, self._stream, seq=number)) is not None:
                    return self._understood(there)
            await (message.term() if is_last else message.nak())
        return None

    def _hand_over(self, frames: Frames, message: Any, lives: Sequence[Life]) -> None:
        host, peer = self._host, self._peer
        if frames[-1][0] <= host.received(peer):  # its sender has not seen our receipt, if there is one
            self._receipted = 0
        self._in_hand[frames[0][0]] = _Arrived(frames[-1][0], frames, message, lives)
        before = 0
        while before < (expected := host.expects(peer)):  # a stopped node takes nothing
            before = expected
            for first, each in self._in_hand.items():
                if first <= expected <= each.last:
                    host.numbered_in(peer, each.lives)
                    host.arrived(peer, each.frames[expected - first :])
                    break
            else:
                host.arrived(peer, [])
        self._look_for_gap()
        self._journaled.set()

    def _refuse(self, error: RemoteProtocolError) -> None:
        """Leave the messages in hand unacknowledged, so that they come again: the cause may be mended."""
        self._in_hand.clear()
        self._met = ""
        self._host.disconnected(self._peer, False, str(error))

    def _look_for_gap(self) -> None:
        """Log a frame that later frames have waited for too long."""
        now, expected = asyncio.get_running_loop().time(), self._host.expects(self._peer)
        if not any(first > expected for first in self._in_hand):
            self._awaited = None
        elif self._awaited is None or self._awaited[0] != expected:
            self._awaited = (expected, now)
        elif now - self._awaited[1] > GAP_SECONDS:
            self._host.disconnected(
                self._peer,
                False,
                f"frame {expected} is missing, and later ones are here: the broker has lost it, or our "
                "journal is an old copy. Restore what was lost, or join under a new name",
            )

    async def _acknowledge(self) -> None:
        """Acknowledge what is journaled. A lost acknowledgement is sent again when its message comes
        again."""
        me, peer = self._host.name, self._peer
        while True:
            await self._journaled.wait()
            self._journaled.clear()
            number = self._host.received(peer)
            if number > self._receipted:  # publish a receipt of how far we have journaled
                hello = self._host.hello(peer)
                receipt = Receipt(number, hello.incarnation, hello.knows, hello.heard)
                try:
                    await self._receipts.publish(token(me), token(peer), receipt)
                except (TimeoutError, OSError, nats.errors.Error) as error:
                    self._note_failure("receipt", error)
                    self._host.disconnected(peer, False, f"no receipt was stored: {reason(error)}")
                    self._journaled.set()
                    await asyncio.sleep(broker.RETRY_SECONDS)
                    continue
                self._note_answer("receipt")
                self._receipted = number
            for first in [first for first, each in self._in_hand.items() if each.last <= number]:
                message = self._in_hand.pop(first).message
                with contextlib.suppress(nats.errors.Error):
                    await message.ack()


def most_bytes(client: Any) -> int:
    """About how many bytes go into one message."""
    return min(BATCH_BYTES, int(client.max_payload) // 4)


def _read_hello(text: str) -> Hello:
    try:
        return hello_from_json(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise RemoteProtocolError(f"not a hello: {error}") from None
