"""`sequencer` messages as bytes.

address  previous  epoch  reached  payload       a request; `previous` is how far back that one's clock is
address  sender  clock  place  epoch  payload    an order, and what comes just before it
sender 0  epoch  coordinator  place              an announcement
sender 0  epoch  taken  tails  early  place  unsettled  requests      a hand-over
sender 0  place  epoch                           how far a process is
sender 0  place  requested                       how far everybody is
sender 0  ended  requested  last  place  delivered  recent  held  requests      a report
sender 0  recent  requests                       what a process that leaves has requested

Lists have their length before them. A place is its numbers, each doubled, and one more if another follows; no
place is 0.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..core.errors import RemoteProtocolError
from ..core.lanes import CLOCK_LIMIT
from ..ordering.total.sequencer_office import (
    Place,
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
REQUEST, ORDER, ANNOUNCEMENT, HANDOVER, SEEN, SETTLED, REPORT, TESTAMENT = range(8)


def encode(messages: Iterable[Any]) -> list[Encoded]:
    return [_encode(message) for message in messages]


def _encode(message: Any) -> Encoded:
    if isinstance(message, SequencerRequest):
        numbers = write_numbers(message.clock - message.previous, message.epoch)
        return Encoded(write_address(REQUEST, message), numbers + _encode_place(message.reached))
    if isinstance(message, SequencerOrder):
        place = _encode_place(message.place) + write_numbers(message.epoch)
        return Encoded(write_address(ORDER, message), write_numbers(*message.after) + place)
    kind, body = _encode_control(message)
    return Encoded(write_name(kind, message.sender, message.clock), body)


def _encode_control(message: Any) -> tuple[int, bytes]:
    match message:
        case SequencerAnnouncement():
            numbers = write_numbers(message.epoch, message.coordinator)
            return ANNOUNCEMENT, numbers + _encode_place(message.place)
        case SequencerSeen():
            return SEEN, _encode_place(message.place) + write_numbers(message.epoch)
        case SequencerSettled():
            return SETTLED, _encode_place(message.place) + write_numbers(message.requested)
        case SequencerTestament():
            return TESTAMENT, _encode_places(message.recent) + _encode_nested(message.requests)
        case SequencerReport():
            return REPORT, _encode_report(message)
        case _:
            return HANDOVER, _encode_handover(message)


def _encode_place(place: Place) -> bytes:
    last = len(place) - 1
    return write_numbers(*(number << 1 | (i < last) for i, number in enumerate(place))) if place else b"\0"


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
        out += _encode_place(place) + write_numbers(missing)
    return bytes(out) + _encode_nested(each.request for each in message.unsettled)


def _encode_report(message: SequencerReport) -> bytes:
    out = bytearray(write_numbers(message.ended, message.requested, *message.last))
    out += _encode_place(message.place) + write_numbers(len(message.delivered))
    for sender, clock in message.delivered:
        out += write_numbers(sender, clock)
    return (
        bytes(out)
        + _encode_places(message.recent)
        + _encode_nested(message.held)
        + _encode_nested(message.requests)
    )


def _encode_places(recent: Sequence[tuple[Place, int, int]]) -> bytes:
    said = (_encode_place(place) + write_numbers(*name) for place, *name in recent)
    return write_numbers(len(recent)) + b"".join(said)


def _encode_nested(messages: Iterable[Any]) -> bytes:
    """Requests or orders within another message: how many, and each with its length before it."""
    frames = [b"".join((*_encode(message), message.payload)) for message in messages]
    return write_numbers(len(frames)) + b"".join(write_numbers(len(frame)) + frame for frame in frames)


def decode(reader: Reader, max_processes: int) -> Any:
    kind = reader.byte()
    if kind == REQUEST:
        return _read_request(reader, max_processes)
    if kind == ORDER:
        return _read_order(reader, max_processes)
    if kind > TESTAMENT:
        raise unknown(kind)
    sender, clock = read_name(reader, max_processes)
    if clock:
        raise RemoteProtocolError(
            f"an announcement of process {sender} has clock {clock}; it names no message"
        )
    message = _read_control(reader, max_processes, kind, sender)
    end(reader)
    return message


def _read_control(reader: Reader, max_processes: int, kind: int, sender: int) -> Any:
    if kind == TESTAMENT:
        recent = _read_places(reader, max_processes)
        return SequencerTestament(sender, recent, tuple(_read_nested(reader, max_processes, REQUEST)))
    if kind == SEEN:
        return SequencerSeen(sender, _read_place(reader), reader.number(CLOCK_LIMIT))
    if kind == SETTLED:
        return SequencerSettled(sender, _read_place(reader), reader.number(CLOCK_LIMIT))
    if kind == REPORT:
        return _read_report(reader, max_processes, sender)
    epoch = reader.number(CLOCK_LIMIT)
    if kind == HANDOVER:
        return _read_handover(reader, max_processes, sender, epoch)
    return SequencerAnnouncement(sender, epoch, reader.number(max_processes), _read_place(reader))


def _read_place(reader: Reader) -> Place:
    place, more = [], 1
    while more:
        number = reader.number(CLOCK_LIMIT << 1)
        place.append(number >> 1)
        more = number & 1
    return tuple(place) if place != [0] else ()


def _read_order(reader: Reader, max_processes: int) -> SequencerOrder:
    address = read_address(reader, max_processes)
    after = _read_key(reader, max_processes)
    place, epoch = _read_place(reader), reader.number(CLOCK_LIMIT)
    if not place:
        raise RemoteProtocolError(f"M({address.sender}, {address.clock}) is ordered and has no place")
    return SequencerOrder(*address, after, reader.take(reader.left), place, epoch)


def _read_key(reader: Reader, max_processes: int) -> tuple[int, int]:
    return reader.number(max_processes), reader.number(CLOCK_LIMIT)


def _read_request(reader: Reader, max_processes: int) -> SequencerRequest:
    address = read_address(reader, max_processes)
    previous, epoch = address.clock - reader.number(CLOCK_LIMIT), reader.number(CLOCK_LIMIT)
    if not 0 <= previous < address.clock:
        raise RemoteProtocolError(f"M({address.sender}, {address.clock}) comes after clock {previous}")
    reached = _read_place(reader)
    return SequencerRequest(*address, previous, epoch, reader.take(reader.left), reached)


def _read_handover(reader: Reader, max_processes: int, sender: int, epoch: int) -> SequencerHandover:
    taken = tuple(_read_key(reader, max_processes) for _ in _length(reader))
    tails = tuple((reader.number(max_processes), _read_key(reader, max_processes)) for _ in _length(reader))
    early = tuple(_read_nested(reader, max_processes, REQUEST))
    place = reader.number(CLOCK_LIMIT)
    places = [(_read_place(reader), reader.bits(max_processes)) for _ in _length(reader)]
    requests = list(_read_nested(reader, max_processes, REQUEST))
    if len(requests) != len(places):
        raise RemoteProtocolError(f"a hand-over has {len(requests)} requests for {len(places)} places")
    unsettled = tuple(
        Unsettled(at, request, missing) for (at, missing), request in zip(places, requests, strict=True)
    )
    return SequencerHandover(sender, epoch, taken, tails, early, place, unsettled)


def _read_report(reader: Reader, max_processes: int, sender: int) -> SequencerReport:
    ended, requested = reader.bits(max_processes), reader.number(CLOCK_LIMIT)
    last, place = _read_key(reader, max_processes), _read_place(reader)
    delivered = tuple(_read_key(reader, max_processes) for _ in _length(reader))
    recent = _read_places(reader, max_processes)
    held = tuple(_read_nested(reader, max_processes, ORDER))
    requests = tuple(_read_nested(reader, max_processes, REQUEST))
    return SequencerReport(sender, ended, requested, last, place, delivered, recent, held, requests)


def _read_places(reader: Reader, max_processes: int) -> tuple[tuple[Place, int, int], ...]:
    return tuple((_read_place(reader), *_read_key(reader, max_processes)) for _ in _length(reader))


def _length(reader: Reader) -> range:
    """The length of a list whose items take a byte at least."""
    return range(reader.number(reader.left + 1))


def _read_nested(reader: Reader, max_processes: int, kind: int) -> Iterator[Any]:
    read = _read_request if kind == REQUEST else _read_order
    for _ in _length(reader):
        inner = Reader(reader.take(reader.number(reader.left + 1)))
        if inner.byte() != kind:
            raise RemoteProtocolError(
                "a message of the coordinators has something in it that is out of place"
            )
        yield read(inner, max_processes)
