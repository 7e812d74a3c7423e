"""The space–time diagram of a computation, and the Hasse diagram of its relevant events, as SVG."""

import numpy as np

from ..causality.computation import INTERNAL, RECEIVE
from .prepared import Prepared
from .space_time import ACROSS, LEFT, LETTER, Arrow, Mark, space_time

MOST_EVENTS = 5_000  # of a picture
LONGEST = 14  # letters of a label in a Hasse diagram


def diagram(prepared: Prepared, standalone: str = "") -> str:
    """The whole computation, which has at most MOST_EVENTS events."""
    c = prepared.c
    faults = {e for fault in prepared.faults for e in fault.events}
    marks, arrows, holds = [], [], []
    for e in range(c.events):
        label = _label(prepared, e) if c.kind[e] == INTERNAL else c.event(e).message or ""
        shown = "" if c.kind[e] == RECEIVE else label
        marks.append(_mark(prepared, e, int(prepared.levels[e]), shown, label, fault=e in faults))
        arrival = int(prepared.arrivals[e])
        if arrival >= 0 and c.seq[e] - c.seq[arrival] > 1:
            holds.append((arrival, e))
        causes = (int(c.source[e]), *c.causes[c.cause_offsets[e] : c.cause_offsets[e + 1]].tolist())
        arrows += [Arrow(u, e) for u in causes if u >= 0 and c.process[u] != c.process[e]]
    present = len({mark.process for mark in marks})
    title = f"Space–time diagram of {c.events} events of {present} processes"
    return space_time(title, marks, arrows, holds, standalone=standalone)


def relevant_count(prepared: Prepared) -> int:
    """How many events the Hasse diagram would have."""
    return int(prepared.c.relevant.sum()) or prepared.c.events


def hasse(prepared: Prepared, standalone: str = "") -> str:
    """The relevant events, an arrow from each immediate predecessor; all events, where none is relevant.

    An event stands on the lane of its process and to the right of all that happened before it.
    """
    if prepared.reduction is None:
        return ""
    effects, causes, levels = prepared.reduction
    shown = np.flatnonzero(levels > 0).tolist()
    marks: list[Mark] = []
    at = {}
    for e in shown:
        at[e] = len(marks)
        label = _label(prepared, e)
        name = label or prepared.c.event(e).message or str(int(prepared.c.seq[e]))
        name = name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
        marks.append(_mark(prepared, e, int(levels[e]), name, label))
    arrows = [Arrow(at[u], at[e]) for e, u in zip(effects.tolist(), causes.tolist(), strict=True)]
    present = len({mark.process for mark in marks})
    # Levels stand as far apart as the longest label needs.
    across = max(float(ACROSS), max((len(mark.label) for mark in marks), default=0) * LETTER + LEFT / 2)
    title = f"Hasse diagram of {len(shown)} events of {present} processes"
    return space_time(title, marks, arrows, across=across, standalone=standalone)


def _mark(prepared: Prepared, e: int, level: int, shown: str, label: str, *, fault: bool = False) -> Mark:
    event = prepared.c.event(e)
    about = f"{event}{'' if not label or label == event.message else ': ' + label}"
    return Mark(event.process, level, int(prepared.c.kind[e]), shown, about, fault)


def _label(prepared: Prepared, e: int) -> str:
    return prepared.table["label"][int(prepared.c.row[e])].as_py() or ""
