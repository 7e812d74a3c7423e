"""Numbers, sets and bytes on the wire, and a reader that checks every value it reads.

A number is LEB128: seven bits per byte, least significant first; a set top bit means that more bytes follow.
A set of processes among n is one byte if it is one of the *small sets* of n (the first subsets in order of
size, as many as 200 codes hold: every singleton up to n = 200, every triple up to n = 10). Otherwise it is
the shortest of a list of its members, a list of its non-members, and a bitmap.
"""

from functools import lru_cache
from itertools import chain, combinations, islice
from typing import NamedTuple

from ..core.destinations import pack, unpack
from ..core.errors import RemoteProtocolError
from ..core.lanes import CLOCK_LIMIT


class Encoded(NamedTuple):
    """A message without its payload: its address, and its control information."""

    address: bytes
    control: bytes


SMALL_SETS = 200
LIST, COMPLEMENT, BITMAP = 200, 201, 202

EXPANDED = 64 << 20
"""The limit on the memory for the sets of one frame that are written as lists, in bytes."""


@lru_cache(maxsize=16)
def _small_sets(n: int) -> tuple[list[int], dict[int, int]]:
    """The sets of n processes that have a one-byte code, by code, and the codes by set."""
    by_size = chain.from_iterable(combinations(range(n), size) for size in range(n + 1))
    sets = [pack(members) for members in islice(by_size, SMALL_SETS)]
    return sets, {members: code for code, members in enumerate(sets)}


def small_sets(n: int) -> list[int]:
    """The sets of n processes that are written as one byte, indexed by that byte."""
    return _small_sets(n)[0]


@lru_cache(maxsize=16)
def small_set_codes(n: int) -> dict[int, int]:
    """The byte of each small set, by set."""
    return _small_sets(n)[1]


@lru_cache(maxsize=16)
def small_set_members(n: int) -> list[tuple[int, ...]]:
    """The members of each small set, indexed by its byte."""
    return [tuple(unpack(members)) for members in small_sets(n)]


def write_number(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def zigzag(value: int) -> int:
    """Maps integers to numbers that are small for small magnitudes: 0, -1, 1, -2, … become 0, 1, 2, 3, …"""
    return value << 1 if value >= 0 else (-value << 1) - 1


def unzigzag(value: int) -> int:
    return -(value + 1 >> 1) if value & 1 else value >> 1


def write_set(out: bytearray, members: int, n: int) -> None:
    code = small_set_codes(n).get(members)
    if code is not None:
        out.append(code)
        return
    size = members.bit_count()
    fewest = min(size, n - size)
    if fewest + 1 >= (n + 7) // 8:  # a list also has its length, and at least a byte per member
        out.append(BITMAP)
        out += members.to_bytes((n + 7) // 8, "little")
        return
    out.append(LIST if size == fewest else COMPLEMENT)
    write_number(out, fewest)
    previous = -1
    for member in unpack(members if size == fewest else members ^ (1 << n) - 1):
        write_number(out, member - previous - 1)
        previous = member


class Reader:
    """Reads values from a peer's bytes and raises RemoteProtocolError if anything is wrong with them.

    No count is believed beyond the bytes that are there, so time and memory are linear in the input; only a
    set of few members, or of all but few, takes n bits of memory, up to EXPANDED bytes for a frame's sets.
    """

    __slots__ = ("_data", "_end", "_expanded", "_position")

    def __init__(self, data: bytes, position: int = 0, end: int | None = None) -> None:
        self._data = data
        self._position = position
        self._end = len(data) if end is None else end
        self._expanded = 0

    @property
    def left(self) -> int:
        return self._end - self._position

    def end_after(self, size: int) -> int:
        """Make the reader stop `size` bytes further on, which must exist; returns that position."""
        self._end = self._position + size
        return self._end

    def place(self) -> tuple[bytes, int, int]:
        """The bytes, the reader's position in them, and the position where it must stop."""
        return self._data, self._position, self._end

    def byte(self) -> int:
        if self._position >= self._end:
            raise RemoteProtocolError(f"the frame ends early, at byte {self._position}")
        value = self._data[self._position]
        self._position += 1
        return value

    def number(self, limit: int = CLOCK_LIMIT * 8) -> int:
        """A number below `limit`."""
        position, end = self._position, self._end
        if position < end:  # nearly every number is one byte or two
            value = self._data[position]
            if value < 0x80:
                if value < limit:
                    self._position = position + 1
                    return value
            elif position + 1 < end and (byte := self._data[position + 1]) < 0x80:
                value = value & 0x7F | byte << 7
                if value < limit:
                    self._position = position + 2
                    return value
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if value >= limit:
                raise RemoteProtocolError(f"a number before byte {self._position} is not below {limit}")
            if byte < 0x80:
                return value
            shift += 7
            if shift > 70:
                raise RemoteProtocolError(f"a number before byte {self._position} does not end")

    def bits(self, most: int) -> int:
        """A number of at most this many bits, as which a set was written."""
        found, rest, length = bytearray(), 0, 0
        while True:
            byte = self.byte()
            rest |= (byte & 0x7F) << length
            length += 7
            if length >= 8:
                found.append(rest & 0xFF)
                rest, length = rest >> 8, length - 8
            if byte < 0x80:
                break
            if 8 * len(found) > most:
                raise RemoteProtocolError(f"a number before byte {self._position} has more than {most} bits")
        value = int.from_bytes(found, "little") | rest << 8 * len(found)
        if value >> most:
            raise RemoteProtocolError(f"a number before byte {self._position} has more than {most} bits")
        return value

    def take(self, size: int) -> bytes:
        if size > self.left:
            raise RemoteProtocolError(f"{size} bytes are announced and {self.left} are left")
        start = self._position
        self._position += size
        return self._data[start : self._position]

    def set(self, n: int) -> int:
        tag = self.byte()
        if tag < SMALL_SETS:
            small, _ = _small_sets(n)
            if tag >= len(small):
                raise RemoteProtocolError(f"no set of {n} processes has code {tag}")
            return small[tag]
        if tag == BITMAP:
            members = int.from_bytes(self.take((n + 7) // 8), "little")
            if members >> n:
                raise RemoteProtocolError(f"a set names a process beyond the {n} there are")
            return members
        if tag not in (LIST, COMPLEMENT):
            raise RemoteProtocolError(f"{tag} does not begin a set")
        bits, member = bytearray((n + 7) // 8), -1
        self._expanded += len(bits)
        if self._expanded > EXPANDED:
            raise RemoteProtocolError(f"the sets of one frame take more than {EXPANDED} bytes of memory")
        for _ in range(self.number(min(n, self.left) + 1)):
            member += 1 + self.number(n)
            if member >= n:
                raise RemoteProtocolError(f"a set names a process beyond the {n} there are")
            bits[member >> 3] |= 1 << (member & 7)
        members = int.from_bytes(bits, "little")
        return members if tag == LIST else members ^ (1 << n) - 1
