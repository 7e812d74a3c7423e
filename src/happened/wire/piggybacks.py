"""What a tracker adds to a message on the wire: its protocol's number, and a piggyback per destination.

    frame    0xfe  number of the tracking protocol  a message's frame (wire/__init__.py)
    payload  n  count  { destination  size  piggyback } × count  the application's payload

No message's frame begins with 0xfe. Numbers in a payload are LEB128 (primitives.py); n is the number of
processes that the sender knew, needed to read piggybacks. Destinations increase.

Piggybacks are in the payload, since every ordering protocol brings the payload to each destination, whichever
process forwards it. Where no process forwards, `only_for` leaves each copy only its own piggyback.

Bounds     decoding hostile bytes raises RemoteProtocolError and no other error, in linear time.
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
    """A payload and the piggybacks that travel with it; `n`: the number of processes known to its sender."""

    n: int
    piggybacks: Mapping[int, bytes]  # by destination
    payload: bytes


def mark(number: int, frame: bytes) -> bytes:
    """Marks a message's frame: its payload has piggybacks of the tracking protocol of this number."""
    return bytes((MARK, number)) + frame


def unmark(frame: bytes) -> tuple[int, bytes]:
    """Returns the number of the tracking protocol, and the message's own frame."""
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
    """The payload with the piggyback for `to` and no other."""
    n, piggybacks, payload = open_sealed(data)
    return seal(Envelope(n, {to: piggybacks[to]} if to in piggybacks else {}, payload))
