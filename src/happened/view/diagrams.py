"""The space–time diagram of a computation, the Hasse diagram of its relevant events, and the timeline of the
spans of a request, as SVG."""

import numpy as np

from ..causality.computation import INTERNAL, RECEIVE
from .prepared import Prepared
from .space_time import ACROSS, LEFT, LETTER, Arrow, Mark, space_time, svg
from .span_rows import SpanRows, span_rows
from .texts import cut, duration, markup

MOST_EVENTS = 5_000  # events in a picture
LONGEST = 14  # letters of a label in a Hasse diagram
MOST_ROWS = 40  # of a timeline, and its sizes
ROW, TOP, WIDE, INDENT = 22, 30, 520, 12
LONGEST_SPAN = 36  # letters of a name


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
        causes = (int(c.source[e]), *prepared.recorded_causes(e))
        arrows += [Arrow(u, e) for u in causes if u >= 0 and c.process[u] != c.process[e]]
    present = len({mark.process for mark in marks})
    title = f"Space–time diagram of {c.events} events of {present} processes"
    return space_time(title, marks, arrows, holds, standalone=standalone)


def relevant_count(prepared: Prepared) -> int:
    """The number of events in the Hasse diagram."""
    return int(prepared.c.relevant.sum()) or prepared.c.events


def hasse(prepared: Prepared, standalone: str = "") -> str:
    """The Hasse diagram of the relevant events (of all, if none is): an arrow per immediate predecessor.

    An event stands on the lane of its process, to the right of all events that happened before it.
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


def timeline(prepared: Prepared, standalone: str = "") -> str:
    """The first MOST_ROWS spans of the request with most spans, a bar for each, children below their parents;
    "" if no spans with times are recorded."""
    rows = span_rows(prepared.c, prepared.table, np.arange(prepared.c.events))
    children = _children(rows)
    if -1 not in children:
        return ""
    chosen = max((_below(root, children) for root in children[-1]), key=len)
    shown = chosen[:MOST_ROWS]
    times = [_times(rows, k) for k, _ in shown]
    begin = min(start for start, _ in times)
    long = max(max(end for _, end in times) - begin, 1)
    names = [_name(prepared, rows.first[k]) for k, _ in shown]
    texts = [cut(name, LONGEST_SPAN) for name in names]
    widths = (INDENT * deep + LETTER * len(text) for text, (_, deep) in zip(texts, shown, strict=True))
    left = LEFT + max(widths)
    parts = [_axis(left, long, len(shown))]
    for at, ((_, deep), (start, end), name, text) in enumerate(zip(shown, times, names, texts, strict=True)):
        y, took = TOP + ROW * at, duration(end - start)
        x, width = left + (start - begin) / long * WIDE, max(2.0, (end - start) / long * WIDE)
        parts.append(
            f'<text class="name" x="{LEFT + INDENT * deep}" y="{y + 15}">{markup(text)}</text>'
            f'<rect class="span" x="{x:.1f}" y="{y + 4}" width="{width:.1f}" height="{ROW - 8}">'
            f"<title>{markup(name)}: {took}</title></rect>"
            f'<text class="name" x="{x + width + 5:.1f}" y="{y + 15}">{took}</text>'
        )
    left_out = len(chosen) - len(shown)
    if left_out:
        y = TOP + ROW * len(shown)
        parts.append(f'<text class="name" x="{LEFT}" y="{y + 15}">{left_out:,} more spans</text>')
    tall = TOP + ROW * (len(shown) + bool(left_out)) + 6
    return svg(f"Timeline of {len(shown)} spans", left + WIDE + 80, tall, parts, standalone)


def _children(rows: SpanRows) -> dict[int, list[int]]:
    """The children of each span, with the roots under -1; only spans with both times."""
    timed = [None not in times for times in zip(rows.start, rows.end, strict=True)]
    children: dict[int, list[int]] = {}
    for k in np.flatnonzero(timed).tolist():
        parent = rows.parent[k]
        while parent >= 0 and not timed[parent]:
            parent = rows.parent[parent]
        children.setdefault(parent, []).append(k)
    return children


def _below(root: int, children: dict[int, list[int]]) -> list[tuple[int, int]]:
    """A span and all its descendants, each with its depth, in drawing order."""
    found, waiting = [], [(root, 0)]
    while waiting:
        k, deep = waiting.pop()
        found.append((k, deep))
        waiting += [(child, deep + 1) for child in reversed(children.get(k, ()))]
    return found


def _times(rows: SpanRows, k: int) -> tuple[int, int]:
    start = rows.start[k] or 0
    return start, max(rows.end[k] or 0, start)


def _name(prepared: Prepared, e: int) -> str:
    row = prepared.table.slice(int(prepared.c.row[e]), 1).to_pylist(maps_as_pydicts="strict")[0]
    service = (row["attributes"] or {}).get("service") or row["process"]
    return f"{service}: {row['label']}" if row["label"] else str(service)


def _axis(left: float, long: int, rows: int) -> str:
    marks = ((left + WIDE * quarter / 4, duration(long * quarter // 4)) for quarter in range(5))
    return "".join(
        f'<path class="lane" d="M{x:.1f} {TOP - 6}V{TOP + ROW * rows}"/>'
        f'<text x="{x:.1f}" y="{TOP - 12}">{text}</text>'
        for x, text in marks
    )
