"""The token of serialized sends on the wire (ordering/token.py).

    0xfc  version  JSON

    [1, process, number]                  a process asks for its turn
    [2, served, queue, gone, latest]      the token; `gone` is a set as a hexadecimal number

0xfc is not a version that the frame of a message can begin with (wire/__init__.py). `latest`, which the
protocol passes on with the right to send, consists of numbers and lists of numbers.

Bounds     a frame has at most MAX_FRAME bytes. Decoding hostile bytes raises RemoteProtocolError and no other
           error; the protocol itself checks that `latest` makes sense.
"""

import json
from typing import Any

from ..core.errors import RemoteProtocolError
from ..core.lanes import CLOCK_LIMIT
from ..ordering.token import TokenPassed, TokenRequest
from . import MAX_FRAME

MARK = 0xFC
"""The first byte of every token frame."""

VERSION = 1


def encode(message: TokenRequest | TokenPassed) -> bytes:
    said: list[Any] = [1, *message]
    if isinstance(message, TokenPassed):
        said = [2, message.served, message.queue, hex(message.gone), message.latest]
    return bytes((MARK, VERSION)) + json.dumps(said, separators=(",", ":")).encode()


def decode(frame: bytes) -> TokenRequest | TokenPassed:
    if len(frame) < 2 or frame[0] != MARK or len(frame) > MAX_FRAME:
        raise RemoteProtocolError("not a frame of the token: cut off, too long, or it begins otherwise")
    if frame[1] != VERSION:
        raise RemoteProtocolError(
            f"a frame of the token in version {frame[1]}, and this happened reads version {VERSION}; "
            "upgrade this node"
        )
    try:
        match json.loads(frame[2:].decode()):
            case [1, int(process), int(number)]:
                return TokenRequest(*_numbers([process, number]))
            case [2, list(served), list(queue), str(gone), latest]:
                told = tuple((process, number) for process, number in map(_numbers, served))
                return TokenPassed(told, tuple(_numbers(queue)), _set(gone), _tuples(latest))
            case said:
                raise ValueError(f"{said!r:.100}")
    except (ValueError, TypeError, RecursionError) as error:
        raise RemoteProtocolError(f"not a frame of the token: {error}") from error


def _numbers(values: list[Any]) -> list[int]:
    if not all(type(value) is int and 0 <= value < CLOCK_LIMIT for value in values):
        raise ValueError(f"{values!r:.100} are no numbers")
    return values


def _set(text: str) -> int:
    members = int(text, 16)
    if members < 0:
        raise ValueError(f"{text:.100} is no set")
    return members


def _tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_tuples, value))
    return _numbers([value])[0]
