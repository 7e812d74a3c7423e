"""Pictures of communication graphs: SVG for the browser, trees of text for the terminal.

Meaning is never carried by colour alone: routers are square, members of separators have a second outline and
their separators' labels, links that messages do not travel on are dashed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ..view.palette import palette
from ..view.texts import markup, short

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
HIGHEST_ARC = 2 * MARGIN  # its middle rises half as high as its control point


class Vertex(NamedTuple):
    name: str
    x: float
    y: float
    router: bool = False
    label: str = ""  # of the separators it belongs to


class GraphEdge(NamedTuple):
    tail: str
    head: str
    carries: bool = True  # messages travel on it


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
    """Straight; between vertices at one height an arc, for others of the row would lie on the line."""
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
    """A tree as indented lines, each vertex as `show` writes it."""
    yield show(root)
    # A stack, not recursion: a line of processes is as deep as it is long.
    waiting = [(child, "", i == 0) for i, child in enumerate(reversed(children.get(root, ())))]
    while waiting:
        name, indent, last = waiting.pop()
        yield f"{indent}{'└─' if last else '├─'} {show(name)}"
        below = indent + ("   " if last else "│  ")
        waiting += [(child, below, i == 0) for i, child in enumerate(reversed(children.get(name, ())))]
