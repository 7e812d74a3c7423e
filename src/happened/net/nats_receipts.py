"""What receivers have journaled, kept by the broker: by this a node on an old copy of its journal finds out.

    stream     STREAM-receipts, one message for each subject: the last
    subject    STREAM-receipts.to.from, published by `to`
    message    {"number": k, "to": incarnation, "from": incarnation, "life": of `from`}: `to` has journaled
               the frames of `from` up to link number k, which is of that life (lives.py)

A receiver publishes its receipt after it has journaled frames and before it tells the broker that their
messages can be deleted. So what was ever published on a link is, at any time, in a message of the link's
stream or covered by the receipt. A node reads both when it starts, before it publishes:
    its peer, or the broker, has more of its frames than its journal knows: that is an old copy;
    its own receipt tells of more of the peer's frames than its journal knows: the same.
"""

import json
from typing import Any, NamedTuple
from urllib.parse import unquote

import nats.errors
import nats.js.errors
from nats.js import api

from ..core.errors import RemoteProtocolError
from .nats_security import Seal


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
        message = await last_message(self._jetstream, self._stream, subject)
        if message is None:
            return None
        self._seal.check(unquote(to), message.headers, subject, message.data or b"")
        try:
            said = json.loads(message.data or b"")
            number = said["number"]
            if type(number) is not int or number < 0:
                raise ValueError("no number")
            to_, from_, life = said["to"], said["from"], said.get("life", "")
            return Receipt(number, bytes.fromhex(to_), bytes.fromhex(from_), bytes.fromhex(life))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise RemoteProtocolError(f"not a receipt: {error!r}") from None


async def last_message(jetstream: Any, stream: str, subject: str) -> api.RawStreamMsg | None:
    """The last message on a subject that the stream still has."""
    try:
        message: api.RawStreamMsg = await jetstream.get_last_msg(stream, subject)
    except nats.js.errors.NotFoundError:
        return None
    return message
