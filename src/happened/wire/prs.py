"""`prs` messages as bytes: address, direct predecessors by destination (columns of vectors.py), payload."""

from collections.abc import Iterable
from typing import Any

from ..ordering.causal.prs import PrsMessage
from .envelope import encode_alike, read_single_kind_address
from .primitives import Encoded, Reader
from .vectors import read_columns, write_columns

MESSAGES = (PrsMessage,)


def encode(messages: Iterable[Any]) -> list[Encoded]:
    return encode_alike(messages, _write_control)


def _write_control(out: bytearray, message: PrsMessage) -> None:
    write_columns(out, message.before, message.clock)


def decode(reader: Reader, max_processes: int) -> PrsMessage:
    address = read_single_kind_address(reader, max_processes)
    before = read_columns(reader, address.n, address.sender, address.clock)
    return PrsMessage(*address, before, reader.take(reader.left))
