"""A message that was sent outside of all orders, on the wire.

    0xfd  version  n  sender  clock  dests  payload

The first byte is no version of a message's frame (wire/__init__.py). Numbers and sets are those of
primitives.py; n is how many processes the sender knew. It is the same for every destination and for everybody
who passes it on.

Bounds     a frame has at most MAX_FRAME bytes; decoding hostile bytes raises RemoteProtocolError and nothing
           else, in time linear in them.
"""

from typing import NamedTuple

from ..core.errors import LocalProtocolError, RemoteProtocolError
from ..core.lanes import CLOCK_LIMIT
from ..ordering.facts import MANY_PROCESSES
from . import MAX_FRAME
from .primitives import Reader, write_number, write_set

MARK = 0xFD
"""The first byte of every such frame."""

VERSION = 1

_MOST_BESIDES = 32 + MANY_PROCESSES // 8
"""Bytes that a frame has beside the payload, at most."""


class UnorderedMessage(NamedTuple):
    n: int
    sender: int
    clock: int  # with the sender, its name
    dests: int  # bit set
    payload: bytes


def check_payload(payload: bytes) -> None:
    """Refuse a payload that no frame can hold."""
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
