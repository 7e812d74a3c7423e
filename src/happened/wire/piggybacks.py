"""What a tracker adds to messages on the wire: which tracker it is, and a piggyback for each destination.

    frame    0xfe  number of the tracking protocol  a message's frame (wire/__init__.py)
    payload  n  count  { destination  size  piggyback } × count  the application's payload

The first byte is no version of a message's frame. Numbers in a payload are LEB128 (primitives.py); n is how
many processes the sender knew, by which piggybacks are read. Destinations increase.

Piggybacks stand in the payload, since that is what every ordering protocol brings to each destination,
whoever passes it on. Where nobody does, `only_for` leaves each copy the one that it needs.

Bounds     decoding hostile bytes raises RemoteProtocolError and nothing else, in time linear in them.
Leaves out what a piggyback means: tracking/piggyback.py.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ..core.errors import RemoteProtocolError
from ..ordering.facts import MANY_PROCESSES
from .primitives import Reader, write_number

MARK = 0xFE
"""The first byte of every frame of a message that carries piggybacks."""


class Envelope(NamedTuple):
    """A payload and what travels with it: `n` processes were known where it was sent."""

    n: int
    piggybacks: Mapping[int, bytes]  # by destination
    payload: bytes


def mark(number: int, frame: bytes) -> bytes:
    """The frame of a message whose payload has piggybacks of the tracking protocol of this number."""
    return bytes((MARK, number)) + frame


def unmark(frame: bytes) -> tuple[int, bytes]:
    """The number of the tracking protocol, and the message's own frame."""
    if len(frame) < 2 or frame[0] != MARK:
        raise RemoteProtocolError("not a frame with piggybacks: it is cut off, or begins with another byte")
    return frame[1], frame[2:]


def seal(envelope: Envelope) -> bytes:
    out = bytearray()
    write_number(out, envelope.n)
    write_number(out, len(envelope.piggybacks))
    for to, piggyback in sorted(envelope.piggybacks.items()):
        write_number(out, to)
        write_number(out, len(piggyback))
        out += piggyback
    return bytes(out) + envelope.payload


def open_sealed(data: bytes) -> Envelope:
    reader = Reader(data)
    n = reader.number(MANY_PROCESSES + 1)
    piggybacks: dict[int, bytes] = {}
    last = -1
    for _ in range(reader.number(n + 1)):
        to = reader.number(n)
        if to <= last:
            raise RemoteProtocolError(f"piggybacks for processes {last} and {to} are not in order")
        piggybacks[to] = reader.take(reader.number(reader.left + 1))
        last = to
    return Envelope(n, piggybacks, reader.take(reader.left))


def only_for(to: int, data: bytes) -> bytes:
    """The same payload with the piggyback for `to` alone."""
    n, piggybacks, payload = open_sealed(data)
    return seal(Envelope(n, {to: piggybacks[to]} if to in piggybacks else {}, payload))
