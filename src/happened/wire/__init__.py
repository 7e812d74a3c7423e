"""Converts messages to bytes and back: versioned, self-delimiting, bounded frames.

A frame is a version byte, a protocol byte, two lengths (of the rest, and of the control information in it),
and the rest: the message's address, its control information, its payload. Code that counts control
information reads that length as the sender wrote it. Decoding hostile bytes raises only RemoteProtocolError,
in time and memory linear in the given bytes, with two exceptions: sets may take `primitives.EXPANDED` bytes
per frame, and the log of a message the square of the number of processes that it declares.

A codec is what a protocol's facts name (`Facts.wire`): a module or, as `module:attribute`, an object in it,
either declared (envelope.py) or written by hand. It has

    MESSAGES                             the types it encodes
    encode(messages of one multicast)    their address and control information
    decode(reader, max_processes)        a message; it takes the payload too
    decode_plain(data, start, end, max_processes)    optional, fast: None for unusual frames
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

from ..core.effects import Send
from ..core.errors import LocalProtocolError, RemoteProtocolError
from ..ordering import declared
from ..ordering.facts import Facts
from ..ordering.registry import when_unregistered
from .primitives import Encoded, Reader, write_number

__all__ = [
    "MAX_FRAME",
    "VERSION",
    "control_length",
    "control_size",
    "control_sizes",
    "decode",
    "encode",
    "encode_multicast",
    "encode_sends",
    "load",
    "named_codec",
]

VERSION = 1

MAX_FRAME = 16 << 20
"""In bytes; decoding refuses a longer frame as soon as it has read its length."""


class Loaded(NamedTuple):
    messages: tuple[type, ...]
    encode: Callable[[Sequence[Any]], list[Encoded]]
    decode: Callable[[Reader, int], Any]
    decode_plain: Callable[[bytes, int, int, int], Any] | None
    most_processes: int


_codecs: dict[int, Loaded] = {}
_number_of: dict[type, int] = {}


def codecs() -> dict[int, Loaded]:
    """Every codec by its frame number, including those of protocols registered since the last call."""
    for facts in declared():
        load(facts)
    return _codecs


def load(facts: Facts) -> None:
    """Load a protocol's codec now, so that its first message does not wait for an import."""
    if facts.wire is not None and facts.wire.number not in _codecs:
        found = named_codec(facts)
        plain, most = getattr(found, "decode_plain", None), facts.assumes.most_processes
        codec = Loaded(tuple(found.MESSAGES), found.encode, found.decode, plain, most)
        _codecs[facts.wire.number] = codec
        _number_of.update(dict.fromkeys(codec.messages, facts.wire.number))


def named_codec(facts: Facts) -> Any:
    """The codec that a protocol's facts name; the protocol must have a wire format."""
    assert facts.wire is not None
    module, _, attribute = facts.wire.codec.partition(":")
    return getattr(import_module(module), attribute) if attribute else import_module(module)


def _forget(facts: Facts) -> None:
    """Drop a protocol's codec: another protocol may get its number, and until then its frames are unknown."""
    codec = _codecs.pop(facts.wire.number, None) if facts.wire is not None else None
    for kind in codec.messages if codec is not None else ():
        del _number_of[kind]


when_unregistered(_forget)


def _codec(number: int) -> Loaded:
    for facts in declared() if number not in _codecs else ():
        if facts.wire is not None and facts.wire.number == number:
            load(facts)
    if number not in _codecs:
        raise RemoteProtocolError(f"frame of an unknown protocol, number {number}")
    return _codecs[number]


def _number(kind: type) -> int:
    if kind not in _number_of:
        codecs()
    if kind not in _number_of:
        raise LocalProtocolError(f"no wire format for {kind.__name__}")
    return _number_of[kind]


def encode(message: Any) -> bytes:
    return encode_multicast([message])[0]


def encode_sends(sends: Sequence[Send[Any]]) -> list[bytes]:
    """The frames of one multicast's messages, one per send."""
    return encode_multicast([message for _, message in sends])


def encode_multicast(messages: Sequence[Any], payloads: Sequence[bytes] | None = None) -> list[bytes]:
    """The frames of one multicast's messages; their common parts are encoded once.

    `payloads` replace the messages' own payloads.
    """
    frames: list[bytes] = []
    encoded, last = _parts(messages), None
    for place, (message, parts) in enumerate(zip(messages, encoded, strict=True)):
        payload = message.payload if payloads is None else payloads[place]
        if last is not None and message is last[0] and payload is last[1]:
            frames.append(frames[-1])  # the same frame for all destinations is stored once
            continue
        last = message, payload
        address, control = parts
        length = len(address) + len(control) + len(payload)
        if length > MAX_FRAME:
            raise LocalProtocolError(f"a frame of {length} bytes exceeds the limit of {MAX_FRAME}")
        frames.append(
            b"".join((_head(_number_of[type(message)], length, len(control)), address, control, payload))
        )
    return frames


@lru_cache(maxsize=4096)
def _head(protocol: int, length: int, control: int) -> bytes:
    head = bytearray((VERSION, protocol))
    write_number(head, length)
    write_number(head, control)
    return bytes(head)


def control_length(frame: bytes) -> int:
    """Bytes of control information as a frame's head states it, also behind a tracker's mark."""
    at = 2 if frame[0] == VERSION else 4
    while frame[at] > 0x7F:
        at += 1
    length = shift = 0
    while (byte := frame[at := at + 1]) > 0x7F:
        length |= (byte & 0x7F) << shift
        shift += 7
    return length | byte << shift


def control_size(message: Any) -> int:
    """Bytes of encoded control information, without address and payload."""
    return control_sizes([message])[0]


def control_sizes(messages: Sequence[Any]) -> list[int]:
    """The `control_size` of each message of one multicast."""
    return [len(parts.control) for parts in _parts(messages)]


def _parts(messages: Sequence[Any]) -> list[Encoded]:
    if not messages:
        return []
    kind = type(messages[0])
    if len(set(map(type, messages))) == 1:
        return _codecs[_number_of.get(kind) or _number(kind)].encode(messages)
    return [parts for message in messages for parts in _parts([message])]


def decode(data: bytes, *, max_processes: int | None = None, max_frame: int = MAX_FRAME) -> tuple[Any, int]:
    """The message at the beginning of `data`, and how many bytes it took.

    `max_processes` is the protocol's own limit unless given.
    """
    # A usual frame has a length of one or two bytes, a control length of one byte, and a codec with a fast
    # path. An arrival costs little more than its decoding, so a Reader, or one more call, would cost much.
    try:
        codec, start, length = _codecs[data[1]], 4, data[2]
        if length >= 0x80:
            length, start = length & 0x7F | data[3] << 7, 5
        if data[0] == VERSION and data[start - 2] < 0x80 and data[start - 1] <= min(length, 0x7F):
            end = start + length
            if codec.decode_plain is not None and end <= len(data) and length <= max_frame:
                message = codec.decode_plain(data, start, end, max_processes or codec.most_processes)
                if message is not None:
                    return message, end
    except (IndexError, KeyError):
        pass  # unusual or malformed: read it again below
    return _decode_any(data, max_processes, max_frame)


def _decode_any(data: bytes, max_processes: int | None, max_frame: int) -> tuple[Any, int]:
    reader = Reader(data)
    version, protocol = reader.byte(), reader.byte()
    if version != VERSION:
        raise RemoteProtocolError(
            f"a frame of version {version}, and this happened reads version {VERSION}; upgrade this node"
        )
    codec = _codec(protocol)
    length = reader.number(max_frame + 1)
    control = reader.number(max_frame + 1)
    if control > length:
        raise RemoteProtocolError(f"a frame of {length} bytes cannot have {control} of control information")
    if length > reader.left:
        raise RemoteProtocolError(f"a frame of {length} bytes is announced and {reader.left} are there")
    end = reader.end_after(length)
    return codec.decode(reader, max_processes or codec.most_processes), end
