"""`sequencer` messages as bytes.

address  previous  epoch  payload                a request; `previous` is how far back that one's clock is
address  sender  clock  payload                  an order, and what comes just before it; without a place
sender 0  epoch  coordinator                     an announcement without a place
sender 0  epoch  coordinator  place              an announcement
sender 0  epoch  taken  tails  early             a hand-over: three lists, each with its length before it
address  sender  clock  place  epoch  payload    an order with its place
sender 0  epoch  taken  tails  early  place  unsettled  requests      a hand-over with places
sender 0  place  epoch                           how far a process is
sender 0  place  requested                       how far everybody is
sender 0  recent  requests                       what a process that leaves has requested
sender 0  ended  requested  last  delivered  recent  held  requests      a report

Orders, announcements and hand-overs without places were written by versions up to 0.3.0, and are only read.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..core.errors import RemoteProtocolError
from ..core.lanes import CLOCK_LIMIT
from ..ordering.total.sequencer_messages import (
    SequencerAnnouncement,
    SequencerHandover,
    SequencerOrder,
    SequencerReport,
    SequencerRequest,
    SequencerSeen,
    SequencerSettled,
    SequencerTestament,
    Unsettled,
)
from .envelope import end, read_address, read_name, unknown, write_address, write_name, write_numbers
from .primitives import Encoded, Reader

MESSAGES = (
    SequencerRequest,
    SequencerOrder,
    SequencerAnnouncement,
    SequencerHandover,
    SequencerSeen,
    SequencerSettled,
    SequencerReport,
    SequencerTestament,
)
REQUEST, ORDER, ANNOUNCEMENT, HANDOVER = range(4)
PLACED_ORDER, PLACED_HANDOVER, SEEN, SETTLED, REPORT, TESTAMENT, PLACED_ANNOUNCEMENT = range(4, 11)
CONTROL = (ANNOUNCEMENT, HANDOVER, PLACED_HANDOVER, SEEN, SETTLED, REPORT, TESTAMENT, PLACED_ANNOUNCEMENT)


def encode(messages: Iterable[Any]) -> list[Encoded]:
    return [_encode(message) for message in messages]


def _encode(message: Any) -> Encoded:
    if isinstance(message, SequencerRequest):
        back = message.clock - message.previous
        return Encoded(write_address(REQUEST, message), write_numbers(back, message.epoch))
    if isinstance(message, SequencerOrder):
        numbers = write_numbers(*message.after, message.place, message.epoch)
        return Encoded(write_address(PLACED_ORDER, message), numbers)
    kind, body = _encode_control(message)
    return Encoded(write_name(kind, message.sender, message.clock), body)


def _encode_control(message: Any) -> tuple[int, bytes]:
    match message:
        case SequencerAnnouncement():
            return PLACED_ANNOUNCEMENT, write_numbers(message.epoch, message.coordinator, message.place)
        case SequencerSeen():
            return SEEN, write_numbers(message.place, message.epoch)
        case SequencerSettled():
            return SETTLED, write_numbers(message.place, message.requested)
        case SequencerTestament():
            return TESTAMENT, _encode_places(message.recent) + _encode_nested(message.requests)
        case SequencerReport():
            return REPORT, _encode_report(message)
        case _:
            return PLACED_HANDOVER, _encode_handover(message)


def _encode_handover(message: SequencerHandover) -> bytes:
    out = bytearray(write_numbers(message.epoch, len(message.taken)))
    for sender, clock in message.taken:
        out += write_numbers(sender, clock)
    out += write_numbers(len(message.tails))
    for destination, (sender, clock) in message.tails:
        out += write_numbers(destination, sender, clock)
    out += _encode_nested(message.early)
    out += write_numbers(message.place, len(message.unsettled))
    for place, _, missing in message.unsettled:
        out += write_numbers(place, missing)
    return bytes(out) + _encode_nested(each.request for each in message.unsettled)


def _encode_report(message: SequencerReport) -> bytes:
    out = bytearray(write_numbers(message.ended, message.requested, *message.last, len(message.delivered)))
    for sender, clock in message.delivered:
        out += write_numbers(sender, clock)
    return (
        bytes(out)
        + _encode_places(message.recent)
        + _encode_nested(message.held)
        + _encode_nested(message.requests)
    )


def _encode_places(recent: Sequence[tuple[int, int, int]]) -> bytes:
    return write_numbers(len(recent)) + b"".join(write_numbers(*each) for each in recent)


def _encode_nested(messages: Iterable[Any]) -> bytes:
    """Requests or orders within another message: how many, and each with its length before it."""
    frames = [b"".join((*_encode(message), message.payload)) for message in messages]
    return write_numbers(len(frames)) + b"".join(write_numbers(len(frame)) + frame for frame in frames)


def decode(reader: Reader, max_processes: int) -> Any:
    kind = reader.byte()
    if kind == REQUEST:
        return _read_request(reader, max_processes)
    if kind in (ORDER, PLACED_ORDER):
        return _read_order(reader, max_processes, placed=kind == PLACED_ORDER)
    if kind not in CONTROL:
        raise unknown(kind)
    sender, clock = read_name(reader, max_processes)
    if clock:
        raise RemoteProtocolError(
            f"an announcement of process {sender} has clock {clock}; it names no message"
        )
    message: Any
    if kind == TESTAMENT:
        recent = _read_places(reader, max_processes)
        message = SequencerTestament(sender, recent, tuple(_read_nested(reader, max_processes, REQUEST)))
        end(reader)
        return message
    first = reader.number(1 << max_processes if kind == REPORT else CLOCK_LIMIT)
    if kind in (ANNOUNCEMENT, PLACED_ANNOUNCEMENT):
        coordinator = reader.number(max_processes)
        place = reader.number(CLOCK_LIMIT) if kind == PLACED_ANNOUNCEMENT else 0
        message = SequencerAnnouncement(sender, first, coordinator, place)
    elif kind == SEEN:
        message = SequencerSeen(sender, first, reader.number(CLOCK_LIMIT))
    elif kind == SETTLED:
        message = SequencerSettled(sender, first, reader.number(CLOCK_LIMIT))
    elif kind == REPORT:
        message = _read_report(reader, max_processes, sender, first)
    else:
        message = _read_handover(reader, max_processes, sender, first, placed=kind == PLACED_HANDOVER)
    end(reader)
    return message


def _read_order(reader: Reader, max_processes: int, *, placed: bool) -> SequencerOrder:
    address = read_address(reader, max_processes)
    after = _read_key(reader, max_processes)
    place, epoch = (reader.number(CLOCK_LIMIT), reader.number(CLOCK_LIMIT)) if placed else (0, 0)
    return SequencerOrder(*address, after, reader.take(reader.left), place, epoch)


def _read_key(reader: Reader, max_processes: int) -> tuple[int, int]:
    return reader.number(max_processes), reader.number(CLOCK_LIMIT)


def _read_request(reader: Reader, max_processes: int) -> SequencerRequest:
    address = read_address(reader, max_processes)
    previous, epoch = address.clock - reader.number(CLOCK_LIMIT), reader.number(CLOCK_LIMIT)
    if not 0 <= previous < address.clock:
        raise RemoteProtocolError(f"M({address.sender}, {address.clock}) comes after clock {previous}")
    return SequencerRequest(*address, previous, epoch, reader.take(reader.left))


def _read_handover(
    reader: Reader, max_processes: int, sender: int, epoch: int, *, placed: bool
) -> SequencerHandover:
    taken = tuple(_read_key(reader, max_processes) for _ in _length(reader))
    tails = tuple((reader.number(max_processes), _read_key(reader, max_processes)) for _ in _length(reader))
    early = tuple(_read_nested(reader, max_processes, REQUEST))
    if not placed:
        return SequencerHandover(sender, epoch, taken, tails, early)
    place = reader.number(CLOCK_LIMIT)
    places = [(reader.number(CLOCK_LIMIT), reader.number(1 << max_processes)) for _ in _length(reader)]
    requests = list(_read_nested(reader, max_processes, REQUEST))
    if len(requests) != len(places):
        raise RemoteProtocolError(f"a hand-over has {len(requests)} requests for {len(places)} places")
    unsettled = tuple(
        Unsettled(place, request, missing) for (place, missing), request in zip(places, requests, strict=True)
    )
    return SequencerHandover(sender, epoch, taken, tails, early, place, unsettled)


def _read_report(reader: Reader, max_processes: int, sender: int, ended: int) -> SequencerReport:
    requested, last = reader.number(CLOCK_LIMIT), _read_key(reader, max_processes)
    delivered = tuple(_read_key(reader, max_processes) for _ in _length(reader))
    recent = _read_places(reader, max_processes)
    held = tuple(_read_nested(reader, max_processes, PLACED_ORDER))
    requests = tuple(_read_nested(reader, max_processes, REQUEST))
    return SequencerReport(sender, ended, requested, last, delivered, recent, held, requests)


def _read_places(reader: Reader, max_processes: int) -> tuple[tuple[int, int, int], ...]:
    return tuple((reader.number(CLOCK_LIMIT), *_read_key(reader, max_processes)) for _ in _length(reader))


def _length(reader: Reader) -> range:
    """The length of a list whose items take a byte at least."""
    return range(reader.number(reader.left + 1))


def _read_nested(reader: Reader, max_processes: int, kind: int) -> Iterator[Any]:
    for _ in _length(reader):
        inner = Reader(reader.take(reader.number(reader.left + 1)))
        if inner.byte() != kind:
            raise RemoteProtocolError(
                "a message of the coordinators has something in it that is out of place"
            )
        if kind == REQUEST:
            yield _read_request(inner, max_processes)
        else:
            yield _read_order(inner, max_processes, placed=True)
