"""The bytes that TCP links carry after the handshake.

    record   length of the sealed rest (4 bytes), then the rest: frames, sealed together
    frame    length of the body (4 bytes), number (8 bytes), body

Frames with number 0 are for the link itself: a JSON object {"hello": …}, {"have": k} or {"refused": why,
"number": k}; an empty one is a sign of life. Other numbers are link numbers. Numbers are big-endian. A hello
comes with a checksum over all that is said with it, {"check": c}, lest a flipped bit be remembered for good.
"""

import json
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from ..core.errors import RemoteProtocolError
from .lives import Life
from .terms import Terms
from .transport import Hello

LENGTH = struct.Struct(">I")
FRAME = struct.Struct(">IQ")
RECORD_BYTES = 256 << 10
"""About how many bytes go into one record; more only if a single frame is longer."""
RECORD_BODIES = RECORD_BYTES - RECORD_BYTES // 8
"""About how many of these are for the bodies of frames; the rest is for their heads."""
MAX_CONTROL = 1 << 20
"""The longest control frame, in bytes."""
MAX_HELLO_MEMBERS = 4096
MAX_LIVES = 1024
MAX_TOKEN = 32
"""The longest name of an incarnation or life, in bytes."""


class Records:
    """Splits a stream into whole records of at most `limit` bytes, and keeps the beginning of the next."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        buffer = self._buffer
        buffer += data
        position = 0
        try:
            while len(buffer) - position >= 4:
                (length,) = LENGTH.unpack_from(buffer, position)
                if length > self._limit:
                    raise RemoteProtocolError(
                        f"a record of {length} bytes exceeds the limit of {self._limit}"
                    )
                end = position + 4 + length
                if end > len(buffer):
                    return
                record = bytes(memoryview(buffer)[position + 4 : end])
                position = end
                yield record
        finally:
            del buffer[:position]


def frames_in(record: bytes, limit: int) -> list[tuple[int, bytes]]:
    """The numbers and bodies of a record's frames; RemoteProtocolError unless it consists of whole frames."""
    frames = []
    position, end = 0, len(record)
    unpack, size = FRAME.unpack_from, FRAME.size
    while position < end:
        if end - position < size:
            raise RemoteProtocolError("a record ends within a frame's head")
        length, number = unpack(record, position)
        position += size
        if length > limit or length > end - position:
            raise RemoteProtocolError(f"a frame of {length} bytes is announced; the limit is {limit}")
        frames.append((number, record[position : position + length]))
        position += length
    return frames


def fit_record(frames: list[tuple[int, bytes]], longest: int) -> list[tuple[int, bytes]]:
    """The first frames that fit into one record for a peer that takes frames of `longest` bytes; none if the
    first is longer. Heads count, so that many short frames do not make a record too long for the peer."""
    room = RECORD_BYTES
    for place, (_, frame) in enumerate(frames):
        size = len(frame)
        if size > longest or room < 0:
            return frames[:place]
        room -= size + FRAME.size
    return frames


def frames_out(frames: Iterable[tuple[int, bytes]]) -> bytes:
    parts = []
    pack = FRAME.pack
    for number, frame in frames:
        parts.append(pack(len(frame), number))
        parts.append(frame)
    return b"".join(parts)


def control(**said: Any) -> bytes:
    """A frame for the link itself; without arguments, a sign of life."""
    body = json.dumps(said, separators=(",", ":")).encode() if said else b""
    return FRAME.pack(len(body), 0) + body


def read_control(body: bytes) -> dict[str, Any]:
    if not body:
        return {}
    try:
        said = json.loads(body) if len(body) <= MAX_CONTROL else None
    except (ValueError, RecursionError) as error:
        raise RemoteProtocolError(f"not a control frame: {error}") from error
    if not isinstance(said, dict):
        raise RemoteProtocolError("not a control frame: no JSON object, or too long")
    return said


def with_check(**said: Any) -> dict[str, Any]:
    """The contents of a control frame with a hello, and a checksum over them."""
    return said | {"check": _checksum(said)}


def _checksum(said: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(said, sort_keys=True).encode())


def checked_hello(said: dict[str, Any]) -> Hello:
    """The hello in a control frame; RemoteProtocolError if its checksum is wrong."""
    hello = hello_from_json(said["hello"])
    rest = {key: value for key, value in said.items() if key != "check"}
    if said.get("check") != _checksum(rest):
        raise RemoteProtocolError("a hello was damaged on its way: its checksum is wrong")
    return hello


def hello_to_json(hello: Hello) -> dict[str, Any]:
    said = hello._asdict() | {key: getattr(hello, key).hex() for key in ("incarnation", "knows", "heard")}
    said["terms"] = hello.terms.to_json()
    said["lives"] = [[name.hex(), last] for name, last in hello.lives]
    return said


def hello_from_json(said: Any) -> Hello:
    try:
        members = tuple(said["members"])
        if len(members) > MAX_HELLO_MEMBERS or not all(isinstance(name, str) for name in members):
            raise ValueError("members are names")
        incarnation, knows = bytes.fromhex(said["incarnation"]), bytes.fromhex(said["knows"])
        heard, lives = bytes.fromhex(said["heard"]), _lives_from_json(said["lives"])
        if not incarnation or not isinstance(said["protocol"], str):
            raise ValueError("no incarnation or protocol")
        if max(map(len, (incarnation, knows, heard))) > MAX_TOKEN:
            raise ValueError("the name of an incarnation or life is too long")
        tracker, topology = said["tracker"], said["topology"]
        if not isinstance(tracker, str):
            raise ValueError("a tracker is a name")
        if not isinstance(topology, str) or len(topology) > 128:
            raise ValueError("the topology is told by its digest")
        confirmed, has = number_in(said, "confirmed"), number_in(said, "has")
        who = incarnation, knows, said["protocol"], members, tracker, topology
        return Hello(*who, confirmed, Terms.from_json(said["terms"]), lives, heard, has)
    except (KeyError, TypeError, ValueError) as error:
        raise RemoteProtocolError(f"not a hello: {error!r}") from error


def _lives_from_json(said: Any) -> tuple[Life, ...]:
    if not isinstance(said, list) or len(said) > MAX_LIVES:
        raise ValueError("lives are a list")
    lives = tuple((bytes.fromhex(name), last) for name, last in said)
    if any(type(last) is not int or len(name) > MAX_TOKEN for name, last in lives):
        raise ValueError("lives have names, and begin after a frame")
    return lives


def number_in(said: dict[str, Any], key: str) -> int:
    number = said.get(key)
    if type(number) is not int or number < 0:
        raise RemoteProtocolError(f"{key!r} is {number!r}, not a link number")
    return number
