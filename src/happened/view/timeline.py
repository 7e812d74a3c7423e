"""The spans of one request as a timeline in SVG: a bar for each, children below their parents."""

import numpy as np

from .prepared import Prepared
from .space_time import LEFT, LETTER, svg
from .span_rows import SpanRows, span_rows
from .texts import cut, duration, markup

MOST_ROWS = 40
ROW, TOP, WIDE = 22, 30, 520
LONGEST = 36  # letters of a name
INDENT = 12


def timeline(prepared: Prepared, standalone: str = "") -> str:
    """The request with most spans, or its first MOST_ROWS; "" where no spans with times are recorded."""
    rows = span_rows(prepared.c, prepared.table, np.arange(prepared.c.events))
    children, roots = _tree(rows)
    if not roots:
        return ""
    chosen = max((_below(root, children) for root in roots), key=len)
    shown = chosen[:MOST_ROWS]
    begin = min(_start(rows, k) for k, _ in shown)
    long = max(max(_end(rows, k) for k, _ in shown) - begin, 1)
    names = [cut(_name(prepared, rows, k), LONGEST) for k, _ in shown]
    left = LEFT + max(
        INDENT * deep + LETTER * len(name) for name, (_, deep) in zip(names, shown, strict=True)
    )
    parts = [_axis(left, long, len(shown))]
    for at, ((k, deep), name) in enumerate(zip(shown, names, strict=True)):
        y = TOP + ROW * at
        x = left + (_start(rows, k) - begin) / long * WIDE
        width = max(2.0, (_end(rows, k) - _start(rows, k)) / long * WIDE)
        took = duration(_end(rows, k) - _start(rows, k))
        parts.append(
            f'<text class="name" x="{LEFT + INDENT * deep}" y="{y + 15}">{markup(name)}</text>'
            f'<rect class="span" x="{x:.1f}" y="{y + 4}" width="{width:.1f}" height="{ROW - 8}">'
            f"<title>{markup(_name(prepared, rows, k))}: {took}</title></rect>"
            f'<text class="name" x="{x + width + 5:.1f}" y="{y + 15}">{took}</text>'
        )
    left_out = len(chosen) - len(shown)
    if left_out:
        y = TOP + ROW * len(shown)
        parts.append(f'<text class="name" x="{LEFT}" y="{y + 15}">{left_out:,} more spans</text>')
    tall = TOP + ROW * (len(shown) + bool(left_out)) + 6
    return svg(f"Timeline of {len(shown)} spans", left + WIDE + 80, tall, parts, standalone)


def _tree(rows: SpanRows) -> tuple[dict[int, list[int]], list[int]]:
    """The children of each span, and the roots; only spans that have both times."""
    children: dict[int, list[int]] = {}
    roots = []
    for k in range(len(rows)):
        if rows.start[k] is None or rows.end[k] is None:
            continue
        parent = rows.parent[k]
        while parent >= 0 and (rows.start[parent] is None or rows.end[parent] is None):
            parent = rows.parent[parent]
        if parent < 0:
            roots.append(k)
        else:
            children.setdefault(parent, []).append(k)
    return children, roots


def _below(root: int, children: dict[int, list[int]]) -> list[tuple[int, int]]:
    """A span and all below it, each with its depth, in the order in which they are drawn."""
    found, waiting = [], [(root, 0)]
    while waiting:
        k, deep = waiting.pop()
        found.append((k, deep))
        waiting += [(child, deep + 1) for child in reversed(children.get(k, ()))]
    return found


def _start(rows: SpanRows, k: int) -> int:
    return rows.start[k] or 0


def _end(rows: SpanRows, k: int) -> int:
    return max(rows.end[k] or 0, _start(rows, k))


def _name(prepared: Prepared, rows: SpanRows, k: int) -> str:
    c, e = prepared.c, rows.first[k]
    row = prepared.table.slice(int(c.row[e]), 1).to_pylist(maps_as_pydicts="strict")[0]
    service = (row["attributes"] or {}).get("service") or row["process"]
    return f"{service}: {row['label']}" if row["label"] else str(service)


def _axis(left: float, long: int, rows: int) -> str:
    parts = []
    for quarter in range(5):
        x = left + WIDE * quarter / 4
        parts.append(
            f'<path class="lane" d="M{x:.1f} {TOP - 6}V{TOP + ROW * rows}"/>'
            f'<text x="{x:.1f}" y="{TOP - 12}">{duration(long * quarter // 4)}</text>'
        )
    return "".join(parts)
