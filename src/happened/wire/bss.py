"""`bss` messages as bytes: address, the vector (vectors.py), payload."""

from collections.abc import Iterable
from typing import Any

from ..ordering.causal.bss import BssMessage
from .envelope import encode_alike, read_single_kind_address
from .primitives import Encoded, Reader
from .vectors import read_vector, write_vector

MESSAGES = (BssMessage,)


def encode(messages: Iterable[Any]) -> list[Encoded]:
    return encode_alike(messages, _write_control)


def _write_control(out: bytearray, message: BssMessage) -> None:
    write_vector(out, message.past, message.n, message.clock)


def decode(reader: Reader, max_processes: int) -> BssMessage:
    address = read_single_kind_address(reader, max_processes)
    past = read_vector(reader, address.n, address.clock)
    return BssMessage(*address, past, reader.take(reader.left))
