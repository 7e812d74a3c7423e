"""Positions for the picture of a topology: zones are boxes within boxes, with gateways on their upper edges.

Without zones, a spring layout with a fixed starting position places the processes: same file, same picture.
"""

from dataclasses import dataclass, field
from math import ceil, sqrt

import networkx as nx

from .communication import Topology

STEP, GAP, ROW, LABEL = 64, 28, 72, 14
MOST_IN_A_ROW = 8
MOST_SPRINGS = 400  # larger graphs go on a circle: networkx would need scipy, and the pictures look alike


@dataclass(frozen=True, slots=True)
class Box:
    zone: str
    x: float
    y: float
    width: float
    height: float


@dataclass(slots=True)
class GraphLayout:
    width: float
    height: float
    points: dict[str, tuple[float, float]] = field(default_factory=dict)
    boxes: list[Box] = field(default_factory=list)


def lay_out(topology: Topology) -> GraphLayout:
    if not topology.zones:
        return _by_springs(topology)
    housed = {name for zone in topology.zones.values() for name in (*zone.members, *zone.gateways)}
    homeless = [name for name in topology.graph if name not in housed]
    return _zone(topology, None, homeless, ())


def _by_springs(topology: Topology) -> GraphLayout:
    side = max(240.0, STEP * 1.6 * sqrt(len(topology.graph)))
    if len(topology.graph) <= MOST_SPRINGS:
        places = nx.spring_layout(topology.graph, seed=1, iterations=200)
    else:
        places = nx.circular_layout(topology.graph)
    xs, ys = zip(*(tuple(map(float, place)) for place in places.values()), strict=True)

    def scaled(value: float, values: tuple[float, ...]) -> float:
        spread = max(values) - min(values) or 1.0
        return round(GAP + (side - 2 * GAP) * (value - min(values)) / spread, 1)

    points = {name: (scaled(float(x), xs), scaled(float(y), ys)) for name, (x, y) in places.items()}
    return GraphLayout(side, side, points)


def _zone(topology: Topology, name: str | None, members: list[str], gateways: tuple[str, ...]) -> GraphLayout:
    """One zone with its upper left corner at (0, 0): gateways, then rows of members, then nested zones."""
    inner = [
        (zone, _zone(topology, zone.name, list(zone.members), zone.gateways))
        for zone in topology.zones.values()
        if zone.parent == name
    ]
    rows = [members[i : i + MOST_IN_A_ROW] for i in range(0, len(members), MOST_IN_A_ROW)]
    # Place the boxes side by side, in about as many columns as rows.
    across = max(3, ceil(sqrt(len(inner))))
    shelves = [inner[i : i + across] for i in range(0, len(inner), across)]
    rows_wide = [STEP * len(row) for row in (*rows, gateways)]
    widest = max([STEP, *rows_wide, *(sum(part.width + GAP for _, part in shelf) for shelf in shelves)])
    layout = GraphLayout(widest + GAP, 0.0)
    _row(layout, gateways, 0.0)
    y = ROW * 0.75
    for row in rows:
        _row(layout, row, y)
        y += ROW * 0.75
    y += 10 if rows else 0
    for shelf in shelves:
        x = (layout.width - sum(part.width + GAP for _, part in shelf) + GAP) / 2
        for zone, part in shelf:
            _put(layout, part, zone.name, x, y)
            x += part.width + GAP
        y += max(part.height for _, part in shelf) + ROW * 0.75
    layout.height = y - ROW * 0.75 + GAP + LABEL
    return layout


def _row(layout: GraphLayout, names: list[str] | tuple[str, ...], y: float) -> None:
    left = (layout.width - STEP * len(names)) / 2
    for i, name in enumerate(names):
        layout.points.setdefault(name, (left + STEP * (i + 0.5), y))


def _put(layout: GraphLayout, part: GraphLayout, zone: str, x: float, y: float) -> None:
    for name, (px, py) in part.points.items():
        layout.points.setdefault(name, (x + px, y + py))
    layout.boxes.append(Box(zone, x, y, part.width, part.height))
    layout.boxes += [Box(b.zone, x + b.x, y + b.y, b.width, b.height) for b in part.boxes]
