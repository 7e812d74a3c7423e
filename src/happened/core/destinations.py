"""Destination sets as bit sets: process p is in the set iff bit p is one.

Union, intersection, difference and emptiness are then single operations on an `int`, whatever the
number of processes; only these two conversions look at single members.
"""

from collections.abc import Iterable, Iterator


def pack(members: Iterable[int]) -> int:
    bits = 0
    for member in members:
        bits |= 1 << member
    return bits


def unpack(bits: int) -> Iterator[int]:
    """The members in increasing order."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
