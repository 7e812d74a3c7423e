"""Bytes <-> messages: versioned, self-delimiting, bounded.

A frame is a version byte, a protocol byte, the length of the rest, and the rest: the message's address,
its control information, its payload. Decoding hostile bytes raises RemoteProtocolError and nothing else,
in time and memory linear in the bytes given, but for a bound of its own (and, for the log of a message, in
the square of the number of processes it declares): sets may come to `primitives.EXPANDED` bytes a frame.

One file per protocol; each has MESSAGES (the types it encodes), `encode(messages of one multicast)` and
`decode(reader, max_processes)`, which takes the payload too.
"""

from collections.abc import Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any

from ..core.errors import LocalProtocolError, RemoteProtocolError
from . import (
    acknowledged,
    bss,
    bss_groups,
    cbcast,
    chain_two,
    flooding,
    histories,
    incomplete,
    kim,
    ks,
    phased,
    prs,
    pruning,
    psync,
    rst,
    sequencer,
    serialized_broadcast,
    serialized_multicast,
    ses,
    three_phase,
    topological,
    zoned_ks,
)
from .primitives import Encoded, Reader, write_number

__all__ = [
    "MANY_PROCESSES",
    "MAX_FRAME",
    "MAX_PROCESSES",
    "VERSION",
    "control_size",
    "control_sizes",
    "decode",
    "encode",
    "encode_multicast",
    "most_processes",
]

VERSION = 1

# Numbers are part of the format: never reused, never changed.
CODECS: dict[int, ModuleType] = {
    ks.NUMBER: ks,
    10: pruning,
    11: rst,
    12: prs,
    13: ses,
    14: bss,
    15: bss_groups,
    16: kim,
    17: chain_two,
    18: serialized_broadcast,
    19: serialized_multicast,
    30: acknowledged,
    31: cbcast,
    32: psync,
    33: phased,
    34: flooding,
    35: sequencer,
    36: three_phase,
    60: histories,
    61: topological,
    70: zoned_ks,
    71: incomplete,
}
_NUMBER_OF = {message: number for number, codec in CODECS.items() for message in codec.MESSAGES}

MAX_FRAME = 16 << 20
"""Bytes; a longer frame is refused when its length is read."""

MAX_PROCESSES = 1024
"""Of a computation whose messages may carry a vector or a row about everybody."""

MANY_PROCESSES = 65_536
"""Of one whose messages carry entries about the few that matter: zones, separators."""

_LOCAL = {60: "histories", 61: "topological", 70: "zoned-ks"}


def most_processes(protocol: str) -> int:
    """How many processes the messages of an ordering protocol can tell apart."""
    return MANY_PROCESSES if protocol in _LOCAL.values() else MAX_PROCESSES


def encode(message: Any) -> bytes:
    return encode_multicast([message])[0]


def encode_multicast(messages: Sequence[Any]) -> list[bytes]:
    """The frames of one multicast's messages; what they have in common is worked out once."""
    frames = []
    for message, parts in zip(messages, _parts(messages), strict=True):
        address, control = parts
        payload = message.payload
        length = len(address) + len(control) + len(payload)
        if length > MAX_FRAME:
            raise LocalProtocolError(f"a frame of {length} bytes exceeds the limit of {MAX_FRAME}")
        frames.append(b"".join((_head(_NUMBER_OF[type(message)], length), address, control, payload)))
    return frames


@lru_cache(maxsize=4096)
def _head(protocol: int, length: int) -> bytes:
    head = bytearray((VERSION, protocol))
    write_number(head, length)
    return bytes(head)


def control_size(message: Any) -> int:
    """Bytes of control information as encoded: without address and payload."""
    return control_sizes([message])[0]


def control_sizes(messages: Sequence[Any]) -> list[int]:
    """The same for the messages of one multicast."""
    return [len(parts.control) for parts in _parts(messages)]


def _parts(messages: Sequence[Any]) -> list[Encoded]:
    if not messages:
        return []
    kinds = {type(message) for message in messages}
    unknown = kinds - _NUMBER_OF.keys()
    if unknown:
        raise LocalProtocolError(f"no wire format for {', '.join(kind.__name__ for kind in unknown)}")
    if len(kinds) == 1:
        return list(CODECS[_NUMBER_OF[kinds.pop()]].encode(messages))
    return [parts for message in messages for parts in _parts([message])]


def decode(data: bytes, *, max_processes: int | None = None, max_frame: int = MAX_FRAME) -> tuple[Any, int]:
    """The message at the beginning of `data`, and how many bytes it took.

    `max_processes` is the protocol's own unless given.
    """
    usual = _decode_usual(data, max_processes or MAX_PROCESSES, max_frame)
    if usual is not None:
        return usual
    reader = Reader(data)
    version, protocol = reader.byte(), reader.byte()
    if version != VERSION:
        raise RemoteProtocolError(f"frame of version {version}; this is happened's wire version {VERSION}")
    if protocol not in CODECS:
        raise RemoteProtocolError(f"frame of an unknown protocol, number {protocol}")
    length = reader.number(max_frame + 1)
    if length > reader.left:
        raise RemoteProtocolError(f"a frame of {length} bytes is announced and {reader.left} are there")
    end = reader.end_after(length)
    if max_processes is None:
        max_processes = MANY_PROCESSES if protocol in _LOCAL else MAX_PROCESSES
    return CODECS[protocol].decode(reader, max_processes), end


def _decode_usual(data: bytes, max_processes: int, max_frame: int) -> tuple[Any, int] | None:
    """The same for a frame of two bytes' length and a protocol that has a short way; None: take the long one.

    An arrival costs little more than its decoding, and a Reader would be a third of that.
    """
    try:
        if data[0] != VERSION or data[1] != ks.NUMBER or data[2] < 0x80 or data[3] >= 0x80:
            return None
        length = data[2] & 0x7F | data[3] << 7
        end = 4 + length
        if end > len(data) or length > max_frame:
            return None
        message = ks.decode_plain(data, 4, end, max_processes)
    except IndexError:
        return None
    return None if message is None else (message, end)
