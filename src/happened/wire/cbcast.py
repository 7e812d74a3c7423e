"""`cbcast` messages as bytes.

    address
    processes  stable …                          the stable clock of each
    messages  (sender clock dests length payload) …   those it carries, causes before effects
    payload

An acknowledgement is the name of its message, then who acknowledges it.
"""

from collections.abc import Iterable
from typing import Any

from ..core.errors import RemoteProtocolError
from ..core.lanes import CLOCK_LIMIT
from ..ordering.causal.cbcast import CbcastAcknowledgement, CbcastMessage
from ..ordering.messages import WholeMessage
from .envelope import end, read_address, read_name, unknown, write_address, write_name, write_numbers
from .primitives import Encoded, Reader, write_number, write_set

MESSAGES = (CbcastMessage, CbcastAcknowledgement)
MESSAGE, ACKNOWLEDGEMENT = range(2)


def encode(messages: Iterable[Any]) -> list[Encoded]:
    """The parts of one multicast's messages, which are the same for all: encoded once."""
    encoded: list[Encoded] = []
    latest: Any = None
    for message in messages:
        encoded.append(encoded[-1] if message is latest else _encode(message))
        latest = message
    return encoded


def _encode(message: CbcastMessage | CbcastAcknowledgement) -> Encoded:
    if isinstance(message, CbcastAcknowledgement):
        return Encoded(write_name(ACKNOWLEDGEMENT, message.sender, message.clock), write_numbers(message.by))
    out = bytearray(write_numbers(len(message.stable), *message.stable, len(message.past)))
    for carried in message.past:
        write_number(out, carried.sender)
        write_number(out, carried.clock)
        write_set(out, carried.dests, message.n)
        write_number(out, len(carried.payload))
        out += carried.payload
    return Encoded(write_address(MESSAGE, message), bytes(out))


def decode(reader: Reader, max_processes: int) -> CbcastMessage | CbcastAcknowledgement:
    kind = reader.byte()
    if kind == MESSAGE:
        address = read_address(reader, max_processes)
        stable = tuple(reader.number(CLOCK_LIMIT) for _ in range(reader.number(address.n + 1)))
        past = tuple(_read_carried(reader, address.n) for _ in range(reader.number(reader.left + 1)))
        return CbcastMessage(*address, stable, past, reader.take(reader.left))
    if kind != ACKNOWLEDGEMENT:
        raise unknown(kind)
    sender, clock = read_name(reader, max_processes)
    message = CbcastAcknowledgement(sender, clock, reader.number(max_processes))
    end(reader)
    return message


def _read_carried(reader: Reader, n: int) -> WholeMessage:
    sender, clock, dests = reader.number(n), reader.number(CLOCK_LIMIT), reader.set(n)
    if not clock or not dests:
        raise RemoteProtocolError(f"a carried M({sender}, {clock}) lacks a clock or a destination")
    return WholeMessage(sender, clock, dests, reader.take(reader.number(reader.left + 1)))
