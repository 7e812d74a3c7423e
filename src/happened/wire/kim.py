"""`kim` messages as bytes: address, the direct predecessors as a vector (vectors.py), payload."""

from collections.abc import Iterable
from typing import Any

from ..ordering.causal.kim import KimMessage
from .envelope import encode_alike, read_single_kind_address
from .primitives import Encoded, Reader
from .vectors import read_vector, write_vector

MESSAGES = (KimMessage,)


def encode(messages: Iterable[Any]) -> list[Encoded]:
    return encode_alike(messages, _write_control)


def _write_control(out: bytearray, message: KimMessage) -> None:
    write_vector(out, message.direct, message.n, message.clock)


def decode(reader: Reader, max_processes: int) -> KimMessage:
    address = read_single_kind_address(reader, max_processes)
    direct = read_vector(reader, address.n, address.clock)
    return KimMessage(*address, direct, reader.take(reader.left))
