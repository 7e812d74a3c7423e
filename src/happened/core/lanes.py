"""Vectors of numbers packed into one `int`, so that n comparisons are one subtraction.

Lane p of a vector is its bits p·width … (p+1)·width - 1. A lane's top bit, the *guard*, is zero in every
vector. A comparison sets the guards, subtracts, and looks which guards were borrowed (Lamport, "Multiple byte
processing with full-word instructions", CACM 18(8), 1975). Python's integers have no fixed word, so one
subtraction serves any n. `spread` turns guards into masks that select whole lanes.

A lane of `lanes(n)` holds a clock or a set of processes: it has at least 63 bits, and a bit for each of n
processes. A lane of `clock_lanes(n)` holds a clock, in 64 bits whatever n is.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

CLOCK_LIMIT = 1 << 63
"""Clocks stay below this: a lane's value has no guard bit."""
FEW = 8
"""Up to this many lanes of a wide vector are read or written one by one: a message among many processes names
few lanes, and one such access costs as much as comparing about ten lanes."""


class Lanes:
    """The layout of packed vectors over n processes: lane width, guards and masks."""

    __slots__ = ("_words", "bytes_per_lane", "guards", "members", "n", "ones", "shift", "value", "width")

    def __init__(self, n: int, width: int | None = None) -> None:
        self.n = n
        # A multiple of 64 keeps `unpack` on struct's fast path up to 63 processes and makes widening rare.
        self.width = 64 * (n // 64 + 1) if width is None else width
        self.bytes_per_lane = self.width // 8
        self._words = struct.Struct(f"<{n}Q")  # used while a lane is one word
        self.shift = self.width - 1
        self.value = (1 << self.shift) - 1  # all bits of lane 0 except its guard
        self.ones = sum(1 << (self.width * p) for p in range(n))
        self.guards = self.ones << self.shift
        self.members = (1 << n) - 1  # the set of all processes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lanes) and (self.n, self.width) == (other.n, other.width)

    def __hash__(self) -> int:
        return hash((self.n, self.width))

    def at_least(self, a: int, b: int) -> int:
        """The guards of the lanes where a >= b."""
        return ((a | self.guards) - b) & self.guards

    def spread(self, guards: int) -> int:
        """Masks that select the value bits of each lane whose guard is set."""
        return guards - (guards >> self.shift)

    def maximum(self, a: int, b: int) -> int:
        """The vector with the greater value of each lane."""
        return b ^ (a ^ b) & self.spread(self.at_least(a, b))

    def newer(self, a: int, b: int) -> int:
        """The lanes of a that are greater than those of b; all other lanes are zero."""
        return a & self.spread(self.guards ^ self.at_least(b, a))

    def beyond(self, a: int, b: int) -> int | None:
        """The highest lane where a > b, or None if there is none."""
        guards = self.guards
        greater = guards ^ ((b | guards) - a & guards)
        return greater.bit_length() // self.width - 1 if greater else None

    def items(self, vector: int) -> Iterator[tuple[int, int]]:
        """The pair (lane, value) of each lane that is not zero."""
        return ((lane, value) for lane, value in enumerate(self.unpack(vector)) if value)

    def occupied(self, vector: int) -> int:
        """How many lanes are not zero."""
        return (self.guards ^ self.at_least(0, vector)).bit_count()

    def widened(self, vector: int, n: int) -> int:
        """The same values as a vector over n processes, where n is at least this geometry's number."""
        wider = lanes(n)
        return vector if wider.width == self.width else wider.pack([*self.unpack(vector)])

    def get(self, vector: int, lane: int) -> int:
        return vector >> (self.width * lane) & self.value

    def put(self, vector: int, lane: int, value: int) -> int:
        place = self.width * lane
        return vector & ~(self.value << place) | value << place

    def unpack(self, vector: int) -> Sequence[int]:
        """The values of all n lanes of a vector."""
        if self.width == 64:
            return self._words.unpack(vector.to_bytes(8 * self.n, "little"))
        values, rest = [0] * self.n, vector
        for _ in range(FEW):
            if not rest:
                break
            lane = (rest.bit_length() - 1) // self.width
            values[lane] = value = rest >> self.width * lane
            rest ^= value << self.width * lane
        if not rest:
            return values
        step, data = self.bytes_per_lane, vector.to_bytes(self.n * self.bytes_per_lane, "little")
        return [int.from_bytes(data[i : i + step], "little") for i in range(0, len(data), step)]

    def pack(self, values: Sequence[int]) -> int:
        if self.width == 64:
            return int.from_bytes(self._words.pack(*values), "little")
        data = b"".join(value.to_bytes(self.bytes_per_lane, "little") for value in values)
        return int.from_bytes(data, "little")

    def pack_some(self, values: Mapping[int, int]) -> int:
        """A vector whose lanes have these values; lanes that `values` does not name are zero."""
        if len(values) <= FEW:
            return sum(value << self.width * lane for lane, value in values.items())
        dense = [0] * self.n
        for lane, value in values.items():
            dense[lane] = value
        return self.pack(dense)


@lru_cache(maxsize=64)
def lanes(n: int) -> Lanes:
    return Lanes(n)


@lru_cache(maxsize=64)
def clock_lanes(n: int) -> Lanes:
    return Lanes(n, 64)
