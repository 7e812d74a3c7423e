"""The Hasse diagram of a computation as SVG: its relevant events, an arrow from each immediate predecessor.

An event stands in the row of its process and to the right of all that happened before it. Where no event is
marked as relevant, all are.
"""

import numpy as np

from .diagram import ACROSS, DOWN, LEFT, LETTER, TOP, lane_names, svg
from .prepared import Prepared
from .strokes import Arrows
from .texts import cut, markup, natural

MOST_EVENTS = 2_000
LONGEST = 14  # letters of a label


def relevant_count(prepared: Prepared) -> int:
    """How many events the diagram would have."""
    marked = int(prepared.c.relevant.sum())
    return marked or prepared.c.events


def hasse(prepared: Prepared, standalone: str = "") -> str:
    """The diagram of at most MOST_EVENTS events. `standalone` is a style to put inside, see `diagram`."""
    if prepared.reduction is None:
        return ""
    c = prepared.c
    effects, causes, levels = prepared.reduction
    shown = np.flatnonzero(levels > 0).tolist()
    present = sorted({int(c.process[e]) for e in shown}, key=lambda p: natural(c.process_names[p]))
    lane = {p: k for k, p in enumerate(present)}
    names, left = lane_names(prepared, present)
    step = _step(prepared, shown)

    def place(e: int) -> tuple[float, float]:
        return left + step * (int(levels[e]) - 0.5), TOP + DOWN * (lane[int(c.process[e])] + 0.3)

    wide = left + step * (int(levels.max(initial=0)) + 0.5)
    arrows = Arrows(place(e) for e in shown)
    parts = [names]
    for effect, cause in zip(effects.tolist(), causes.tolist(), strict=True):
        parts.append(arrows.draw(place(cause), place(effect)))
    for e in shown:
        x, y = place(e)
        about = markup(cut(f"{c.event(e)}{': ' + label if (label := _label(prepared, e)) else ''}", 300))
        parts.append(f'<circle class="event" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{about}</title></circle>')
        parts.append(f'<text x="{x:.1f}" y="{y + 18:.0f}">{markup(_short(_name(prepared, e)))}</text>')
    title = f"Hasse diagram of {len(shown)} events of {len(present)} processes"
    return svg(title, wide, TOP + DOWN * len(present), parts, standalone)


def _step(prepared: Prepared, shown: list[int]) -> float:
    """Levels stand as far apart as the longest label needs."""
    longest = max((len(_short(_name(prepared, e))) for e in shown), default=0)
    return max(float(ACROSS), longest * LETTER + LEFT / 2)


def _label(prepared: Prepared, e: int) -> str:
    return prepared.table["label"][int(prepared.c.row[e])].as_py() or ""


def _name(prepared: Prepared, e: int) -> str:
    c = prepared.c
    return _label(prepared, e) or (c.event(e).message or "") or str(int(c.seq[e]))


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
