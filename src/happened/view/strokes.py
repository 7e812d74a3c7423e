"""Arrows of pictures, led around what they do not belong to."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

CLEAR = 7.0  # pixels between the line of an arrow and the middle of an event that is not its own
BENDS = (16.0, -16.0, 28.0, -28.0)  # how far its middle may be led aside, tried in this order
HEAD = 7.0

Place = tuple[float, float]


class Arrows:
    """Arrows between places that events stand on: straight, or in a bow where another event is in the way."""

    def __init__(self, places: Iterable[Place]) -> None:
        self._rows: dict[float, list[float]] = {}
        for x, y in places:
            self._rows.setdefault(y, []).append(x)
        for row in self._rows.values():
            row.sort()

    def draw(self, start: Place, end: Place, kind: str = "message") -> str:
        """The line and the head of an arrow as SVG; `kind` is the class of its line."""
        bend = 0.0
        if self._is_blocked(start, end, 0.0):
            bend = next((by for by in BENDS if not self._is_blocked(start, end, by)), BENDS[0])
        (ax, ay), (bx, by) = start, end
        control = _aside(start, end, 2 * bend)  # a curve goes half as far aside as its control point stands
        dx, dy = _direction(control, end)
        tip_x, tip_y = bx - 6 * dx, by - 6 * dy
        base_x, base_y = tip_x - HEAD * dx, tip_y - HEAD * dy
        line = (
            f"L{tip_x:.1f} {tip_y:.1f}"
            if not bend
            else f"Q{control[0]:.1f} {control[1]:.1f} {tip_x:.1f} {tip_y:.1f}"
        )
        return (
            f'<path class="{kind}" fill="none" d="M{ax:.1f} {ay:.1f}{line}"/><path class="head" '
            f'd="M{tip_x:.1f} {tip_y:.1f}L{base_x - 3 * dy:.1f} {base_y + 3 * dx:.1f}'
            f'L{base_x + 3 * dy:.1f} {base_y - 3 * dx:.1f}Z"/>'
        )

    def _is_blocked(self, start: Place, end: Place, bend: float) -> bool:
        """Whether an event that is neither end is nearer to the arrow than CLEAR, on the rows it crosses."""
        control = _aside(start, end, 2 * bend)
        low, high = sorted((start[1], end[1]))
        for y, row in self._rows.items():
            if not low < y < high:
                continue
            share = (y - start[1]) / (end[1] - start[1])
            x = _at(share, start[0], control[0], end[0])
            if bisect_left(row, x - CLEAR) < bisect_right(row, x + CLEAR):
                return True
        return False


def _at(share: float, start: float, control: float, end: float) -> float:
    return (1 - share) ** 2 * start + 2 * share * (1 - share) * control + share**2 * end


def _aside(start: Place, end: Place, by: float) -> Place:
    """The middle of two places, moved sideways along the rows."""
    return (start[0] + end[0]) / 2 + by, (start[1] + end[1]) / 2


def _direction(start: Place, end: Place) -> Place:
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = (dx * dx + dy * dy) ** 0.5 or 1.0
    return dx / length, dy / length
