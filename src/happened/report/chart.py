"""Line charts as SVG text, without scripts, fonts or other files.

No line hides another: lines that coincide are drawn in alternating dashes, so that each stays visible in its
true place; marks and whiskers at one place stand side by side, a few pixels from their values; the name of a
line stands at its end. Whiskers stay inside the frame, and the title of a logarithmic axis says that it is
logarithmic.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from math import ceil, dist, floor, inf, log10
from typing import NamedTuple

from ..view.palette import palette
from ..view.texts import compact

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 190, 52, 50
NAME = 15  # the height of a line's name
RADIUS = 3.5
# Okabe & Ito's colours, distinguishable with any colour vision; lines of one colour have different marks.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "var(--ink)")
LONGEST_NAME = 22
NEAR = 2.5  # pixels: lines closer than this cover one another
DASH = 9.0  # pixels: the longest dash of lines that coincide
SIDEWAYS = 8.0  # pixels between marks that would otherwise overlap

Place = tuple[float, float]

STYLE = """
svg { font: 12px system-ui, sans-serif; background: var(--board); }
text { fill: var(--ink); } .title { font-size: 15px; } .scale { font-style: italic; }
.grid { stroke: var(--rule); } .axis { fill: none; stroke: var(--ink); }
.line { fill: none; stroke-width: 2; } .mark { stroke: var(--board); stroke-width: .7; }
.whisker { fill: none; stroke-width: 1.2; } .lead { fill: none; stroke-width: .8; stroke-dasharray: 1 2; }
"""


class Point(NamedTuple):
    x: float
    y: float
    error: float  # half the length of the whisker


class Curve(NamedTuple):
    name: str
    points: Sequence[Point]


class _Scale(NamedTuple):
    """Maps values to pixels; `log` for values that are all positive and span two decades."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    def place(self, value: float) -> float:
        """The pixel of a value; values beyond an end of the scale are placed at that end."""
        value = min(max(value, self.low), self.high)
        low, high, at = map(log10, (self.low, self.high, value)) if self.log else (self.low, self.high, value)
        return self.start + (at - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        if self.log:
            return [10.0**k for k in range(ceil(log10(self.low)), floor(log10(self.high)) + 1)]
        step = _round_step((self.high - self.low) / 7)
        first = ceil(self.low / step)
        return [k * step for k in range(first, floor(self.high / step) + 1)]


def draw(title: str, x_title: str, lines: Sequence[Curve]) -> str:
    """One chart; curves without points are left out."""
    lines = [Curve(line.name, sorted(line.points)) for line in lines if line.points]
    if not lines:
        raise ValueError(f"nothing to draw for {title!r}")
    points = [point for line in lines for point in line.points]
    tall = max(HEIGHT, TOP + BOTTOM + NAME * len(lines))
    floor_at = tall - BOTTOM
    across = [point.x for point in points]
    x = _scale(across, LEFT, WIDTH - RIGHT, log=_is_spread(across))
    y = _vertical(points, floor_at)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{tall}" '
        f'viewBox="0 0 {WIDTH} {tall}" role="img">',
        f"<title>{escape(title)}</title><style>{palette('svg')}{STYLE}</style>",
        f'<text class="title" x="{LEFT}" y="24">{escape(title)}</text>',
        *_axes(x, y, sorted(set(across)), x_title),
        *_drawn(lines, x, y),
    ]
    return "\n".join([*parts, "</svg>", ""])


def _is_spread(values: Sequence[float]) -> bool:
    return min(values) > 0 and max(values) / min(values) >= 100


def _vertical(points: Sequence[Point], floor_at: float) -> _Scale:
    """The vertical scale, with room for all whiskers; a logarithmic one cuts whiskers that reach zero."""
    values, tops = [point.y for point in points], [point.y + point.error for point in points]
    if _is_spread(values):
        lows = [point.y - point.error for point in points if point.error < point.y]
        return _scale([*values, *tops, *lows], floor_at, TOP, log=True)
    return _scale([0.0, *tops, *(point.y - point.error for point in points)], floor_at, TOP, log=False)


def _scale(values: Sequence[float], start: float, end: float, *, log: bool) -> _Scale:
    low, high = min(values), max(values)
    if log:
        return _Scale(low / 1.3, high * 1.3, start, end, log)
    margin = (high - low) * 0.06 or 1.0
    return _Scale(low - margin if low else 0.0, high + margin, start, end, log)


def _round_step(step: float) -> float:
    magnitude = 10.0 ** floor(log10(step))
    return next(nice * magnitude for nice in (1, 2, 5, 10) if nice * magnitude >= step)


def _axes(x: _Scale, y: _Scale, marks: Sequence[float], x_title: str) -> Iterator[str]:
    free = -inf
    for value in marks:
        at, text = x.place(value), f"{value:g}"
        half = 4 * len(text)
        if at - half > free:
            yield f'<text x="{at:.1f}" y="{y.start + 18}" text-anchor="middle">{text}</text>'
            free = at + half
    for value in y.ticks():
        at = y.place(value)
        yield f'<line class="grid" x1="{x.start}" x2="{x.end}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{compact(value)}</text>'
    corners = f"{x.start},{y.end} {x.start},{y.start} {x.end},{y.start}"
    yield f'<polyline class="axis" points="{corners}"/>'
    middle, below = (x.start + x.end) / 2, y.start + 38
    title = f"{x_title} (logarithmic scale)" if x.log else x_title
    yield f'<text x="{middle:.0f}" y="{below}" text-anchor="middle">{escape(title)}</text>'
    if y.log:
        yield f'<text class="scale" x="{LEFT}" y="{y.end - 8}">logarithmic scale</text>'


def _drawn(lines: Sequence[Curve], x: _Scale, y: _Scale) -> Iterator[str]:
    places = [[(x.place(point.x), y.place(point.y)) for point in line.points] for line in lines]
    for stroke in strokes(places):
        (ax, ay), (bx, by) = stroke.start, stroke.end
        yield (
            f'<path class="line" data-line="{stroke.line}" stroke="{_colour(stroke.line)}"{stroke.dashes} '
            f'd="M{ax:.1f} {ay:.1f}L{bx:.1f} {by:.1f}"/>'
        )
    yield from _marks(lines, x, y)
    yield from _names(lines, [line[-1] for line in places], x, y)


def _marks(lines: Sequence[Curve], x: _Scale, y: _Scale) -> Iterator[str]:
    drawn = [(number, point) for number, line in enumerate(lines) for point in line.points]
    whiskers = [
        (y.place(point.y + point.error), y.place(point.y - point.error)) if point.error else None
        for _, point in drawn
    ]
    extents = []
    for (_, point), whisker in zip(drawn, whiskers, strict=True):
        height = y.place(point.y)
        high, low = whisker or (height, height)
        extents.append(MarkExtent(x.place(point.x), min(high, height - RADIUS), max(low, height + RADIUS)))
    stands = sorted({extent.x for extent in extents})
    room = min(b - a for a, b in zip([2 * x.start - stands[0], *stands], stands, strict=False))
    moved = sideways(extents, room)
    for (number, point), extent, aside, whisker in zip(drawn, extents, moved, whiskers, strict=True):
        at, height, colour = extent.x + aside, y.place(point.y), _colour(number)
        if whisker is not None:
            high, low = whisker
            yield (
                f'<path class="whisker" stroke="{colour}" d="M{at - 2.5:.1f} {high:.1f}h5M{at:.1f} {high:.1f}'
                f'V{low:.1f}m-2.5 0h5"/>'
            )
        told = f"{lines[number].name}, {point.x:g}: {point.y:.4g}" + (
            f" ± {point.error:.4g}" if whisker else ""
        )
        shape = f'fill="{colour}" d="{_mark(number, at, height)}"'
        yield f'<path class="mark" {shape}><title>{escape(told)}</title></path>'


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _mark(number: int, x: float, y: float) -> str:
    """A mark whose shape is different for each line of one colour."""
    r = RADIUS
    shapes = (
        f"M{x - r:.1f} {y:.1f}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0z",
        f"M{x - r:.1f} {y - r:.1f}h{2 * r}v{2 * r}h{-2 * r}z",
        f"M{x:.1f} {y - r - 1:.1f}l{r + 1} {2 * r}h{-2 * r - 2}z",
        f"M{x:.1f} {y - r - 1:.1f}l{r + 1} {r + 1}l{-r - 1} {r + 1}l{-r - 1} {-r - 1}z",
    )
    return shapes[number // len(COLOURS) % len(shapes)]


def _names(lines: Sequence[Curve], ends: Sequence[Place], x: _Scale, y: _Scale) -> Iterable[str]:
    heights = spread([end for _, end in ends], NAME, y.end, y.start)
    at = x.end + 34
    for number, (line, (end_x, end_y), height) in enumerate(zip(lines, ends, heights, strict=True)):
        colour = _colour(number)
        name = line.name if len(line.name) <= LONGEST_NAME else f"{line.name[: LONGEST_NAME - 1]}…"
        lead = f"M{end_x + 6:.1f} {end_y:.1f}L{at - 12:.1f} {height:.1f}"
        yield f'<path class="lead" stroke="{colour}" d="{lead}"/>'
        yield f'<path class="mark" fill="{colour}" d="{_mark(number, at - 6, height)}"/>'
        yield f'<text class="name" x="{at + 3}" y="{height + 4:.1f}">{escape(name)}</text>'


class Stroke(NamedTuple):
    """A piece of a line; drawn in every `turns`-th dash, from dash number `turn` on."""

    line: int
    start: Place
    end: Place
    turn: int
    turns: int

    @property
    def dashes(self) -> str:
        """The SVG attributes that draw these dashes; "" if no other line coincides with this piece."""
        if self.turns == 1:
            return ""
        dash = min(DASH, dist(self.start, self.end) / self.turns)  # shortened so that each line has its turn
        rest, begin = (self.turns - 1) * dash, (self.turns - self.turn) % self.turns * dash
        return f' stroke-dasharray="{dash:.4g} {rest:.4g}" stroke-dashoffset="{begin:.4g}"'


class MarkExtent(NamedTuple):
    """The horizontal range that a mark covers: from `low` to `high`, in pixels."""

    x: float
    low: float
    high: float


def strokes(lines: Sequence[Sequence[Place]]) -> list[Stroke]:
    """The pieces of lines, each line given by its places from left to right. Coinciding pieces alternate."""
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
    """The heights of a line at two places if it does not bend between them."""
    for (x, y), (to, at) in itertools.pairwise(line):
        if x <= left and right <= to:
            slope = (at - y) / (to - x)
            return y + slope * (left - x), y + slope * (right - x)
    return None


def _grouped(ends: Sequence[tuple[float, float]]) -> list[list[int]]:
    """Groups of pieces that are near one another at both ends, as lists of piece numbers."""
    groups: list[list[int]] = []
    for k, (begin, end) in sorted(enumerate(ends), key=lambda each: each[1]):
        for group in groups:
            if any(abs(ends[m][0] - begin) < NEAR and abs(ends[m][1] - end) < NEAR for m in group):
                group.append(k)
                break
        else:
            groups.append([k])
    return [sorted(group) for group in groups]


def sideways(extents: Sequence[MarkExtent], room: float) -> list[float]:
    """How far each mark is moved sideways, so that the marks of one place stand side by side.

    room   the distance to the next place with marks; all marks stay within half of it
    """
    groups: list[list[int]] = []
    reach = -inf
    for k in sorted(range(len(extents)), key=lambda k: extents[k]):
        if not groups or extents[k].x != extents[groups[-1][-1]].x or extents[k].low > reach:
            groups.append([])
            reach = -inf
        groups[-1].append(k)
        reach = max(reach, extents[k].high)
    moved = [0.0] * len(extents)
    for group in groups:
        step = min(SIDEWAYS, 0.8 * room / len(group))
        for place, k in enumerate(sorted(group)):
            moved[k] = (place - (len(group) - 1) / 2) * step
    return moved


def spread(heights: Sequence[float], apart: float, top: float, bottom: float) -> list[float]:
    """Heights of names, as near to the wanted heights as possible with no two closer than `apart`.

    Neighbours that are too close are moved apart about their middle; all stay between top and bottom if there
    is room.
    """
    order = sorted(range(len(heights)), key=lambda k: (heights[k], k))
    blocks: list[tuple[float, int]] = []  # (middle, count) of each group of neighbours that touch
    for k in order:
        blocks.append((heights[k], 1))
        while True:
            middle, many = blocks[-1]
            half = (many - 1) / 2 * apart
            blocks[-1] = max(top + half, min(bottom - half, middle)), many
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
