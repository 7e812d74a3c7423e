"""Curves as an SVG picture: one line per series, a bar for each confidence interval.

Lines differ by dash pattern and are named at their right end, so the picture works without colour.
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 720, 440
LEFT, RIGHT, TOP, BOTTOM = 60, 170, 40, 50
COLOURS = ("#1b6ca8", "#c0392b", "#1e8449", "#8e44ad", "#b9770e", "#34495e", "#d35400", "#16a085")
DASHES = ("none", "7 3", "2 3", "9 3 2 3")
TICKS = 5
LABEL_SPACE = 13  # pixels between the names of neighbouring lines


class Point(NamedTuple):
    x: float
    y: float
    error: float  # half the confidence interval


def svg(series: Mapping[str, Sequence[Point]], *, title: str, x: str, y: str) -> str:
    """The picture; `series` are drawn in their order, x from the smallest to the largest, y from zero."""
    points = [point for line in series.values() for point in line]
    if not points:
        raise ValueError("there are no points to draw")
    low, high = min(p.x for p in points), max(p.x for p in points)
    top = max(p.y + p.error for p in points) * 1.05 or 1.0

    def place(point: Point, offset: float = 0.0) -> tuple[float, float]:
        across = (point.x - low) / (high - low) if high > low else 0.5
        up = (point.y + offset) / top
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="15">{escape(title)}</text>',
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">{escape(x)}</text>',
        f'<text transform="translate(16 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">{escape(y)}</text>',
    ]
    for tick in range(TICKS + 1):
        value = top * tick / TICKS
        _, height = place(Point(low, value, 0))
        parts.append(f'<path d="M{LEFT} {height:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{height + 4:.1f}" text-anchor="end">{value:.3g}</text>')
    for value in sorted({point.x for point in points}):
        across, floor = place(Point(value, 0, 0))
        parts.append(f'<text x="{across:.1f}" y="{floor + 18:.1f}" text-anchor="middle">{value:g}</text>')
    free = float("inf")  # the lowest label must stay on the picture, the others above it
    for index, (name, line) in sorted(enumerate(series.items()), key=lambda item: item[1][1][-1].y):
        style = f'stroke="{COLOURS[index % len(COLOURS)]}" stroke-dasharray="{DASHES[index % len(DASHES)]}"'
        way = "L".join(f"{across:.1f} {height:.1f}" for across, height in map(place, line))
        parts.append(f'<path d="M{way}" fill="none" stroke-width="2" {style}/>')
        for point in line:
            (across, lower), (_, upper) = place(point, -point.error), place(point, point.error)
            parts.append(f'<path d="M{across:.1f} {lower:.1f}V{upper:.1f}" stroke="#555"/>')
        across, height = place(line[-1])
        free = min(height + 4, free - LABEL_SPACE)
        parts.append(f'<text x="{across + 8:.1f}" y="{free:.1f}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])
