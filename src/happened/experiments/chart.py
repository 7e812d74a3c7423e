"""Line charts as SVG text: no script, no font file, no other file needed to look at them."""

from collections.abc import Iterable, Sequence
from html import escape
from math import ceil, floor, log10
from typing import NamedTuple

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 190, 40, 50
# Okabe & Ito's colours, told apart by people with any colour vision; shapes and dashes tell more lines apart.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
DASHES = ("", "6 3", "2 2", "8 3 2 3")


class Point(NamedTuple):
    x: float
    y: float
    error: float  # half the length of its whisker


class Line(NamedTuple):
    name: str
    points: Sequence[Point]


class _Scale(NamedTuple):
    """Values onto pixels; `log` for values that are all positive and spread over two decades."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    def place(self, value: float) -> float:
        low, high = (log10(self.low), log10(self.high)) if self.log else (self.low, self.high)
        at = log10(max(value, self.low)) if self.log else value
        return self.start + (at - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        if self.log:
            return [10.0**k for k in range(ceil(log10(self.low)), floor(log10(self.high)) + 1)]
        step = _round_step((self.high - self.low) / 5)
        first = ceil(self.low / step)
        return [k * step for k in range(first, floor(self.high / step) + 1)]


def draw(title: str, x_title: str, lines: Sequence[Line]) -> str:
    """One chart; lines without points are left out."""
    lines = [line for line in lines if line.points]
    if not lines:
        raise ValueError(f"nothing to draw for {title!r}")
    points = [point for line in lines for point in line.points]
    across = [point.x for point in points]
    x = _scale(across, LEFT, WIDTH - RIGHT, log=_is_spread(across))
    y = _vertical(points)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="24" font-size="15">{escape(title)}</text>',
        f'<text x="{WIDTH // 2 - 60}" y="{HEIGHT - 12}" text-anchor="middle">{escape(x_title)}</text>',
        *_axes(x, y, sorted({point.x for point in points})),
    ]
    for number, line in enumerate(lines):
        parts += _line(number, line, x, y)
    return "\n".join([*parts, "</svg>", ""])


def _is_spread(values: Sequence[float]) -> bool:
    return min(values) > 0 and max(values) / min(values) >= 100


def _vertical(points: Sequence[Point]) -> _Scale:
    values = [point.y for point in points]
    log = _is_spread(values)
    return _scale(values if log else [0.0, *values], HEIGHT - BOTTOM, TOP, log=log)


def _scale(values: Sequence[float], start: float, end: float, *, log: bool) -> _Scale:
    low, high = min(values), max(values)
    if log:
        return _Scale(low / 1.3, high * 1.3, start, end, log)
    margin = (high - low) * 0.05 or 1.0
    return _Scale(low - margin if low else 0.0, high + margin, start, end, log)


def _round_step(step: float) -> float:
    magnitude = 10.0 ** floor(log10(step))
    return next(nice * magnitude for nice in (1, 2, 5, 10) if nice * magnitude >= step)


def _axes(x: _Scale, y: _Scale, marks: Sequence[float]) -> Iterable[str]:
    for value in marks:
        at = x.place(value)
        yield f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{value:g}</text>'
    for value in y.ticks():
        at = y.place(value)
        yield f'<line x1="{x.start}" x2="{x.end}" y1="{at:.1f}" y2="{at:.1f}" stroke="#dddddd"/>'
        yield f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{value:g}</text>'
    corners = f"{x.start},{y.end} {x.start},{y.start} {x.end},{y.start}"
    yield f'<polyline points="{corners}" fill="none" stroke="black"/>'


def _line(number: int, line: Line, x: _Scale, y: _Scale) -> Iterable[str]:
    colour = COLOURS[number % len(COLOURS)]
    dash = DASHES[number // len(COLOURS) % len(DASHES)]
    style = f'stroke="{colour}" fill="none" stroke-width="1.6" stroke-dasharray="{dash}"'
    places = [(x.place(point.x), y.place(point.y), point) for point in sorted(line.points)]
    yield f'<polyline points="{" ".join(f"{a:.1f},{b:.1f}" for a, b, _ in places)}" {style}/>'
    for a, b, point in places:
        yield f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.5" fill="{colour}"/>'
        if point.error:
            low, high = y.place(point.y - point.error), y.place(point.y + point.error)
            yield f'<line x1="{a:.1f}" x2="{a:.1f}" y1="{low:.1f}" y2="{high:.1f}" stroke="{colour}"/>'
    row = TOP + 8 + 18 * number
    begin = WIDTH - RIGHT + 16
    yield f'<line x1="{begin}" x2="{begin + 24}" y1="{row}" y2="{row}" {style}/>'
    yield f'<text x="{begin + 30}" y="{row + 4}">{escape(line.name)}</text>'
