"""Matrices, bars and lines as SVG text. A name too long for its place is cut; the whole of it shows under the
pointer.
"""

from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

from ..view.texts import compact, short

LETTER = 6.8  # width of a letter, about, in the font of the pictures
CELL = 42


class Bar(NamedTuple):
    """A value and how it is written; `least` is marked inside the bar if it is given."""

    name: str
    value: float
    shown: str
    least: float | None = None


def matrix(names: Sequence[str], values: Any) -> str:
    """A square of counts, darker for more, the number in each cell; row to column."""
    margin = _margin(names, 20)
    top = round(0.9 * margin) + 14  # the names of columns are turned
    width, height = margin + CELL * len(names) + round(0.5 * margin), top + CELL * len(names)
    most = max((value for row in values for value in row), default=0) or 1
    parts = [_svg("matrix", width, height)]
    for i, name in enumerate(names):
        at = CELL * i + CELL / 2
        parts.append(_text("lane", margin - 6, top + at + 4, name, 20))
        turned = f'transform="translate({margin + at + 4:.0f},{top - 6}) rotate(-60)"'
        parts.append(f'<text class="turned" {turned}>{_cut(name, 20)}</text>')
        for j, value in enumerate(values[i]):
            x, y = margin + CELL * j, top + CELL * i
            shade = value / most
            parts.append(
                f'<rect class="cell" x="{x}" y="{y}" width="{CELL - 1}" height="{CELL - 1}" '
                f'fill-opacity="{0.06 + 0.84 * shade:.2f}"/>'
            )
            if value:
                inverse = " inverse" if shade > 0.5 else ""
                parts.append(_text(f"count{inverse}", x + CELL / 2, y + CELL / 2 + 4, compact(value), 8))
    return "".join([*parts, "</svg>"])


def line(values: Sequence[float], label: str, ends: tuple[str, str] = ("", "")) -> str:
    """One series from left to right, its largest value marked; `ends` are written under its ends."""
    width, height, left = 760, 180, 56
    floor, ceiling = height - 26, 14
    most = max(values, default=0) or 1
    drawn = list(values) * 2 if len(values) == 1 else values  # a single value is a level line
    step = (width - left - 10) / max(1, len(drawn) - 1)
    points = " ".join(
        f"{left + step * i:.1f},{floor - (floor - ceiling) * value / most:.1f}"
        for i, value in enumerate(drawn)
    )
    parts = [_svg("chart", width, height)]
    for value, y in ((most, ceiling), (most / 2, (ceiling + floor) / 2), (0, floor)):
        kind = "axis" if value == 0 else "grid"
        parts.append(f'<line class="{kind}" x1="{left}" y1="{y:.0f}" x2="{width - 10}" y2="{y:.0f}"/>')
        parts.append(_text("lane", left - 6, y + 4, compact(value), 8))
    parts.append(f'<polyline class="series" points="{points}"/>')
    parts.append(_text("note", (left + width) / 2, height - 6, label, 80))
    parts.append(_text("value", left, height - 6, ends[0], 20))
    parts.append(_text("lane", width - 10, height - 6, ends[1], 20))
    return "".join([*parts, "</svg>"])


def bars(rows: Sequence[Bar]) -> str:
    """One bar below the other; negative values go left."""
    high, room = 22, 150  # of a bar, and for what is written behind it
    margin = _margin([row.name for row in rows], 44)
    width = margin + 440 + room
    most = max((abs(row.value) for row in rows), default=0) or 1
    negative = any(row.value < 0 for row in rows)
    zero = margin + 440 * (0.5 if negative else 0)
    scale = 440 * (0.5 if negative else 1) / most
    parts = [_svg("chart", width, high * len(rows) + 8)]
    for i, row in enumerate(rows):
        y, length = 4 + high * i, abs(row.value) * scale
        x = zero - length if row.value < 0 else zero
        parts.append(_text("lane", margin - 8, y + 15, row.name, 44))
        parts.append(
            f'<rect class="bar" x="{x:.1f}" y="{y + 3}" width="{max(1, length):.1f}" height="{high - 6}"/>'
        )
        if row.least is not None and 0 <= row.least <= row.value:
            at = zero + row.least * scale
            parts.append(f'<path class="least" d="M{at:.1f} {y + 3}v{high - 6}"/>')
        parts.append(_text("value", zero + max(0, row.value) * scale + 6, y + 15, row.shown, 40))
    return "".join([*parts, "</svg>"])


def _svg(kind: str, width: float, height: float) -> str:
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    return f'<svg class="{kind}" {size} role="img">'


def _margin(names: Any, most: int) -> int:
    """Room for names that are cut to `most` letters."""
    return 20 + round(LETTER * min(most, max(map(len, names), default=0)))


def _text(kind: str, x: float, y: float, text: str, most: int) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{_cut(text, most)}</text>'


def _cut(text: str, most: int) -> str:
    whole = f"<title>{escape(text)}</title>" if len(text) > most else ""
    return f"{whole}{escape(short(text, most))}"
