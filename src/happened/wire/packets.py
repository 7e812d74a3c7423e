"""A packet on a broadcast medium: frames that are sent once for several links, numbered on each link.

    version  sender  incarnation       the link's sender, and which life of it (net/transport.py)
    count                              the number of destinations
    smallest                           first link number of any destination
    tag  number - smallest             per destination: its tag, its first frame's link number
    length frame …                     to the end: consecutive on every one of these links

A tag, a part of the hash of a name, identifies a destination. Names are never reused, so neither are tags.
Two names of a system have the same tag with a probability of 2⁻⁴⁸.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from ..core.errors import RemoteProtocolError
from .primitives import Reader, write_number

VERSION = 1
TAG_BYTES = 6
MOST_NUMBER = 1 << 62


class Packet(NamedTuple):
    sender: str
    incarnation: bytes
    first: dict[bytes, int]  # tag -> link number of the first frame
    frames: list[bytes]

    def numbered(self, name: str) -> list[tuple[int, bytes]]:
        """The frames with their link numbers at the process of this name; [] if it is no destination."""
        first = self.first.get(tag(name))
        return [] if first is None else list(enumerate(self.frames, first))


@lru_cache(maxsize=4096)
def tag(name: str) -> bytes:
    return sha256(name.encode()).digest()[:TAG_BYTES]


def encode(sender: str, incarnation: bytes, first: Mapping[str, int], frames: Sequence[bytes]) -> bytes:
    """The packet as bytes; `first` is, by name of destination, the link number of the first frame there."""
    out = bytearray((VERSION,))
    for text in (sender.encode(), incarnation):
        write_number(out, len(text))
        out += text
    smallest = min(first.values())
    write_number(out, len(first))
    write_number(out, smallest)
    for name, number in first.items():
        out += tag(name)
        write_number(out, number - smallest)
    for frame in frames:
        write_number(out, len(frame))
        out += frame
    return bytes(out)


def decode(data: bytes) -> Packet:
    """The packet in these bytes; RemoteProtocolError if they are none."""
    reader = Reader(data)
    version = reader.byte()
    if version != VERSION:
        raise RemoteProtocolError(
            f"a packet of version {version}, and this happened reads version {VERSION}; upgrade this node"
        )
    try:
        sender = reader.take(reader.number()).decode()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"a packet's sender is not a name: {error}") from error
    incarnation = reader.take(reader.number())
    count = reader.number(reader.left // TAG_BYTES + 1)
    smallest = reader.number(MOST_NUMBER)
    first = {}
    for _ in range(count):
        who = reader.take(TAG_BYTES)
        first[who] = smallest + reader.number(MOST_NUMBER)
    frames = []
    while reader.left:
        frames.append(reader.take(reader.number()))
    if not first or not frames or not smallest:
        raise RemoteProtocolError("a packet without a destination, a link number or a frame")
    return Packet(sender, incarnation, first, frames)
