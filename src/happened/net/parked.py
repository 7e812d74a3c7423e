"""The frames of an outbox that are on disk alone, behind those in memory: their numbers and sizes.

Bounds     a pair of numbers for about SEGMENT bytes of frames. Those of a segment count until the last one is
           acknowledged or back in memory, so `bytes` is at most a segment too high, and never too low.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

SEGMENT = 256 << 10


class Parking(NamedTuple):
    """What a batch does to the frames on disk: first `freed`, then `frames`.

    freed    per link: frames up to this number are needed no more
    frames   per link: further ones with their numbers, in order
    """

    freed: Mapping[int, int]
    frames: Mapping[int, list[tuple[int, bytes]]]


class Parked:
    """`segments` are the last number and the bytes of each."""

    __slots__ = ("_segments", "bytes")

    def __init__(self, segments: Iterable[tuple[int, int]] = ()) -> None:
        self._segments = deque((last, size) for last, size in segments)
        self.bytes = sum(size for _, size in self._segments)

    def __bool__(self) -> bool:
        return bool(self._segments)

    def add(self, number: int, size: int) -> None:
        """A frame of this number and size goes to disk, behind all others."""
        self.bytes += size
        if self._segments and self._segments[-1][1] < SEGMENT:
            size += self._segments.pop()[1]
        self._segments.append((number, size))

    def drop(self, through: int) -> None:
        """The frames up to this number are acknowledged, or in memory again."""
        while self._segments and self._segments[0][0] <= through:
            self.bytes -= self._segments.popleft()[1]

    def segments(self) -> list[tuple[int, int]]:
        return list(self._segments)
