"""Destination sets as bit sets: process p is in the set iff bit p is one.

Union, intersection, difference and emptiness are then single operations on an `int`, whatever the number of
processes; only `pack` and `unpack` look at single members.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache

SMALL = 1 << 16
"""The members of bit sets below this limit are cached; most systems have no larger sets."""


def pack(members: Iterable[int]) -> int:
    bits = 0
    for member in members:
        bits |= 1 << member
    return bits


def unpack(bits: int) -> Iterator[int]:
    """The members of a bit set in increasing order."""
    return iter(_members(bits)) if bits < SMALL else _each(bits)


@lru_cache(maxsize=1024)
def _members(bits: int) -> tuple[int, ...]:
    return tuple(_each(bits))


def _each(bits: int) -> Iterator[int]:
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
