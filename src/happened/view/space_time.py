"""Space–time pictures as SVG for exports, notebooks and reports, where no script may run.

This is Python's only renderer of them, as assets/ is JavaScript's. Diagrams, Hasse diagrams and the witnesses
of reports pass it marks on the lanes of processes, arrows between the marks, and holds.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ..causality.computation import DELIVER, INTERNAL, RECEIVE
from .palette import palette
from .texts import cut, markup, natural, short

ACROSS, DOWN, LEFT, TOP = 30, 44, 20, 26
LETTER = 6.6
LONGEST_NAME = 28
LINE = 14  # pixels between the lines of a label
CLEAR = 7.0  # pixels between an arrow's line and the middle of any mark but its two ends
BENDS = (16.0, -16.0, 28.0, -28.0)  # sideways shifts of an arrow's middle, tried in this order
HEAD = 7.0

STYLE = """
.hv { font: 11px system-ui, sans-serif; background: var(--board); }
.hv text { fill: var(--dim); text-anchor: middle; stroke: var(--board); stroke-width: 3; paint-order: stroke;
  stroke-linejoin: round; } .hv .name { fill: var(--ink); text-anchor: start; }
.hv .lane { stroke: var(--lane); } .hv .held { stroke: var(--held); stroke-width: 6; }
.hv .message { stroke: var(--message); } .hv .head { fill: var(--message); } .hv .event { fill: var(--ink); }
.hv .message.fault { stroke: var(--fault); stroke-dasharray: 5 3; } .hv .head.fault { fill: var(--fault); }
.hv .receive { fill: var(--board); stroke: var(--ink); stroke-width: 1.5; }
.hv .ring { fill: none; stroke: var(--fault); stroke-width: 2; } .hv .span { fill: var(--message); }
"""
"""The style that a picture needs in addition to the palette."""
STANDALONE = palette(".hv") + STYLE

Place = tuple[float, float]


class Mark(NamedTuple):
    """An event: the process on whose lane it stands, its position to the right, and how it is drawn.

    kind   the kind of the event in a computation; it decides the shape
    label  the text below the mark, if there is room; it may have several lines
    about  the text under the pointer
    """

    process: str
    level: float
    kind: int = INTERNAL
    label: str = ""
    about: str = ""
    fault: bool = False


class Arrow(NamedTuple):
    """An arrow between two marks, given by their indices in the list of marks."""

    tail: int
    head: int
    fault: bool = False


def space_time(
    title: str,
    marks: Sequence[Mark],
    arrows: Iterable[Arrow],
    holds: Iterable[tuple[int, int]] = (),
    *,
    across: float = ACROSS,
    down: float = DOWN,
    kind: str = "",
    standalone: str = "",
) -> str:
    """Processes as horizontal lines, and marks on them.

    holds       pairs of marks between which a message was held
    across      pixels between levels; likewise `down` between lanes
    kind        a CSS class of the picture
    standalone  a style to include if the picture is not part of a page with that style
    """
    names = sorted({mark.process for mark in marks}, key=natural)
    heights = {name: TOP + down * (k + 0.3) for k, name in enumerate(names)}
    shown = [cut(name, LONGEST_NAME) for name in names]
    left = LEFT + max(map(len, shown), default=0) * LETTER + 16
    wide = left + across * (max((mark.level for mark in marks), default=0) + 1)
    places = [(left + across * (mark.level - 0.5), heights[mark.process]) for mark in marks]
    parts = [
        f'<text class="name" x="{LEFT}" y="{y + 4:.0f}">{markup(name)}</text>'
        f'<path class="lane" d="M{left:.0f} {y:.1f}H{wide:.0f}"/>'
        for name, y in zip(shown, heights.values(), strict=True)
    ]
    for begin, end in holds:
        (x, y), (until, _) = places[begin], places[end]
        parts.append(f'<path class="held" d="M{x:.1f} {y:.1f}H{until:.1f}"/>')
    lines = _Lines(places)
    parts += [lines.draw(places[arrow.tail], places[arrow.head], arrow.fault) for arrow in arrows]
    parts += [_mark(mark, *place) for mark, place in zip(marks, places, strict=True)]
    top = min(heights.values(), default=0)
    lanes: dict[str, list[tuple[str, float, float]]] = {name: [] for name in names}
    for mark, place in zip(marks, places, strict=True):
        lanes[mark.process].append((mark.label, *place))
    for on_lane in lanes.values():
        parts += _labels(on_lane, across, top)
    return svg(title, wide, TOP + down * len(names), parts, standalone, kind)


def svg(
    title: str, wide: float, tall: float, parts: Sequence[str], standalone: str = "", kind: str = ""
) -> str:
    """A picture of these parts."""
    namespace = ' xmlns="http://www.w3.org/2000/svg"' if standalone else ""
    style = f"<style>{standalone}</style>" if standalone else ""
    size = f'viewBox="0 0 {wide:.0f} {tall:.0f}" width="{wide:.0f}" height="{tall:.0f}"'
    about = f'class="{f"hv {kind}".strip()}" role="img" aria-label="{markup(title)}"'
    return f"<svg{namespace} {about} {size}>{style}{''.join(parts)}</svg>\n"


def _mark(mark: Mark, x: float, y: float) -> str:
    """Sends are discs, arrivals rings, deliveries diamonds, internal events squares; faults have a ring."""
    if mark.kind == DELIVER:
        shape = f'path class="event" d="M{x:.1f} {y - 5:.1f}l5 5-5 5-5-5z"'
    elif mark.kind == INTERNAL:
        shape = f'path class="event" d="M{x - 3:.1f} {y - 3:.1f}h6v6h-6z"'
    else:
        kind = "receive" if mark.kind == RECEIVE else "event"
        shape = f'circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4"'
    ring = f'<circle class="ring" cx="{x:.1f}" cy="{y:.1f}" r="8"/>' if mark.fault else ""
    about = f"<title>{markup(cut(mark.about, 300))}</title>" if mark.about else ""
    return f"<{shape}>{about}</{shape.partition(' ')[0]}>{ring}"


def _labels(marks: Iterable[tuple[str, float, float]], across: float, top: float) -> Iterator[str]:
    """The labels of one lane that are short enough and overlap no other.

    Arrows leave the topmost lane downwards, so labels of several lines stand above that lane.
    """
    free = 0.0
    for label, x, y in sorted(marks, key=lambda mark: mark[1]):
        lines = label.split("\n")
        half = max(map(len, lines)) * LETTER / 2
        if not label or 2 * half >= 1.8 * across or x - half <= free:
            continue
        free = x + half
        first = y - 12 - LINE * (len(lines) - 1) if y == top and len(lines) > 1 else y + 18
        for k, line in enumerate(lines):
            yield f'<text x="{x:.1f}" y="{first + LINE * k:.0f}">{markup(line)}</text>'


class _Lines:
    """Arrows between marks: straight, or as an arc if another mark is in the way."""

    def __init__(self, places: Iterable[Place]) -> None:
        self._rows: dict[float, list[float]] = {}
        for x, y in places:
            self._rows.setdefault(y, []).append(x)
        for row in self._rows.values():
            row.sort()

    def draw(self, start: Place, end: Place, fault: bool = False) -> str:
        """The line and head of an arrow."""
        bend = 0.0
        if self._is_blocked(start, end, 0.0):
            bend = next((by for by in BENDS if not self._is_blocked(start, end, by)), BENDS[0])
        control = _aside(start, end, 2 * bend)  # a curve bends half as far aside as its control point
        dx, dy = _direction(control, end)
        tip_x, tip_y = end[0] - 6 * dx, end[1] - 6 * dy
        base_x, base_y = tip_x - HEAD * dx, tip_y - HEAD * dy
        curve = f"Q{control[0]:.1f} {control[1]:.1f} " if bend else "L"
        kind = " fault" if fault else ""
        return (
            f'<path class="message{kind}" fill="none" '
            f'd="M{start[0]:.1f} {start[1]:.1f}{curve}{tip_x:.1f} {tip_y:.1f}"/>'
            f'<path class="head{kind}" d="M{tip_x:.1f} {tip_y:.1f}'
            f"L{base_x - 3 * dy:.1f} {base_y + 3 * dx:.1f}"
            f'L{base_x + 3 * dy:.1f} {base_y - 3 * dx:.1f}Z"/>'
        )

    def _is_blocked(self, start: Place, end: Place, bend: float) -> bool:
        """Whether a third mark, on the lanes that the arrow crosses, is nearer to the arrow than CLEAR."""
        control = _aside(start, end, 2 * bend)
        low, high = sorted((start[1], end[1]))
        for y, row in self._rows.items():
            if not low < y < high:
                continue
            share = (y - start[1]) / (end[1] - start[1])
            x = (1 - share) ** 2 * start[0] + 2 * share * (1 - share) * control[0] + share**2 * end[0]
            if bisect_left(row, x - CLEAR) < bisect_right(row, x + CLEAR):
                return True
        return False


def _aside(start: Place, end: Place, by: float) -> Place:
    """The middle of two places, moved sideways along the lanes."""
    return (start[0] + end[0]) / 2 + by, (start[1] + end[1]) / 2


def _direction(start: Place, end: Place) -> Place:
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = (dx * dx + dy * dy) ** 0.5 or 1.0
    return dx / length, dy / length


def clipped(label: str, longest: int) -> str:
    """A label with each line cut to `longest` letters."""
    return "\n".join(short(line, longest) for line in label.split("\n"))
