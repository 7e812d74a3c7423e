"""The messages of `agreed` and `causal-total` as bytes.

address  number  timestamp  payload       phase 1; `number` counts its sender's messages to this receiver
name  by  timestamp                       phase 2
name  timestamp                           phase 3
"""

from collections.abc import Iterable
from typing import Any

from ..core.lanes import CLOCK_LIMIT
from ..ordering.total.three_phase import AgreedFinal, AgreedMessage, AgreedProposal
from .envelope import end, read_address, read_name, unknown, write_address, write_name, write_numbers
from .primitives import Encoded, Reader

MESSAGES = (AgreedMessage, AgreedProposal, AgreedFinal)
MESSAGE, PROPOSAL, FINAL = range(3)


def encode(messages: Iterable[Any]) -> list[Encoded]:
    return [_encode(message) for message in messages]


def _encode(message: AgreedMessage | AgreedProposal | AgreedFinal) -> Encoded:
    if isinstance(message, AgreedMessage):
        return Encoded(write_address(MESSAGE, message), write_numbers(message.number, message.timestamp))
    if isinstance(message, AgreedProposal):
        name = write_name(PROPOSAL, message.sender, message.clock)
        return Encoded(name, write_numbers(message.by, message.timestamp))
    return Encoded(write_name(FINAL, message.sender, message.clock), write_numbers(message.timestamp))


def decode(reader: Reader, max_processes: int) -> AgreedMessage | AgreedProposal | AgreedFinal:
    kind = reader.byte()
    if kind == MESSAGE:
        address = read_address(reader, max_processes)
        number, timestamp = reader.number(CLOCK_LIMIT), reader.number(CLOCK_LIMIT)
        return AgreedMessage(*address, number, timestamp, reader.take(reader.left))
    if kind not in (PROPOSAL, FINAL):
        raise unknown(kind)
    name = read_name(reader, max_processes)
    message: AgreedProposal | AgreedFinal
    if kind == PROPOSAL:
        message = AgreedProposal(*name, reader.number(max_processes), reader.number(CLOCK_LIMIT))
    else:
        message = AgreedFinal(*name, reader.number(CLOCK_LIMIT))
    end(reader)
    return message
