"""Keeps overlapping parts of a chart apart: coinciding lines, marks on top of each other, names at line ends.

Nothing is moved away from its value but marks and whiskers, a few pixels sideways. Lines that coincide are
drawn in turns, a dash of each, so that every one of them is seen where it is.
"""

import itertools
from collections.abc import Sequence
from math import dist
from typing import NamedTuple

NEAR = 2.5  # pixels: lines that are closer than that cover one another
DASH = 9.0  # the longest dash of a line that takes turns, in pixels
SIDEWAYS = 8.0  # pixels between marks that would lie on one another

Place = tuple[float, float]


class Stroke(NamedTuple):
    """A piece of a line; it is drawn in every `turns`-th dash, beginning with dash number `turn`."""

    line: int
    start: Place
    end: Place
    turn: int
    turns: int

    @property
    def dashes(self) -> str:
        """The attributes of SVG that draw these dashes; none where the line is by itself."""
        if self.turns == 1:
            return ""
        dash = min(DASH, dist(self.start, self.end) / self.turns)  # on a short piece, too, each has its turn
        rest, begin = (self.turns - 1) * dash, (self.turns - self.turn) % self.turns * dash
        return f' stroke-dasharray="{dash:.4g} {rest:.4g}" stroke-dashoffset="{begin:.4g}"'


class MarkExtent(NamedTuple):
    """What one mark covers at its place from left to right: from `low` to `high`, in pixels."""

    x: float
    low: float
    high: float


def strokes(lines: Sequence[Sequence[Place]]) -> list[Stroke]:
    """The pieces of lines, each given by its places from left to right. Pieces that coincide take turns."""
    cuts = sorted({x for line in lines for x, _ in line})
    found = []
    for left, right in itertools.pairwise(cuts):
        pieces = [(number, ends) for number, line in enumerate(lines) if (ends := _piece(line, left, right))]
        for group in _grouped([ends for _, ends in pieces]):
            for turn, k in enumerate(group):
                number, (begin, end) = pieces[k]
                found.append(Stroke(number, (left, begin), (right, end), turn, len(group)))
    return found


def _piece(line: Sequence[Place], left: float, right: float) -> tuple[float, float] | None:
    """The heights of a line at two places between which it does not bend."""
    for (x, y), (to, at) in itertools.pairwise(line):
        if x <= left and right <= to:
            slope = (at - y) / (to - x)
            return y + slope * (left - x), y + slope * (right - x)
    return None


def _grouped(ends: Sequence[tuple[float, float]]) -> list[list[int]]:
    """Pieces that are near one another at both ends; each group by the number of its pieces."""
    groups: list[list[int]] = []
    for k, (begin, end) in sorted(enumerate(ends), key=lambda each: each[1]):
        near = (
            group
            for group in groups
            if any(abs(ends[m][0] - begin) < NEAR and abs(ends[m][1] - end) < NEAR for m in group)
        )
        group = next(near, None)
        if group is None:
            groups.append([k])
        else:
            group.append(k)
    return [sorted(group) for group in groups]


def sideways(extents: Sequence[MarkExtent], room: float) -> list[float]:
    """How far each mark is moved to the side, so that those of one place stand side by side.

    room   the distance to the next place of marks: all of them stay within its half
    """
    moved = [0.0] * len(extents)
    order = sorted(range(len(extents)), key=lambda k: extents[k])
    group: list[int] = []

    def settle() -> None:
        step = min(SIDEWAYS, 0.8 * room / len(group))
        for place, k in enumerate(sorted(group)):
            moved[k] = (place - (len(group) - 1) / 2) * step

    reach = float("-inf")
    for k in order:
        if group and (extents[k].x != extents[group[-1]].x or extents[k].low > reach):
            settle()
            group, reach = [], float("-inf")
        group.append(k)
        reach = max(reach, extents[k].high)
    if group:
        settle()
    return moved


def spread(heights: Sequence[float], apart: float, top: float, bottom: float) -> list[float]:
    """Heights of names, as near to those wanted as they can be when no two are closer than `apart`.

    Neighbours that are too close are moved apart about their middle, and all stay between top and bottom if
    there is room for them.
    """
    order = sorted(range(len(heights)), key=lambda k: (heights[k], k))
    blocks: list[tuple[float, int]] = []  # the middle of neighbours that touch, and how many they are
    for k in order:
        blocks.append((heights[k], 1))
        while True:
            blocks[-1] = _within(*blocks[-1], apart, top, bottom)
            if len(blocks) < 2:
                break
            (first, m), (second, n) = blocks[-2:]
            if second - first >= apart * (m + n) / 2:
                break
            blocks[-2:] = [((first * m + second * n) / (m + n), m + n)]
    placed = [0.0] * len(heights)
    names = iter(order)
    for middle, many in blocks:
        for place in range(many):
            placed[next(names)] = middle + (place - (many - 1) / 2) * apart
    return placed


def _within(middle: float, many: int, apart: float, top: float, bottom: float) -> tuple[float, int]:
    half = (many - 1) / 2 * apart
    return max(top + half, min(bottom - half, middle)), many
