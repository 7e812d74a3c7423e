"""What the broker keeps is read again, where bytes may be altered between it and a node.

A broker confirms what it has stored, not what was sent to it. With a key of the group and without TLS below
(nats_security.py), a receiver notices what was altered; but then it is too late, if the sender has forgotten
it. So
    a sender asks for each message that was confirmed, and takes it for stored if it is there as it was sent,
    or its receiver has a receipt of it; otherwise it is published again. A receiver that gets again what it
    has journaled leaves its receipt once more: that may be what was altered;
    a receiver asks for each message that it would refuse, and takes what it gets, if that is in order.

Bounds     one reading for each publication, of its size; OFTEN for a message that was altered in the stream,
           or that somebody else has sent.
Leaves out acknowledgements of the receiver that are altered into those of another message that it has in
           hand: if it is killed before it has journaled that one, it is lost. Only TLS keeps from this.
"""

from collections.abc import Sequence
from typing import Any

import nats.errors
import nats.js.errors
from nats.js import api

OFTEN = 3
"""Deliveries after which a message that nobody can read is dropped."""
FAILURES = (TimeoutError, OSError, ValueError, KeyError, nats.errors.Error)
"""What comes of reading again if there is no answer, or that is altered too."""


async def message_at(jetstream: Any, stream: str, number: int) -> api.RawStreamMsg | None:
    """The message of this number in a stream; None: it was deleted."""
    try:
        message: api.RawStreamMsg = await jetstream.get_msg(stream, number)
    except nats.js.errors.NotFoundError:
        return None
    message.data = message.data or b""
    return message


def is_protected(servers: Sequence[str], options: dict[str, Any]) -> bool:
    """Whether TLS keeps what goes to these servers as it is."""
    return "tls" in options or all(server.startswith("tls://") for server in servers)
