"""`sequencer` messages as bytes.

address  previous  epoch  payload                a request; `previous` is how far back that one's clock is
address  sender  clock  payload                  an order, and what comes just before it
sender 0  epoch  coordinator                     an announcement
sender 0  epoch  taken  tails  early             a hand-over: three lists, each with its length before it
"""

from collections.abc import Iterable
from typing import Any

from ..core.errors import RemoteProtocolError
from ..core.lanes import CLOCK_LIMIT
from ..ordering.total.sequencer_messages import (
    SequencerAnnouncement,
    SequencerHandover,
    SequencerOrder,
    SequencerRequest,
)
from .envelope import end, read_address, read_name, unknown, write_address, write_name, write_numbers
from .primitives import Encoded, Reader

MESSAGES = (SequencerRequest, SequencerOrder, SequencerAnnouncement, SequencerHandover)
REQUEST, ORDER, ANNOUNCEMENT, HANDOVER = range(4)


def encode(messages: Iterable[Any]) -> list[Encoded]:
    return [_encode(message) for message in messages]


def _encode(message: Any) -> Encoded:
    if isinstance(message, SequencerRequest):
        back = message.clock - message.previous
        return Encoded(write_address(REQUEST, message), write_numbers(back, message.epoch))
    if isinstance(message, SequencerOrder):
        return Encoded(write_address(ORDER, message), write_numbers(*message.after))
    if isinstance(message, SequencerAnnouncement):
        address = write_name(ANNOUNCEMENT, message.sender, message.clock)
        return Encoded(address, write_numbers(message.epoch, message.coordinator))
    return Encoded(write_name(HANDOVER, message.sender, message.clock), _encode_handover(message))


def _encode_handover(message: SequencerHandover) -> bytes:
    out = bytearray(write_numbers(message.epoch, len(message.taken)))
    for sender, clock in message.taken:
        out += write_numbers(sender, clock)
    out += write_numbers(len(message.tails))
    for destination, (sender, clock) in message.tails:
        out += write_numbers(destination, sender, clock)
    out += write_numbers(len(message.early))
    for request in message.early:
        address, control = _encode(request)
        out += write_numbers(len(address) + len(control) + len(request.payload))
        out += address + control + request.payload
    return bytes(out)


def decode(reader: Reader, max_processes: int) -> Any:
    kind = reader.byte()
    if kind == REQUEST:
        return _read_request(reader, max_processes)
    if kind == ORDER:
        address = read_address(reader, max_processes)
        after = (reader.number(max_processes), reader.number(CLOCK_LIMIT))
        return SequencerOrder(*address, after, reader.take(reader.left))
    if kind not in (ANNOUNCEMENT, HANDOVER):
        raise unknown(kind)
    sender, clock = read_name(reader, max_processes)
    if clock:
        raise RemoteProtocolError(
            f"an announcement of process {sender} has clock {clock}; it names no message"
        )
    epoch = reader.number(CLOCK_LIMIT)
    message: SequencerAnnouncement | SequencerHandover
    if kind == ANNOUNCEMENT:
        message = SequencerAnnouncement(sender, epoch, reader.number(max_processes))
    else:
        message = _read_handover(reader, max_processes, sender, epoch)
    end(reader)
    return message


def _read_request(reader: Reader, max_processes: int) -> SequencerRequest:
    address = read_address(reader, max_processes)
    previous, epoch = address.clock - reader.number(CLOCK_LIMIT), reader.number(CLOCK_LIMIT)
    if not 0 <= previous < address.clock:
        raise RemoteProtocolError(f"M({address.sender}, {address.clock}) comes after clock {previous}")
    return SequencerRequest(*address, previous, epoch, reader.take(reader.left))


def _read_handover(reader: Reader, max_processes: int, sender: int, epoch: int) -> SequencerHandover:
    taken = tuple(
        (reader.number(max_processes), reader.number(CLOCK_LIMIT))
        for _ in range(reader.number(reader.left + 1))
    )
    tails = tuple(
        (reader.number(max_processes), (reader.number(max_processes), reader.number(CLOCK_LIMIT)))
        for _ in range(reader.number(reader.left + 1))
    )
    early = []
    for _ in range(reader.number(reader.left + 1)):
        inner = Reader(reader.take(reader.number(reader.left + 1)))
        if inner.byte() != REQUEST:
            raise RemoteProtocolError("a hand-over passes on something that is not a request")
        early.append(_read_request(inner, max_processes))
    return SequencerHandover(sender, epoch, taken, tails, tuple(early))
