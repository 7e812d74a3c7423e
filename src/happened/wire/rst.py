"""`rst` messages as bytes: address, the matrix column by column (vectors.py), payload."""

from collections.abc import Iterable
from typing import Any

from ..ordering.causal.rst import RstMessage
from .envelope import encode_alike, read_single_kind_address
from .primitives import Encoded, Reader
from .vectors import read_columns, write_columns

MESSAGES = (RstMessage,)


def encode(messages: Iterable[Any]) -> list[Encoded]:
    return encode_alike(messages, _write_control)


def _write_control(out: bytearray, message: RstMessage) -> None:
    write_columns(out, message.sent, message.clock)


def decode(reader: Reader, max_processes: int) -> RstMessage:
    address = read_single_kind_address(reader, max_processes)
    sent = read_columns(reader, address.n, address.sender, address.clock)
    return RstMessage(*address, sent, reader.take(reader.left))
