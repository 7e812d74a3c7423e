"""`flooding` messages as bytes: an address, the relay, the payload."""

from collections.abc import Iterable
from typing import Any

from ..ordering.causal.flooding import FloodingMessage
from .envelope import encode_alike, read_single_kind_address
from .primitives import Encoded, Reader, write_number

MESSAGES = (FloodingMessage,)


def encode(messages: Iterable[Any]) -> list[Encoded]:
    return encode_alike(messages, lambda out, message: write_number(out, message.relay))


def decode(reader: Reader, max_processes: int) -> FloodingMessage:
    address = read_single_kind_address(reader, max_processes)
    return FloodingMessage(*address, reader.number(address.n), reader.take(reader.left))
