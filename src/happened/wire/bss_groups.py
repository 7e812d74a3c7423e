"""`bss-groups` messages as bytes.

    address  groups  group  vector …  payload

How many groups there are, which one it is for, and the vector of each (vectors.py).
"""

from collections.abc import Iterable
from typing import Any

from ..ordering.causal.bss import GroupsMessage
from .envelope import encode_alike, read_single_kind_address
from .primitives import Encoded, Reader, write_number
from .vectors import read_vector, write_vector

MESSAGES = (GroupsMessage,)


def encode(messages: Iterable[Any]) -> list[Encoded]:
    return encode_alike(messages, _write_control)


def _write_control(out: bytearray, message: GroupsMessage) -> None:
    write_number(out, len(message.pasts))
    write_number(out, message.group)
    for past in message.pasts:
        write_vector(out, past, message.n, message.clock)


def decode(reader: Reader, max_processes: int) -> GroupsMessage:
    address = read_single_kind_address(reader, max_processes)
    count = reader.number(reader.left + 1)  # a vector takes a byte at least
    group = reader.number(count)
    pasts = tuple(read_vector(reader, address.n, address.clock) for _ in range(count))
    return GroupsMessage(*address, group, pasts, reader.take(reader.left))
