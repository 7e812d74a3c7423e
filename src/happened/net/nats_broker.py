"""What links ask of the broker: to publish in order, to keep receipts, and to read messages again.

Receipts   say what receivers have journaled: they show a node that its journal is an old copy.
    stream     STREAM-receipts, one message for each subject: the last
    subject    STREAM-receipts.to.from, published by `to`
    message    {"number": k, "to": incarnation, "from": incarnation, "life": of `from`}: `to` has journaled
               the frames of `from` up to link number k, which is of that life (lives.py)

A receiver publishes its receipt after it has journaled frames and before it tells the broker that their
messages can be deleted. So every frame ever published on a link is, at any time, in a message of the link's
stream or covered by the receipt. A node reads both before it first publishes. Its journal is an old copy
    if its peer, or the broker, has more of its frames than its journal knows, or
    if its own receipt covers more of the peer's frames than its journal knows.

Messages   A broker confirms what it has stored, not what was sent to it. With a key of the group and without
TLS below (nats_security.py), a receiver notices an altered message; but that is too late if the sender has
forgotten the message. So
    a sender reads each confirmed message again, and counts it as stored if it is there as it was sent, or if
    its receiver has a receipt for it; otherwise the sender publishes it again. A receiver that gets again
    what it has journaled publishes its receipt once more: the earlier receipt may have been altered;
    a receiver reads each message that it would refuse again, and takes the second reading if it is valid.
Bounds     one reading for each publication, of its size; OFTEN for a message that was altered in the stream,
           or that somebody else has sent.
Leaves out acknowledgements of the receiver that are altered into those of another message that it has in
           hand: if the receiver is killed before it journals that one, it is lost. Only TLS prevents this.
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
"""The errors of reading a message again, if no answer comes or the answer is altered too."""


class RenewedClient(Client):
    """A client that can be lost: either it has closed for good, as after any error that the broker reports,
    or answers fail to come."""

    def __init__(self) -> None:
        super().__init__()
        self.is_lost = asyncio.Event()

    async def lost(self) -> None:
        self.is_lost.set()


class Receipt(NamedTuple):
    number: int
    to: bytes  # the incarnation of the receiver, who published it
    sender: bytes  # the incarnation of the sender, as the receiver knows it
    life: bytes = b""  # the sender's life that numbered the last of those frames; empty: unknown


class Receipts:
    """The receipts of a pair of processes, in both directions; names are quoted as in subjects."""

    def __init__(self, jetstream: Any, stream: str, seal: Seal) -> None:
        self._jetstream, self._stream, self._seal = jetstream, stream, seal

    async def publish(self, to: str, sender: str, receipt: Receipt) -> None:
        """Raises an error of NATS, or TimeoutError, if the broker did not confirm the receipt."""
        said = {"number": receipt.number, "to": receipt.to.hex(), "from": receipt.sender.hex()}
        if receipt.life:
            said["life"] = receipt.life.hex()
        subject, body = f"{self._stream}.{to}.{sender}", json.dumps(said).encode()
        await self._jetstream.publish(subject, body, headers=self._seal.headers(subject, body) or None)

    async def last(self, to: str, sender: str) -> Receipt | None:
        """The last receipt; RemoteProtocolError if the message there is not a receipt of `to`."""
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
    """A message that the stream still has: of number `seq`, or the last one of a `subject`; else None."""
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
    """Publish the items that `following` returns, in order, a window of them at a time. Report each stored
    item, and whether it is the first since the last failure. Set `awake` when there may be more items."""
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
        except Exception as error:  # whatever the error, items that are not stored are published again
            for _, future in under_way:
                future.cancel()
            under_way.clear()
            window = 1
            failed(error)
            await asyncio.sleep(RETRY_SECONDS)


def receipts_of(stream: str) -> str:
    """The name of the stream of receipts beside a stream of links."""
    return f"{stream}-receipts"


def reason(error: Exception) -> str:
    """The error in words; an error without text is mostly a timeout."""
    if isinstance(error, TimeoutError):
        return "the broker does not answer in time"
    return str(error) or type(error).__name__


async def end(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel the tasks until they have ended: before Python 3.12 `wait_for`, which the client uses, can lose
    a cancellation that comes together with a result."""
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=0.1)


def token(name: str) -> str:
    """Quote a name so that it is one token of a subject."""
    return quote(name, safe="").replace(".", "%2E").replace("~", "%7E")
