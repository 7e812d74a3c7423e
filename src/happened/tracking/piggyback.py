"""What trackers tell and remember, and the encoding of piggybacks: some entries of a vector, as bits.

An encoding is one number, least significant bits first, in as few bytes as hold it:

    form 2 bits   whether columns follow 1 bit   width 6 bits
    FULL: nothing   BITMAP: n bits, one per entry present   LIST: the number of entries, then their indices
    the values, `width` bits each (as many as the largest value needs)
    with columns, n more bits for each value

A subset of a vector needs no wider values than the whole, so without columns no message is longer than a full
vector plus n bits. Both sides must know n, the number of processes that the sender knew. `View` and
`PiggybackEntry` are the notation of Hélary, Melideo & Raynal (2000) in stories (`happened play --tracker`).
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from ..core.errors import RemoteProtocolError
from ..core.lanes import CLOCK_LIMIT, Lanes

FULL, BITMAP, LIST = range(3)
FORM_BITS, FLAG_BITS, WIDTH_BITS = 2, 1, 6
HEAD_BITS = FORM_BITS + FLAG_BITS + WIDTH_BITS

EventId = tuple[int, int]
"""(process, seq) of a relevant event."""


@dataclass(frozen=True, slots=True)
class Timestamp:
    """What a protocol tells about one relevant event; a field is None if the protocol cannot tell it."""

    process: int
    seq: int
    counts: tuple[int, ...] | None = None
    dependencies: tuple[int, ...] | None = None  # a dependency vector: at most `counts`, equal at `process`
    immediate: frozenset[EventId] | None = None
    scalar: int | None = None
    null: bool = False  # created by the protocol, not by the application

    def vector(self) -> tuple[int, ...] | None:
        """Per process, how many of its relevant events are in the causal past, this event included."""
        return self.counts

    def predecessors(self) -> frozenset[EventId] | None:
        """The immediate predecessors: the edges of the transitive reduction that end here."""
        return self.immediate


class View(NamedTuple):
    title: str  # "VC", or "DV" for a dependency vector
    counts: tuple[int, ...]
    immediate: tuple[int, ...] | None = None  # IP, if immediate predecessors are tracked
    knows: tuple[tuple[int, ...], ...] | None = None  # the rows of M, if there is a matrix
    on_its_way: tuple[tuple[int, ...], ...] | None = None  # on FIFO links, rows of values in transit

    def entry(self, k: int) -> tuple[int, int | None]:
        """VC[k], and IP[k] if it is kept."""
        return self.counts[k], self.immediate[k] if self.immediate is not None else None

    def lines(self) -> list[tuple[str, str]]:
        told = [(self.title, row(self.counts))]
        if self.immediate is not None:
            told.append(("IP", row(self.immediate)))
        if self.knows is not None:
            told.append(("M", " ".join(map(row, self.knows))))
        if self.on_its_way is not None:
            told.append(("sent", " ".join(map(row, self.on_its_way))))
        return told


class PiggybackEntry(NamedTuple):
    """One entry of a piggyback."""

    process: int
    value: int  # VC[process]
    immediate: int | None = None
    column: tuple[int, ...] | None = None  # its column of M, in the primed protocols

    def __str__(self) -> str:
        told = [str(self.process), str(self.value)]
        told += [] if self.immediate is None else [str(self.immediate)]
        told += [] if self.column is None else [row(self.column)]
        return f"({','.join(told)})"

    @property
    def entry(self) -> tuple[int, int | None]:
        return self.value, self.immediate


def row(numbers: tuple[int, ...]) -> str:
    return f"[{' '.join(map(str, numbers))}]"


class Piggyback(NamedTuple):
    """Some entries of a packed vector; in primed protocols, with a set of processes for each (`columns`)."""

    geometry: Lanes
    present: int  # bit 0 of lane k is one: entry k is carried
    values: int  # lane k; zero where absent
    columns: int | None = None  # lane k: the processes that may lack this value; zero where absent
    forced: Timestamp | None = None

    @property
    def n(self) -> int:
        return self.geometry.n

    @property
    def entries(self) -> int:
        return self.present.bit_count()

    @property
    def bits(self) -> int:
        n, entries = self.n, self.entries
        each = self._width() + (n if self.columns is not None else 0)
        return HEAD_BITS + _index_size(n, entries) + entries * each

    def items(self) -> list[tuple[int, int]]:
        """The (process, value) pairs of the piggyback."""
        carried = self.geometry.unpack(self.present)
        values = self.geometry.unpack(self.values)
        return [(k, value) for k, value in enumerate(values) if carried[k]]

    def encode(self) -> bytes:
        n, width, items = self.n, self._width(), self.items()
        out = BitWriter()
        form = _form(n, len(items))
        out.write(form, FORM_BITS)
        out.write(self.columns is not None, FLAG_BITS)
        out.write(width, WIDTH_BITS)
        if form == BITMAP:
            out.write(sum(1 << k for k, _ in items), n)
        elif form == LIST:
            out.write(len(items), n.bit_length())
            for k, _ in items:
                out.write(k, _place_bits(n))
        for _, value in items:
            out.write(value, width)
        if self.columns is not None:
            columns = self.geometry.unpack(self.columns)
            for k, _ in items:
                out.write(columns[k], n)
        return out.to_bytes()

    def _width(self) -> int:
        return max(self.geometry.unpack(self.values), default=0).bit_length()


def decode(data: bytes, geometry: Lanes, *, columns: bool = False, n: int | None = None) -> Piggyback:
    """The piggyback in these bytes, with these lanes; RemoteProtocolError if the bytes encode none.

    If the sender knew only n processes, the later ones may lack all its values.
    """
    n = known_to_sender(n, geometry.n)
    reader = BitReader(data)
    form = reader.read(FORM_BITS)
    if reader.read(FLAG_BITS) != columns:
        raise RemoteProtocolError(f"a piggyback {'without' if columns else 'with'} columns of the matrix")
    width = reader.read(WIDTH_BITS)
    places = _places(reader, form, n)
    values, sets = [0] * geometry.n, [0] * geometry.n
    for k in places:
        values[k] = reader.read(width)
        if values[k] >= CLOCK_LIMIT - 1:  # a lane must still hold the next value
            raise RemoteProtocolError(f"a piggyback has the value {values[k]}, which no count reaches")
    for k in places if columns else ():
        sets[k] = reader.read(n) | geometry.members >> n << n
    reader.finish()
    present = sum(1 << geometry.width * k for k in places)
    return Piggyback(geometry, present, geometry.pack(values), geometry.pack(sets) if columns else None)


def known_to_sender(n: int | None, known: int) -> int:
    """The number of processes that a piggyback is about; RemoteProtocolError if we know fewer."""
    if n is not None and not 0 < n <= known:
        raise RemoteProtocolError(
            f"a piggyback of a system of {n} processes, and we know {known}: join() the new ones first"
        )
    return known if n is None else n


def _places(reader: "BitReader", form: int, n: int) -> list[int]:
    if form == FULL:
        return list(range(n))
    if form == BITMAP:
        bitmap = reader.read(n)
        return [k for k in range(n) if bitmap >> k & 1]
    if form != LIST:
        raise RemoteProtocolError(f"a piggyback of unknown form {form}")
    count = reader.read(n.bit_length())
    if count > n:
        raise RemoteProtocolError(f"a piggyback lists {count} entries of {n}")
    places = [reader.read(_place_bits(n)) for _ in range(count)]
    if any(k >= n for k in places) or any(a >= b for a, b in pairwise(places)):
        raise RemoteProtocolError(f"a piggyback lists entries {places}, which are not increasing below {n}")
    return places


def _form(n: int, entries: int) -> int:
    if entries == n:
        return FULL
    return LIST if n.bit_length() + entries * _place_bits(n) < n else BITMAP


def _index_size(n: int, entries: int) -> int:
    listed = n.bit_length() + entries * _place_bits(n)
    return {FULL: 0, BITMAP: n, LIST: listed}[_form(n, entries)]


def _place_bits(n: int) -> int:
    return max(1, (n - 1).bit_length())


class BitWriter:
    def __init__(self) -> None:
        self._bits = 0
        self._size = 0

    def write(self, value: int, width: int) -> None:
        self._bits |= value << self._size
        self._size += width

    def to_bytes(self) -> bytes:
        return self._bits.to_bytes((self._size + 7) // 8, "little")


class BitReader:
    """Reads numbers from bytes of a peer; RemoteProtocolError if anything is wrong with them."""

    def __init__(self, data: bytes) -> None:
        self._bits = int.from_bytes(data, "little")
        self._left = 8 * len(data)

    def read(self, width: int) -> int:
        if width > self._left:
            raise RemoteProtocolError(f"a piggyback ends early: {width} bits wanted, {self._left} left")
        value = self._bits & (1 << width) - 1
        self._bits >>= width
        self._left -= width
        return value

    def finish(self) -> None:
        if self._left >= 8 or self._bits:
            raise RemoteProtocolError(f"a piggyback goes on for {self._left} bits after its end")
