"""The sections of a report about early deliveries, each with its witness drawn, and about lost causes."""

from html import escape
from itertools import groupby
from typing import Any

import pyarrow.compute as pc

from ..trace.schema import KINDS
from ..view.space_time import Arrow, Mark, clipped, space_time
from .context import Context, pictured, rows_of, within

MOST_WITNESSES = 8
WITNESSES_READ = 500
STEP, LANE = 104, 60  # pixels from one event of a witness to the next, and from lane to lane
MOST_STEPS = 9  # of a witness's path; of a longer one the middle is left out


def witnesses(context: Context) -> str:
    count = context.summary["causal_violations"]
    if not count:
        return ""
    rows = rows_of(context.folder, "violations", WITNESSES_READ, pc.field("order_name") == "causal")
    chosen = _of_many_shapes(rows)[:MOST_WITNESSES]
    return (
        f'<h2>Witnesses</h2><p class="aside">{len(chosen)} of {count:,}; all are in '
        f"{context.rows.table('violations')}. Arrows are messages and what a process did next; a ring marks "
        f"the delivery that came too early.</p>{''.join(_witness(context, row) for row in chosen)}"
    )


def _of_many_shapes(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Short paths before long ones, but first one of each length."""

    def length(row: dict[str, Any]) -> int:
        return len(row["path"] or [])

    shapes = [list(same) for _, same in groupby(sorted(rows, key=length), key=length)]
    ranked = [(rank, number, row) for number, same in enumerate(shapes) for rank, row in enumerate(same)]
    return [row for _, _, row in sorted(ranked, key=lambda each: each[:2])]


def _witness(context: Context, row: dict[str, Any]) -> str:
    path = row["path"] or []
    half = MOST_STEPS // 2
    elided = len(path) - 2 * half if len(path) > MOST_STEPS else 0
    steps = [(step["process"], step["kind"], step["message"] or "") for step in path]
    if elided:
        steps[half:-half] = [(path[half]["process"], f"… {elided:,} …", "events")]
    early, place = len(steps), row["process"]
    steps += [(place, "deliver", row["early"]), (place, "deliver", row["overtaken"])]
    marks = []
    for level, (process, kind, message) in enumerate(steps, 1):
        label = clipped(f"{kind}\n{message}".strip(), 13)
        marks.append(Mark(process, level, _kind(kind), label, message, fault=level == early + 1))
    arrows = [Arrow(i, i + 1) for i in range(early - 1)]
    if path:
        arrows += [Arrow(early - 1, early, fault=True), Arrow(0, early + 1)]
    caption = (
        f"{escape(row['process'])} delivered {escape(row['early'])} (event {row['early_seq']}) before "
        f"{escape(row['overtaken'])} (event {row['overtaken_seq']}), which was sent to it causally "
        f"earlier{within(row['computation'])}"
    )
    ends = [f"{step['process']}#{step['seq']}" for step in (path[0], path[-1])] if path else []
    looked = context.look("The path between their sends", row["computation"], *ends)
    title = f"A delivery of {row['early']} that came too early"
    picture = space_time(title, marks, arrows, across=STEP, down=LANE, kind="witness")
    return pictured(picture, f"{caption}.{looked}")


def _kind(name: str) -> int:
    """How an event is drawn; those that were left out, as internal events."""
    return KINDS.index(name if name in KINDS else "internal")


def lost_causes(context: Context) -> str:
    count = context.summary["lost_causes"]
    if not count:
        return ""
    rows = rows_of(context.folder, "lost_causes", MOST_WITNESSES, pc.field("order_name") == "causal")
    items = "".join(
        f"<li>{escape(row['process'])} delivered {escape(row['delivered'])} (event {row['delivered_seq']}) "
        f"and never {escape(row['lost'])}, which was sent to it causally earlier"
        f"{within(row['computation'])}."
        f"{context.look('Look', row['computation'], row['process'] + '#' + str(row['delivered_seq']))}</li>"
        for row in rows
    )
    return (
        f'<h2>Lost causes</h2><p class="aside">{len(rows)} of {count:,}; all are in '
        f"{context.rows.table('lost_causes')}.</p><ul>{items}</ul>"
    )
