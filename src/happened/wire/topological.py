"""`topological` messages as bytes.

address  relay  hop  next  watching     what it is and where it goes, as application and as hop message
entries
payload
"""

from collections.abc import Iterable
from typing import Any

from ..core.lanes import CLOCK_LIMIT
from ..ordering.causal.topological import HopMessage
from .entries import read_entries, write_entries
from .envelope import encode_alike, read_single_kind_address, write_numbers
from .primitives import Encoded, Reader, write_set

MESSAGES = (HopMessage,)


def encode(messages: Iterable[Any]) -> list[Encoded]:
    messages = list(messages)
    parts = encode_alike(messages, _write_timestamp)
    return [
        Encoded(address + _hop(message), control)
        for message, (address, control) in zip(messages, parts, strict=True)
    ]


def _hop(message: HopMessage) -> bytes:
    out = bytearray(write_numbers(message.relay, message.hop))
    write_set(out, message.next, message.n)
    write_set(out, message.watching, message.n)
    return bytes(out)


def _write_timestamp(out: bytearray, message: HopMessage) -> None:
    write_entries(out, message.entries, message.hop, message.n)


def decode(reader: Reader, max_processes: int) -> HopMessage:
    address = read_single_kind_address(reader, max_processes)
    relay, hop = reader.number(address.n), reader.number(CLOCK_LIMIT)
    onto, watching = reader.set(address.n), reader.set(address.n)
    entries = read_entries(reader, hop, address.n)
    return HopMessage(*address, relay, hop, onto, watching, entries, reader.take(reader.left))
