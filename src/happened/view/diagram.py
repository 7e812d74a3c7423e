"""A space–time diagram as SVG: for pictures, notebooks and reports, where no script may run."""

from collections.abc import Iterator, Sequence
from html import escape

from ..causality.computation import DELIVER, INTERNAL, RECEIVE, SEND, UNORDERED
from .prepared import Prepared
from .texts import cut, natural

MOST_EVENTS = 5_000
ACROSS, DOWN, LEFT, TOP = 30, 44, 20, 26
LETTER = 6.6
ROUND = (SEND, UNORDERED, RECEIVE)

STYLE = """
.hv { font: 11px system-ui, sans-serif; --ink: #18202e; --dim: #5b6678; --lane: #ccd3de; --message: #6d84ad;
  --held: #f3d27a; --fault: #cb2a2a; --paper: #fff; }
@media (prefers-color-scheme: dark) { .hv { --ink: #e8ebf1; --dim: #9aa5b6; --lane: #333b49;
  --message: #6a82ad; --held: #6f5615; --fault: #ff6f67; --paper: #10131a; } }
.hv text { fill: var(--dim); text-anchor: middle; stroke: var(--paper); stroke-width: 3; paint-order: stroke;
  stroke-linejoin: round; } .hv .name { fill: var(--ink); text-anchor: start; }
.hv .lane { stroke: var(--lane); } .hv .held { stroke: var(--held); stroke-width: 6; }
.hv .message { stroke: var(--message); } .hv .head { fill: var(--message); } .hv .event { fill: var(--ink); }
.hv .receive { fill: var(--paper); stroke: var(--ink); stroke-width: 1.5; }
.hv .fault { fill: none; stroke: var(--fault); stroke-width: 2; }
"""


def diagram(prepared: Prepared, standalone: str = "") -> str:
    """The whole computation, which has at most MOST_EVENTS events. `standalone` is a style to put
    inside, for a picture that is not part of a page that has it."""
    c, levels = prepared.c, prepared.levels
    present = [p for p in range(c.processes) if c.chain_offsets[p + 1] > c.chain_offsets[p]]
    present.sort(key=lambda p: natural(c.process_names[p]))
    lane = {p: k for k, p in enumerate(present)}
    names = [cut(c.process_names[p], 28) for p in present]
    left = LEFT + max((len(name) for name in names), default=0) * LETTER + 16
    wide = left + ACROSS * (int(levels.max(initial=0)) + 1)
    tall = TOP + DOWN * len(present)

    def place(e: int) -> tuple[float, float]:
        return left + ACROSS * (int(levels[e]) - 0.5), TOP + DOWN * (lane[int(c.process[e])] + 0.3)

    parts = [f"<style>{standalone}</style>" if standalone else ""]
    for name, k in zip(names, range(len(names)), strict=True):
        y = TOP + DOWN * (k + 0.3)
        parts.append(
            f'<text class="name" x="{LEFT}" y="{y + 4:.0f}">{escape(name)}</text>'
            f'<path class="lane" d="M{left:.0f} {y:.1f}H{wide:.0f}"/>'
        )
    for e in range(c.events):
        arrival = int(prepared.arrivals[e])
        if arrival >= 0 and c.seq[e] - c.seq[arrival] > 1:
            (ax, y), (bx, _) = place(arrival), place(e)
            parts.append(f'<path class="held" d="M{ax:.1f} {y:.1f}H{bx:.1f}"/>')
    for e in range(c.events):
        parts += [_arrow(*place(int(u)), *place(e)) for u in _causes(prepared, e)]
    parts += [_event(prepared, e, *place(e)) for e in range(c.events)]
    for p in present:
        parts += _labels(
            prepared, [(e, *place(e)) for e in c.chain[c.chain_offsets[p] : c.chain_offsets[p + 1]]]
        )
    for fault in prepared.faults:
        for x, y in map(place, fault.events):
            parts.append(f'<circle class="fault" cx="{x:.1f}" cy="{y:.1f}" r="8"/>')
    namespace = ' xmlns="http://www.w3.org/2000/svg"' if standalone else ""
    title = escape(f"Space–time diagram of {c.events} events of {len(present)} processes")
    return (
        f'<svg{namespace} class="hv" role="img" aria-label="{title}" '
        f'viewBox="0 0 {wide:.0f} {tall:.0f}" width="{wide:.0f}" height="{tall:.0f}">{"".join(parts)}</svg>\n'
    )


def _causes(prepared: Prepared, e: int) -> list[int]:
    c = prepared.c
    found = [int(c.source[e])] if c.source[e] >= 0 else []
    found += c.causes[c.cause_offsets[e] : c.cause_offsets[e + 1]].tolist()
    return [u for u in found if c.process[u] != c.process[e]]


def _arrow(ax: float, ay: float, bx: float, by: float) -> str:
    length = ((bx - ax) ** 2 + (by - ay) ** 2) ** 0.5 or 1.0
    dx, dy = (bx - ax) / length, (by - ay) / length
    tip_x, tip_y = bx - 6 * dx, by - 6 * dy
    base_x, base_y = tip_x - 7 * dx, tip_y - 7 * dy
    return (
        f'<path class="message" d="M{ax:.1f} {ay:.1f}L{tip_x:.1f} {tip_y:.1f}"/><path class="head" '
        f'd="M{tip_x:.1f} {tip_y:.1f}L{base_x - 3 * dy:.1f} {base_y + 3 * dx:.1f}'
        f'L{base_x + 3 * dy:.1f} {base_y - 3 * dx:.1f}Z"/>'
    )


def _event(prepared: Prepared, e: int, x: float, y: float) -> str:
    c = prepared.c
    kind, event = int(c.kind[e]), c.event(e)
    if kind == DELIVER:
        mark = f'<path class="event" d="M{x:.1f} {y - 5:.1f}l5 5-5 5-5-5z">'
    elif kind in ROUND:
        mark = f'<circle class="{"receive" if kind == RECEIVE else "event"}" cx="{x:.1f}" cy="{y:.1f}" r="4">'
    else:
        mark = f'<path class="event" d="M{x - 3:.1f} {y - 3:.1f}h6v6h-6z">'
    shape = "circle" if kind in ROUND else "path"
    label = _label(prepared, e)
    about = escape(cut(f"{event}{'' if not label or label == event.message else ': ' + label}", 300))
    return f"{mark}<title>{about}</title></{shape}>"


def _label(prepared: Prepared, e: int) -> str | None:
    c = prepared.c
    if c.kind[e] != INTERNAL:
        return c.event(e).message
    found: str | None = prepared.table["label"][int(c.row[e])].as_py()
    return found


def _labels(prepared: Prepared, places: Sequence[tuple[int, float, float]]) -> Iterator[str]:
    """Names below the events of one process, where they are short and none stands over another."""
    free = 0.0
    for e, x, y in places:
        label = _label(prepared, int(e))
        half = len(label or "") * LETTER / 2
        if label and prepared.c.kind[e] != RECEIVE and 2 * half < 1.8 * ACROSS and x - half > free:
            free = x + half
            yield f'<text x="{x:.1f}" y="{y + 18:.0f}">{escape(label)}</text>'
