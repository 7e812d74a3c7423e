"""The messages of `agreed` and `causal-total` as bytes.

address  number  timestamp  payload       phase 1; `number` counts its sender's messages to this receiver
name  by  timestamp                       phase 2
name  timestamp                           phase 3
sender 0  timestamp                       before which a process has delivered everything
sender 0  ended  known                    a report: a list of sender, clock, dests, timestamp, with its
                                          length before it; a final timestamp has the flag 1
sender 0  finals                          phase 3 of messages of others: a list of sender, clock, timestamp
"""

from collections.abc import Iterable
from typing import Any

from ..core.errors import RemoteProtocolError
from ..core.lanes import CLOCK_LIMIT
from ..ordering.total.three_phase_survival import (
    AgreedFinal,
    AgreedFinals,
    AgreedMessage,
    AgreedProposal,
    AgreedReport,
    AgreedSeen,
    Known,
)
from .envelope import end, read_address, read_name, unknown, write_address, write_name, write_numbers
from .primitives import Encoded, Reader

MESSAGES = (AgreedMessage, AgreedProposal, AgreedFinal, AgreedSeen, AgreedReport, AgreedFinals)
MESSAGE, PROPOSAL, FINAL, SEEN, REPORT, FINALS = range(6)


def encode(messages: Iterable[Any]) -> list[Encoded]:
    return [_encode(message) for message in messages]


def _encode(message: Any) -> Encoded:
    if isinstance(message, AgreedMessage):
        return Encoded(write_address(MESSAGE, message), write_numbers(message.number, message.timestamp))
    kind, body = _encode_control(message)
    return Encoded(write_name(kind, message.sender, message.clock), body)


def _encode_control(message: Any) -> tuple[int, bytes]:
    match message:
        case AgreedProposal():
            return PROPOSAL, write_numbers(message.by, message.timestamp)
        case AgreedFinal():
            return FINAL, write_numbers(message.timestamp)
        case AgreedSeen():
            return SEEN, write_numbers(message.timestamp)
        case AgreedReport():
            told = ((*k[:2], k.dests, k.timestamp << 1 | k.is_final) for k in message.known)
            numbers = (number for each in told for number in each)
            return REPORT, write_numbers(message.ended, len(message.known), *numbers)
        case _:
            numbers = (number for each in message.finals for number in each)
            return FINALS, write_numbers(len(message.finals), *numbers)


def decode(reader: Reader, max_processes: int) -> Any:
    kind = reader.byte()
    if kind == MESSAGE:
        address = read_address(reader, max_processes)
        number, timestamp = reader.number(CLOCK_LIMIT), reader.number(CLOCK_LIMIT)
        return AgreedMessage(*address, number, timestamp, reader.take(reader.left))
    if kind > FINALS:
        raise unknown(kind)
    name = read_name(reader, max_processes)
    message = _read_control(reader, max_processes, kind, name)
    end(reader)
    return message


def _read_control(reader: Reader, max_processes: int, kind: int, name: tuple[int, int]) -> Any:
    if kind == PROPOSAL:
        return AgreedProposal(*name, reader.number(max_processes), reader.number(CLOCK_LIMIT))
    if kind == FINAL:
        return AgreedFinal(*name, reader.number(CLOCK_LIMIT))
    sender, clock = name
    if clock:
        raise RemoteProtocolError(f"what process {sender} tells has clock {clock}; it names no message")
    if kind == SEEN:
        return AgreedSeen(sender, reader.number(CLOCK_LIMIT))
    if kind == FINALS:
        return AgreedFinals(
            sender,
            tuple((*read_name(reader, max_processes), reader.number(CLOCK_LIMIT)) for _ in _length(reader)),
        )
    ended = reader.bits(max_processes)
    return AgreedReport(sender, ended, tuple(_read_known(reader, max_processes) for _ in _length(reader)))


def _read_known(reader: Reader, max_processes: int) -> Known:
    name, dests = read_name(reader, max_processes), reader.bits(max_processes)
    timestamp = reader.number(CLOCK_LIMIT << 1)
    return Known(*name, dests, timestamp >> 1, bool(timestamp & 1))


def _length(reader: Reader) -> range:
    """The length of a list whose items take a byte at least."""
    return range(reader.number(reader.left + 1))
