"""Matrices, bars, lines and communication graphs as SVG text; and trees as text for the terminal.

A name that is too long is cut; its full text shows under the pointer. Meaning never depends on colour alone:
in graphs, routers are square, members of separators have a second outline and a label for each separator,
and links that carry no messages are dashed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from ..view.palette import palette
from ..view.texts import compact, markup, short

LETTER = 6.8  # approximate width of a letter in the pictures' font
CELL = 42


class Bar(NamedTuple):
    """A value and its text; `least`, if given, is marked inside the bar."""

    name: str
    value: float
    shown: str
    least: float | None = None


def matrix(names: Sequence[str], values: Any) -> str:
    """A square of counts from row to column, darker for larger counts, with the number in each cell."""
    margin = _margin(names, 20)
    top = round(0.9 * margin) + 14  # column names are rotated
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
    """One series from left to right, with its largest value marked; `ends` are the texts under both ends."""
    width, height, left = 760, 180, 56
    floor, ceiling = height - 26, 14
    most = max(values, default=0) or 1
    drawn = list(values) * 2 if len(values) == 1 else values  # a single value is drawn as a level line
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
    high, room = 22, 150  # height of a bar, and width for the text behind it
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
    """The width needed for names, each cut to `most` letters."""
    return 20 + round(LETTER * min(most, max(map(len, names), default=0)))


def _text(kind: str, x: float, y: float, text: str, most: int) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{_cut(text, most)}</text>'


def _cut(text: str, most: int) -> str:
    whole = f"<title>{escape(text)}</title>" if len(text) > most else ""
    return f"{whole}{escape(short(text, most))}"


STYLE = """
svg { font: 12px system-ui, sans-serif; background: var(--board); }
text { fill: var(--ink); stroke: var(--board); stroke-width: 3px; paint-order: stroke; }
.name { text-anchor: middle; } .label { text-anchor: middle; font-size: 10px; }
.zone { fill: var(--soft); fill-opacity: .6; stroke: var(--line); }
.link { stroke: var(--accent); stroke-width: 2; fill: none; }
.link.off { stroke: var(--line); stroke-width: 1; stroke-dasharray: 4 4; }
.vertex { fill: var(--board); stroke: var(--ink); stroke-width: 1.5; }
.outline { fill: none; stroke: var(--accent); stroke-width: 1.5; }
"""
MARGIN, LINE = 40, 18
HIGHEST_ARC = 2 * MARGIN  # an arc's middle rises half as high as its control point


class Vertex(NamedTuple):
    name: str
    x: float
    y: float
    router: bool = False
    label: str = ""  # names of the separators that the vertex belongs to


class GraphEdge(NamedTuple):
    tail: str
    head: str
    carries: bool = True  # whether messages travel on the link


class Region(NamedTuple):
    name: str
    x: float
    y: float
    width: float
    height: float


def graph_svg(
    vertices: Sequence[Vertex],
    links: Sequence[GraphEdge],
    regions: Sequence[Region] = (),
    notes: Sequence[str] = (),
    title: str = "communication graph",
) -> str:
    """A standalone SVG; `notes` are lines of text below the drawing."""
    wide = (*(v.x for v in vertices), *(r.x + r.width for r in regions), *(7.0 * len(n) for n in notes))
    width = max(300.0, *wide)
    bottom = max([*(v.y + 24 for v in vertices), *(r.y + r.height for r in regions), 40.0])
    height = bottom + LINE * (len(notes) + 1)
    size = f"{width + 2 * MARGIN:.0f}", f"{height + 2 * MARGIN:.0f}"
    places = {vertex.name: vertex for vertex in vertices}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{-MARGIN} {-MARGIN} {size[0]} {size[1]}" '
        f'width="{size[0]}" height="{size[1]}" role="img">',
        f"<title>{markup(title)}</title><style>{palette('svg')}{STYLE}</style>",
    ]
    parts += map(_region, regions)
    parts += (_link(places[link.tail], places[link.head], link.carries) for link in links)
    parts += map(_vertex, vertices)
    for i, text in enumerate(notes):
        parts.append(f'<text x="0" y="{bottom + LINE * (i + 1.5):.1f}">{markup(text)}</text>')
    return "".join([*parts, "</svg>\n"])


def _region(region: Region) -> str:
    x, y, width, height = (f"{value:.1f}" for value in region[1:])
    left, foot = region.x + 8, region.y + region.height - 6
    return (
        f'<rect class="zone" x="{x}" y="{y}" width="{width}" height="{height}" rx="8"/>'
        f'<text x="{left:.1f}" y="{foot:.1f}">{markup(short(region.name))}</text>'
    )


def _link(tail: Vertex, head: Vertex, carries: bool) -> str:
    """A straight line; an arc between vertices at one height, where other vertices would lie on the line."""
    kind = "link" if carries else "link off"
    if abs(tail.y - head.y) > 1:
        ends = f'x1="{tail.x:.1f}" y1="{tail.y:.1f}" x2="{head.x:.1f}" y2="{head.y:.1f}"'
        return f'<line class="{kind}" {ends}/>'
    middle, rise = (tail.x + head.x) / 2, tail.y - min(0.35 * abs(tail.x - head.x), HIGHEST_ARC)
    curve = f"M{tail.x:.1f},{tail.y:.1f} Q{middle:.1f},{rise:.1f} {head.x:.1f},{head.y:.1f}"
    return f'<path class="{kind}" d="{curve}"/>'


def _vertex(vertex: Vertex) -> str:
    def shape(kind: str, half: int) -> str:
        if vertex.router:
            x, y = vertex.x - half, vertex.y - half
            return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{2 * half}" height="{2 * half}"/>'
        return f'<circle class="{kind}" cx="{vertex.x:.1f}" cy="{vertex.y:.1f}" r="{half}"/>'

    drawn = shape("vertex", 7)
    if vertex.label:
        drawn += shape("outline", 10)
        label = markup(short(vertex.label))
        drawn += f'<text class="label" x="{vertex.x:.1f}" y="{vertex.y - 14:.1f}">{label}</text>'
    name = markup(short(vertex.name, 10))
    return drawn + f'<text class="name" x="{vertex.x:.1f}" y="{vertex.y + 22:.1f}">{name}</text>'


def tree_text(root: str, children: Mapping[str, Sequence[str]], show: Callable[[str], str]) -> Iterator[str]:
    """A tree as indented lines; `show` gives the text of each vertex."""
    yield show(root)
    # A stack instead of recursion: a chain of processes is as deep as it is long.
    waiting = [(child, "", i == 0) for i, child in enumerate(reversed(children.get(root, ())))]
    while waiting:
        name, indent, last = waiting.pop()
        yield f"{indent}{'└─' if last else '├─'} {show(name)}"
        below = indent + ("   " if last else "│  ")
        waiting += [(child, below, i == 0) for i, child in enumerate(reversed(children.get(name, ())))]
