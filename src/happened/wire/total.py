"""The codecs of the total orders: `sequencer`, and the three phases of `agreed` and `causal-total`.

A place in the sequencer's order is its numbers, each doubled, plus one if another follows; 0 means no place.
A message within another one is its length, then its frame without the head (wire/__init__.py).
"""

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
from ..ordering.total.three_phase_survival import (
    AgreedFinal,
    AgreedFinals,
    AgreedMessage,
    AgreedProposal,
    AgreedReport,
    AgreedSeen,
    Known,
)
from .envelope import Codec, Field, Kind
from .fields import ANYBODY, BITS, BYTES, CLOCK, NAME, behind, each, record
from .primitives import Reader, write_number


def _write_place(out: bytearray, place: Place, _: Any) -> None:
    last = len(place) - 1
    for i, number in enumerate(place or (0,)):
        write_number(out, number << 1 | (i < last))


def _read_place(reader: Reader, _: Any) -> Place:
    place, more = [], 1
    while more:
        number = reader.number(CLOCK_LIMIT << 1)
        place.append(number >> 1)
        more = number & 1
    return tuple(place) if place != [0] else ()


def _nested(kind: Kind) -> Field:
    """A field that holds a whole message inside another one."""

    def write(out: bytearray, message: Any, about: Any) -> None:
        (parts,) = kind.encode([message])
        BYTES.write(out, b"".join((*parts, message.payload)), about)

    def read(reader: Reader, about: Any) -> Any:
        inner = Reader(BYTES.read(reader, about))
        if inner.byte() != kind.number:
            raise RemoteProtocolError(
                "a message of the coordinators has something in it that is out of place"
            )
        return kind.decode(inner, about.most)

    return Field(write, read)


def _write_unsettled(out: bytearray, unsettled: tuple[Unsettled, ...], about: Any) -> None:
    """Write each message's place and the destinations that lack it, and then the requests."""
    _UNSETTLED_PLACES.write(out, tuple((each.place, each.missing) for each in unsettled), about)
    REQUESTS.write(out, tuple(each.request for each in unsettled), about)


def _read_unsettled(reader: Reader, about: Any) -> tuple[Unsettled, ...]:
    places, requests = _UNSETTLED_PLACES.read(reader, about), REQUESTS.read(reader, about)
    if len(requests) != len(places):
        raise RemoteProtocolError(f"a hand-over has {len(requests)} requests for {len(places)} places")
    return tuple(
        Unsettled(place, request, missing) for (place, missing), request in zip(places, requests, strict=True)
    )


PLACE = Field(_write_place, _read_place)
RECENT = each(record(PLACE, ANYBODY, CLOCK))
REQUEST = Kind(
    SequencerRequest,
    previous=behind(lambda _: CLOCK_LIMIT),
    epoch=CLOCK,
    reached=PLACE,
    check=(lambda m: 0 <= m.previous < m.clock, "comes after clock {previous}"),
)
ORDER = Kind(
    SequencerOrder,
    after=NAME,
    place=PLACE,
    epoch=CLOCK,
    check=(lambda m: m.place, "is ordered and has no place"),
)
REQUESTS = each(_nested(REQUEST))
_UNSETTLED_PLACES = each(record(PLACE, BITS))

SEQUENCER = Codec(
    REQUEST,
    ORDER,
    Kind(SequencerAnnouncement, epoch=CLOCK, coordinator=ANYBODY, place=PLACE),
    Kind(
        SequencerHandover,
        epoch=CLOCK,
        taken=each(NAME),
        tails=each(record(ANYBODY, NAME)),
        early=REQUESTS,
        place=CLOCK,
        unsettled=Field(_write_unsettled, _read_unsettled),
    ),
    Kind(SequencerSeen, place=PLACE, epoch=CLOCK),
    Kind(SequencerSettled, place=PLACE, requested=CLOCK),
    Kind(
        SequencerReport,
        ended=BITS,
        requested=CLOCK,
        last=NAME,
        place=PLACE,
        delivered=each(NAME),
        recent=RECENT,
        held=each(_nested(ORDER)),
        requests=REQUESTS,
    ),
    Kind(SequencerTestament, recent=RECENT, requests=REQUESTS),
)


def _write_known(out: bytearray, known: Known, _: Any) -> None:
    """Write the timestamp doubled, plus one if it is final."""
    for number in (*known[:2], known.dests, known.timestamp << 1 | known.is_final):
        write_number(out, number)


def _read_known(reader: Reader, about: Any) -> Known:
    (sender, clock), dests = NAME.read(reader, about), BITS.read(reader, about)
    timestamp = reader.number(CLOCK_LIMIT << 1)
    return Known(sender, clock, dests, timestamp >> 1, bool(timestamp & 1))


THREE_PHASE = Codec(
    Kind(AgreedMessage, number=CLOCK, timestamp=CLOCK),
    Kind(AgreedProposal, by=ANYBODY, timestamp=CLOCK),
    Kind(AgreedFinal, timestamp=CLOCK),
    Kind(AgreedSeen, timestamp=CLOCK),
    Kind(AgreedReport, ended=BITS, known=each(Field(_write_known, _read_known))),
    Kind(AgreedFinals, finals=each(record(ANYBODY, CLOCK, CLOCK))),
)
