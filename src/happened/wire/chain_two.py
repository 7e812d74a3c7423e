"""`chain-two` messages as bytes.

    address  receiver  vector  vector  payload

What the sender sent to each process, and what it knows to be due at the receiver (vectors.py).
"""

from collections.abc import Iterable
from typing import Any

from ..core.errors import RemoteProtocolError
from ..ordering.causal.chain_two import ChainTwoMessage
from .envelope import read_single_kind_address, write_address
from .primitives import Encoded, Reader, write_number
from .vectors import read_vector, write_vector

MESSAGES = (ChainTwoMessage,)


def encode(messages: Iterable[Any]) -> list[Encoded]:
    return [Encoded(_encode_address(message), _encode_control(message)) for message in messages]


def _encode_address(message: ChainTwoMessage) -> bytes:
    out = bytearray(write_address(0, message))
    write_number(out, message.receiver)
    return bytes(out)


def _encode_control(message: ChainTwoMessage) -> bytes:
    out = bytearray()
    write_vector(out, message.sent, message.n, message.clock)
    write_vector(out, message.due, message.n, message.clock)
    return bytes(out)


def decode(reader: Reader, max_processes: int) -> ChainTwoMessage:
    address = read_single_kind_address(reader, max_processes)
    sender, clock, n, dests = address
    receiver = reader.number(n)
    if not dests >> receiver & 1:
        raise RemoteProtocolError(f"M({sender}, {clock}) is a copy for process {receiver}, not a destination")
    sent, due = read_vector(reader, n, clock), read_vector(reader, n, clock)
    return ChainTwoMessage(*address, receiver, sent, due, reader.take(reader.left))
