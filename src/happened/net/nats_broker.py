"""What links ask of the broker: to store in order, and what it keeps: receipts, and messages to read again.

Receipts   tell what receivers have journaled: by them a node on an old copy of its journal finds out.
    stream     STREAM-receipts, one message for each subject: the last
    subject    STREAM-receipts.to.from, published by `to`
    message    {"number": k, "to": incarnation, "from": incarnation, "life": of `from`}: `to` has journaled
               the frames of `from` up to link number k, which is of that life (lives.py)

A receiver publishes its receipt after it has journaled frames and before it tells the broker that their
messages can be deleted. So what was ever published on a link is, at any time, in a message of the link's
stream or covered by the receipt. A node reads both when it starts, before it publishes:
    its peer, or the broker, has more of its frames than its journal knows: that is an old copy;
    its own receipt tells of more of the peer's frames than its journal knows: the same.

Messages   A broker confirms what it has stored, not what was sent to it. With a key of the group and without
TLS below (nats_security.py), a receiver notices what was altered; but then it is too late, if the sender has
forgotten it. So
    a sender asks for each message that was confirmed, and takes it for stored if it is there as it was sent,
    or its receiver has a receipt of it; otherwise it is published again. A receiver that gets again what it
    has journaled leaves its receipt once more: that may be what was altered;
    a receiver asks for each message that it would refuse, and takes what it gets, if that is in order.
Bounds     one reading for each publication, of its size; OFTEN for a message that was altered in the stream,
           or that somebody else has sent.
Leaves out acknowledgements of the receiver that are altered into those of another message that it has in
           hand: if it is killed before it has journaled that one, it is lost. Only TLS keeps from this.
"""

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, unquote

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js import api

from ..core.errors import RemoteProtocolError
from .nats_security import Seal

WINDOW = 8
PUBLISH_SECONDS = 5.0
RETRY_SECONDS = 0.5
FAILURES = (TimeoutError, OSError, ValueError, KeyError, nats.errors.Error)
"""What comes of reading again if there is no answer, or that is altered too."""


class RenewedClient(Client):
    """A client that can be lost: it has closed for good, as on any error that the broker tells it, or answers
    stay away."""

    def __init__(self) -> None:
        super().__init__()
        self.is_lost = asyncio.Event()

    async def lost(self) -> None:
        self.is_lost.set()


class Receipt(NamedTuple):
    number: int
    to: bytes  # the incarnation of the receiver, who published it
    sender: bytes  # the incarnation of the sender, as the receiver knows it
    life: bytes = b""  # of the sender, that numbered the last of those frames; empty: nobody knows


class Receipts:
    """The receipts of one pair of processes, in both directions; names are quoted as within subjects."""

    def __init__(self, jetstream: Any, stream: str, seal: Seal) -> None:
        self._jetstream, self._stream, self._seal = jetstream, stream, seal

    async def publish(self, to: str, sender: str, receipt: Receipt) -> None:
        """Raises an error of NATS, or TimeoutError, if the broker did not confirm it."""
        said = {"number": receipt.number, "to": receipt.to.hex(), "from": receipt.sender.hex()}
        if receipt.life:
            said["life"] = receipt.life.hex()
        subject, body = f"{self._stream}.{to}.{sender}", json.dumps(said).encode()
        await self._jetstream.publish(subject, body, headers=self._seal.headers(subject, body) or None)

    async def last(self, to: str, sender: str) -> Receipt | None:
        """RemoteProtocolError: something else is there."""
        subject = f"{self._stream}.{to}.{sender}"
        message = await kept(self._jetstream, self._stream, subject=subject)
        if message is None:
            return None
        self._seal.check(unquote(to), message.headers, subject, message.data)
        try:
            said = json.loads(message.data)
            number = said["number"]
            if type(number) is not int or number < 0:
                raise ValueError("no number")
            to_, from_, life = said["to"], said["from"], said.get("life", "")
            return Receipt(number, bytes.fromhex(to_), bytes.fromhex(from_), bytes.fromhex(life))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise RemoteProtocolError(f"not a receipt: {error!r}") from None


async def kept(jetstream: Any, stream: str, **which: Any) -> Any:
    """A message that the stream still has: of number `seq`, or the last one of a `subject`; None if not."""
    try:
        message = await jetstream.get_msg(stream, **which)
    except nats.js.errors.NotFoundError:
        return None
    message.data = message.data or b""
    return message


T = TypeVar("T")


async def publish_in_order(
    following: Callable[[], T | None],
    publish: Callable[[T], Awaitable["asyncio.Future[Any]"]],
    stored: Callable[[T, api.PubAck, bool], Awaitable[None]],
    failed: Callable[[Exception], None],
    awake: asyncio.Event,
) -> None:
    """Keep a window of what is `following` under way to the broker, in order, and report each that is stored,
    and whether it is the first one since the last failure. `awake` is set when more may follow."""
    under_way: deque[tuple[T, asyncio.Future[Any]]] = deque()
    window = 1
    while True:
        awake.clear()
        try:
            while len(under_way) < window and (each := following()):
                under_way.append((each, await publish(each)))
            if not under_way:
                await awake.wait()
                continue
            each, future = under_way.popleft()
            async with asyncio.timeout(PUBLISH_SECONDS):
                await stored(each, await future, window == 1)
            window = WINDOW
        except Exception as error:  # whatever it is, what is not stored is published again
            for _, future in under_way:
                future.cancel()
            under_way.clear()
            window = 1
            failed(error)
            await asyncio.sleep(RETRY_SECONDS)


def receipts_of(stream: str) -> str:
    """The stream of receipts beside a stream of links."""
    return f"{stream}-receipts"


def reason(error: Exception) -> str:
    """In words; those that say nothing are mostly of time that has run out."""
    if isinstance(error, TimeoutError):
        return "the broker does not answer in time"
    return str(error) or type(error).__name__


async def end(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel until they have ended: before Python 3.12 `wait_for`, which the client uses, can lose a
    cancellation that comes together with a result."""
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=0.1)


def token(name: str) -> str:
    """Quote a name so that it is one token of a subject."""
    return quote(name, safe="").replace(".", "%2E").replace("~", "%7E")
