"""The wire format of a message that is sent outside of all orders.

    0xfd  version  n  sender  clock  dests  payload

0xfd is not a version that the frame of a message can begin with (wire/__init__.py). Numbers and sets are
those of primitives.py; n is the number of processes that the sender knew. The frame is the same for every
destination and every process that forwards it.

Bounds     a frame has at most MAX_FRAME bytes; decoding hostile bytes raises RemoteProtocolError and no other
           error, in linear time.
"""

from typing import NamedTuple

from ..core.errors import LocalProtocolError, RemoteProtocolError
from ..core.lanes import CLOCK_LIMIT
from ..ordering.facts import MANY_PROCESSES
from . import MAX_FRAME
from .primitives import Reader, write_number, write_set

MARK = 0xFD
"""The first byte of every frame of an unordered message."""

VERSION = 1

_MOST_BESIDES = 32 + MANY_PROCESSES // 8
"""The maximal number of bytes in a frame besides the payload."""


class UnorderedMessage(NamedTuple):
    n: int
    sender: int
    clock: int  # sender and clock name the message
    dests: int  # bit set
    payload: bytes


def check_payload(payload: bytes) -> None:
    """Raise if no frame can hold this payload."""
    if not isinstance(payload, bytes):
        raise LocalProtocolError(f"a payload is bytes, not {type(payload).__name__}")
    if len(payload) > MAX_FRAME - _MOST_BESIDES:
        raise LocalProtocolError(f"a payload of {len(payload)} bytes does not fit a frame of {MAX_FRAME}")


def encode(message: UnorderedMessage) -> bytes:
    out = bytearray((MARK, VERSION))
    for number in (message.n, message.sender, message.clock):
        write_number(out, number)
    write_set(out, message.dests, message.n)
    return bytes(out) + message.payload


def decode(frame: bytes) -> UnorderedMessage:
    if len(frame) > MAX_FRAME:
        raise RemoteProtocolError(f"a frame of {len(frame)} bytes exceeds the limit of {MAX_FRAME}")
    reader = Reader(frame)
    if reader.byte() != MARK:
        raise RemoteProtocolError("not an unordered message: it begins with another byte")
    if (version := reader.byte()) != VERSION:
        raise RemoteProtocolError(
            f"an unordered message in version {version}, and this happened reads version {VERSION}; "
            "upgrade this node"
        )
    n = reader.number(MANY_PROCESSES + 1)
    sender, clock, dests = reader.number(n), reader.number(CLOCK_LIMIT), reader.set(n)
    if not clock or not dests:
        raise RemoteProtocolError(f"M({sender}, {clock}) lacks a clock or a destination")
    return UnorderedMessage(n, sender, clock, dests, reader.take(reader.left))
