"""A space–time diagram as SVG: for pictures, notebooks and reports, where no script may run."""

from collections.abc import Iterator, Sequence

from ..causality.computation import DELIVER, INTERNAL, RECEIVE, SEND, UNORDERED
from .palette import palette
from .prepared import Prepared
from .strokes import Arrows
from .texts import cut, markup, natural

MOST_EVENTS = 5_000
ACROSS, DOWN, LEFT, TOP = 30, 44, 20, 26
LETTER = 6.6
ROUND = (SEND, UNORDERED, RECEIVE)

STYLE = """
.hv { font: 11px system-ui, sans-serif; background: var(--board); }
.hv text { fill: var(--dim); text-anchor: middle; stroke: var(--board); stroke-width: 3; paint-order: stroke;
  stroke-linejoin: round; } .hv .name { fill: var(--ink); text-anchor: start; }
.hv .lane { stroke: var(--lane); } .hv .held { stroke: var(--held); stroke-width: 6; }
.hv .message { stroke: var(--message); } .hv .head { fill: var(--message); } .hv .event { fill: var(--ink); }
.hv .receive { fill: var(--board); stroke: var(--ink); stroke-width: 1.5; }
.hv .fault { fill: none; stroke: var(--fault); stroke-width: 2; } .hv .span { fill: var(--message); }
"""
"""What a picture needs of a page that has the palette."""
STANDALONE = palette(".hv") + STYLE


def diagram(prepared: Prepared, standalone: str = "") -> str:
    """The whole computation, which has at most MOST_EVENTS events. `standalone` is a style to put
    inside, for a picture that is not part of a page that has it."""
    c, levels = prepared.c, prepared.levels
    present = [p for p in range(c.processes) if c.chain_offsets[p + 1] > c.chain_offsets[p]]
    present.sort(key=lambda p: natural(c.process_names[p]))
    lane = {p: k for k, p in enumerate(present)}
    names, left = lane_names(prepared, present)
    wide = left + ACROSS * (int(levels.max(initial=0)) + 1)

    def place(e: int) -> tuple[float, float]:
        return left + ACROSS * (int(levels[e]) - 0.5), TOP + DOWN * (lane[int(c.process[e])] + 0.3)

    parts = [names]
    for k in range(len(present)):
        parts.append(f'<path class="lane" d="M{left:.0f} {TOP + DOWN * (k + 0.3):.1f}H{wide:.0f}"/>')
    for e in range(c.events):
        arrival = int(prepared.arrivals[e])
        if arrival >= 0 and c.seq[e] - c.seq[arrival] > 1:
            (ax, y), (bx, _) = place(arrival), place(e)
            parts.append(f'<path class="held" d="M{ax:.1f} {y:.1f}H{bx:.1f}"/>')
    arrows = Arrows(map(place, range(c.events)))
    for e in range(c.events):
        parts += [arrows.draw(place(int(u)), place(e)) for u in _causes(prepared, e)]
    parts += [_event(prepared, e, *place(e)) for e in range(c.events)]
    for p in present:
        parts += _labels(
            prepared, [(e, *place(e)) for e in c.chain[c.chain_offsets[p] : c.chain_offsets[p + 1]]]
        )
    for fault in prepared.faults:
        for x, y in map(place, fault.events):
            parts.append(f'<circle class="fault" cx="{x:.1f}" cy="{y:.1f}" r="8"/>')
    title = f"Space–time diagram of {c.events} events of {len(present)} processes"
    return svg(title, wide, TOP + DOWN * len(present), parts, standalone)


def lane_names(prepared: Prepared, present: Sequence[int]) -> tuple[str, float]:
    """The names of processes, one below the other, and where the room to their right begins."""
    names = [cut(prepared.c.process_names[p], 28) for p in present]
    texts = (
        f'<text class="name" x="{LEFT}" y="{TOP + DOWN * (k + 0.3) + 4:.0f}">{markup(name)}</text>'
        for k, name in enumerate(names)
    )
    return "".join(texts), LEFT + max((len(name) for name in names), default=0) * LETTER + 16


def svg(title: str, wide: float, tall: float, parts: Sequence[str], standalone: str = "") -> str:
    """A picture of these parts. `standalone` is a style to put inside, for one that is no part of a page."""
    namespace = ' xmlns="http://www.w3.org/2000/svg"' if standalone else ""
    style = f"<style>{standalone}</style>" if standalone else ""
    size = f'viewBox="0 0 {wide:.0f} {tall:.0f}" width="{wide:.0f}" height="{tall:.0f}"'
    about = f'role="img" aria-label="{markup(title)}"'
    return f'<svg{namespace} class="hv" {about} {size}>{style}{"".join(parts)}</svg>\n'


def _causes(prepared: Prepared, e: int) -> list[int]:
    c = prepared.c
    found = [int(c.source[e])] if c.source[e] >= 0 else []
    found += c.causes[c.cause_offsets[e] : c.cause_offsets[e + 1]].tolist()
    return [u for u in found if c.process[u] != c.process[e]]


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
    about = markup(cut(f"{event}{'' if not label or label == event.message else ': ' + label}", 300))
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
            yield f'<text x="{x:.1f}" y="{y + 18:.0f}">{markup(label)}</text>'
