"""`acknowledged` messages as bytes: an address and nothing else, then the payload."""

from collections.abc import Iterable
from typing import Any

from ..core.errors import RemoteProtocolError
from ..ordering.causal.acknowledged import AcknowledgedMessage, Acknowledgement
from .envelope import end, read_address, read_name, unknown, write_address, write_name
from .primitives import Encoded, Reader

MESSAGES = (AcknowledgedMessage, Acknowledgement)
MESSAGE, ACKNOWLEDGEMENT = range(2)


def encode(messages: Iterable[Any]) -> list[Encoded]:
    return [
        Encoded(
            write_address(MESSAGE, message)
            if isinstance(message, AcknowledgedMessage)
            else write_name(ACKNOWLEDGEMENT, message.sender, message.clock),
            b"",
        )
        for message in messages
    ]


def decode(reader: Reader, max_processes: int) -> AcknowledgedMessage | Acknowledgement:
    kind = reader.byte()
    if kind == MESSAGE:
        sender, clock, n, dests = read_address(reader, max_processes)
        if dests.bit_count() != 1:
            raise RemoteProtocolError(f"M({sender}, {clock}) has several destinations in a unicast protocol")
        return AcknowledgedMessage(sender, clock, n, dests.bit_length() - 1, reader.take(reader.left))
    if kind != ACKNOWLEDGEMENT:
        raise unknown(kind)
    message = Acknowledgement(*read_name(reader, max_processes))
    end(reader)
    return message
