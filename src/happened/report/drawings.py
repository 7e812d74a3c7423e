"""Pictures as SVG text: space–time diagrams of witnesses, matrices, bars and lines.

Meaning is never carried by colour alone: marks differ in shape and are labelled.
"""

from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

STEP, LANE, MARGIN = 96, 44, 110


class Mark(NamedTuple):
    """An event in a diagram."""

    process: str
    label: str
    fault: bool = False


class Arrow(NamedTuple):
    """From one mark to another, by their places in the list of marks."""

    tail: int
    head: int
    fault: bool = False


def space_time(marks: Sequence[Mark], arrows: Sequence[Arrow]) -> str:
    """Processes as horizontal lines, the marks from left to right in the order given."""
    lanes = {process: i for i, process in enumerate(dict.fromkeys(mark.process for mark in marks))}
    width, height = MARGIN + STEP * len(marks) + 20, LANE * len(lanes) + 30
    places = [(MARGIN + STEP * i + STEP // 2, 30 + LANE * lanes[m.process]) for i, m in enumerate(marks)]
    parts = [f'<svg class="diagram" viewBox="0 0 {width} {height}" width="{width}" role="img">']
    for process, lane in lanes.items():
        y = 30 + LANE * lane
        parts.append(f'<text class="lane" x="{MARGIN - 8}" y="{y + 4}">{escape(_short(process))}</text>')
        parts.append(f'<line class="axis" x1="{MARGIN}" y1="{y}" x2="{width - 10}" y2="{y}"/>')
    for arrow in arrows:
        (x1, y1), (x2, y2) = places[arrow.tail], places[arrow.head]
        kind = "arrow fault" if arrow.fault else "arrow"
        parts.append(f'<line class="{kind}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>')
        parts.append(_head(x1, y1, x2, y2, arrow.fault))
    for (x, y), mark in zip(places, marks, strict=True):
        shape = (
            f'<rect class="mark fault" x="{x - 6}" y="{y - 6}" width="12" height="12"/>'
            if mark.fault
            else f'<circle class="mark" cx="{x}" cy="{y}" r="5"/>'
        )
        parts.append(f'{shape}<text class="note" x="{x}" y="{y + 20}">{escape(mark.label)}</text>')
    return "".join([*parts, "</svg>"])


def _head(x1: float, y1: float, x2: float, y2: float, fault: bool) -> str:
    length = max(1.0, ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5)
    ux, uy = (x2 - x1) / length, (y2 - y1) / length
    x, y = x2 - 7 * ux, y2 - 7 * uy
    corners = [(x, y), (x - 8 * ux + 4 * uy, y - 8 * uy - 4 * ux), (x - 8 * ux - 4 * uy, y - 8 * uy + 4 * ux)]
    points = " ".join(f"{cx:.1f},{cy:.1f}" for cx, cy in corners)
    return f'<polygon class="{"head fault" if fault else "head"}" points="{points}"/>'


def matrix(names: Sequence[str], values: Any) -> str:
    """A square of counts, darker for more, the number in each cell."""
    cell, margin = 40, 90
    size = margin + cell * len(names)
    most = max((value for row in values for value in row), default=0) or 1
    parts = [f'<svg class="matrix" viewBox="0 0 {size} {size}" width="{size}" role="img">']
    for i, name in enumerate(names):
        place = margin + cell * i + cell / 2
        shown = escape(_short(name, 12))
        parts.append(f'<text class="lane" x="{margin - 6}" y="{place + 4:.0f}">{shown}</text>')
        parts.append(
            f'<text class="lane" transform="translate({place + 4:.0f},{margin - 6}) rotate(-60)" '
            f'text-anchor="start" style="text-anchor:start">{shown}</text>'
        )
        for j, value in enumerate(values[i]):
            x, y = margin + cell * j, margin + cell * i
            shade = value / most
            parts.append(
                f'<rect class="cell" x="{x}" y="{y}" width="{cell - 1}" height="{cell - 1}" '
                f'fill-opacity="{0.06 + 0.84 * shade:.2f}"/>'
            )
            if value:
                dark = " light" if shade > 0.55 else ""
                parts.append(
                    f'<text class="count{dark}" x="{x + cell / 2:.0f}" y="{y + cell / 2 + 4:.0f}">'
                    f"{compact(value)}</text>"
                )
    return "".join([*parts, "</svg>"])


def line(values: Sequence[float], label: str) -> str:
    """One series from left to right, its largest value marked."""
    width, height, left = 640, 140, 56
    most = max(values, default=0) or 1
    step = (width - left - 10) / max(1, len(values) - 1)
    points = " ".join(
        f"{left + step * i:.1f},{height - 24 - (height - 44) * value / most:.1f}"
        for i, value in enumerate(values)
    )
    return (
        f'<svg class="chart" viewBox="0 0 {width} {height}" width="{width}" role="img">'
        f'<line class="axis" x1="{left}" y1="{height - 24}" x2="{width - 10}" y2="{height - 24}"/>'
        f'<line class="axis" x1="{left}" y1="16" x2="{left}" y2="{height - 24}"/>'
        f'<text class="lane" x="{left - 6}" y="24">{compact(most)}</text>'
        f'<text class="lane" x="{left - 6}" y="{height - 22}">0</text>'
        f'<text class="note" x="{(left + width) / 2:.0f}" y="{height - 6}">{escape(label)}</text>'
        f'<polyline class="series" points="{points}"/></svg>'
    )


def bars(rows: Sequence[tuple[str, float, str]]) -> str:
    """Name, value and how it is written; negative values go left."""
    width, margin, high = 640, 120, 20
    most = max((abs(value) for _, value, _ in rows), default=0) or 1
    negative = any(value < 0 for _, value, _ in rows)
    zero = margin + (width - margin - 90) * (0.5 if negative else 0)
    scale = (width - margin - 90) * (0.5 if negative else 1) / most
    parts = [f'<svg class="chart" viewBox="0 0 {width} {high * len(rows) + 8}" width="{width}" role="img">']
    for i, (name, value, shown) in enumerate(rows):
        y, length = 4 + high * i, abs(value) * scale
        x = zero - length if value < 0 else zero
        parts.append(f'<text class="lane" x="{margin - 8}" y="{y + 14}">{escape(_short(name))}</text>')
        bar = f'<rect class="bar" x="{x:.1f}" y="{y + 2}" width="{max(1, length):.1f}" height="{high - 6}"/>'
        parts.append(bar)
        parts.append(
            f'<text class="value" x="{zero + max(0, value) * scale + 6:.1f}" y="{y + 14}">{shown}</text>'
        )
    return "".join([*parts, "</svg>"])


def compact(value: float) -> str:
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def duration(nanoseconds: float) -> str:
    for limit, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if abs(nanoseconds) >= limit:
            return f"{nanoseconds / limit:.3g} {unit}"
    return f"{nanoseconds:.3g} ns"


def _short(name: str, most: int = 16) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
