"""Bytes <-> messages: versioned, self-delimiting, bounded.

A frame is a version byte, a protocol byte, the length of the rest, and the rest. Decoding hostile bytes
raises RemoteProtocolError and nothing else, in time and memory linear in the bytes given (and, for the log
of a message, in the square of the number of processes it declares, which `max_processes` bounds).
"""

from collections.abc import Iterable

from ..core.errors import LocalProtocolError, RemoteProtocolError
from ..ordering.causal.ks import KsMessage
from . import ks
from .primitives import Reader, write_number

__all__ = ["MAX_FRAME", "MAX_PROCESSES", "VERSION", "control_size", "decode", "encode", "encode_multicast"]

VERSION = 1
KS = 1

MAX_FRAME = 16 << 20
"""Bytes; a longer frame is refused when its length is read."""

MAX_PROCESSES = 1024


def encode(message: KsMessage) -> bytes:
    return encode_multicast([message])[0]


def encode_multicast(messages: Iterable[KsMessage]) -> list[bytes]:
    """The frames of one multicast's messages, whose common part is encoded once."""
    frames = []
    log, common = None, b""
    for message in messages:
        if not isinstance(message, KsMessage):
            raise LocalProtocolError(f"no wire format for {type(message).__name__}")
        if message.log is not log:
            log, common = message.log, ks.encode_common(message)
        body = ks.encode_header(message) + common + ks.encode_waits(message) + message.payload
        if len(body) > MAX_FRAME:
            raise LocalProtocolError(f"a frame of {len(body)} bytes exceeds the limit of {MAX_FRAME}")
        head = bytearray((VERSION, KS))
        write_number(head, len(body))
        frames.append(bytes(head) + body)
    return frames


def decode(
    data: bytes, *, max_processes: int = MAX_PROCESSES, max_frame: int = MAX_FRAME
) -> tuple[KsMessage, int]:
    """The message at the beginning of `data`, and how many bytes it took."""
    reader = Reader(data)
    version, protocol = reader.byte(), reader.byte()
    if version != VERSION:
        raise RemoteProtocolError(f"frame of version {version}; this is happened's wire version {VERSION}")
    if protocol != KS:
        raise RemoteProtocolError(f"frame of an unknown protocol, number {protocol}")
    length = reader.number(max_frame + 1)
    if length > reader.left:
        raise RemoteProtocolError(f"a frame of {length} bytes is announced and {reader.left} are there")
    start = len(data) - reader.left
    message = ks.decode(Reader(data, start, start + length), max_processes)
    return message, start + length


def control_size(message: KsMessage) -> int:
    """Bytes of control information: O_M as encoded, without addresses, clock and payload."""
    return len(ks.encode_common(message)) + len(ks.encode_waits(message))
