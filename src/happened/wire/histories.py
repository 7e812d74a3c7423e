"""`histories` messages as bytes: an address, entries, the payload."""

from collections.abc import Iterable
from typing import Any

from ..ordering.causal.histories import HistoryMessage
from .entries import read_entries, write_entries
from .envelope import encode_alike, read_single_kind_address
from .primitives import Encoded, Reader

MESSAGES = (HistoryMessage,)


def encode(messages: Iterable[Any]) -> list[Encoded]:
    return encode_alike(messages, _write_timestamp)


def _write_timestamp(out: bytearray, message: HistoryMessage) -> None:
    write_entries(out, message.entries, message.clock, message.n)


def decode(reader: Reader, max_processes: int) -> HistoryMessage:
    address = read_single_kind_address(reader, max_processes)
    entries = read_entries(reader, address.clock, address.n)
    return HistoryMessage(*address, entries, reader.take(reader.left))
