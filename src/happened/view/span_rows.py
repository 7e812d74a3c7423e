"""The spans of a computation: each span's first event, times, and parent.

A span is recorded in one of two ways: as one event with the attributes `span` and `end` (nanoseconds); or as
two events of one process with the same `span` and `kind`, where the second has the attribute `event` with the
value `end`, or follows a first one without an end time. Events of a span whose attribute `event` has another
value, such as a send, begin no span.

A span's parent is the span named by its attribute `parent`; or else the span of an event that is a recorded
cause of its first event, or that sent the message which its first event delivers; or, if its attribute `edge`
says that it has a parent, the span of the previous event on its process.
"""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from ..causality.computation import Computation
from ..causality.linearization import Ints

MOST_SPANS = 20_000


@dataclass(slots=True)
class SpanRows:
    """Parallel lists: the first event, the last event (the same if there is only one), start and end times
    (nanoseconds, None if unknown), and the parent's index in these lists, or -1."""

    first: list[int] = field(default_factory=list)
    last: list[int] = field(default_factory=list)
    start: list[int | None] = field(default_factory=list)
    end: list[int | None] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.first)


def span_rows(c: Computation, table: pa.Table, events: Ints) -> SpanRows:
    """The spans recorded by these events, which are given in topological order."""
    rows = SpanRows()
    attributes = table["attributes"].take(pa.array(c.row[events])).to_pylist()
    times = table["time"].take(pa.array(c.row[events])).to_pylist()
    begun: dict[tuple[str, ...], int] = {}
    by_id: dict[tuple[str, str], int] = {}
    of_event: dict[int, int] = {}
    for e, pairs, time in zip(events.tolist(), attributes, times, strict=True):
        told = dict(pairs or ())
        if "span" not in told:
            continue
        trace, span = told.get("trace", ""), told["span"]
        # Client and server may record one span id: they are two spans.
        key = (trace, span, c.process_names[c.process[e]], told.get("kind", ""))
        if key in begun and (told.get("event") == "end" or rows.end[begun[key]] is None):
            at = of_event[e] = begun[key]
            rows.last[at] = e
            rows.end[at] = time if rows.end[at] is None else rows.end[at]
            continue
        if told.get("event", "start") != "start":
            if (trace, span) in by_id:
                of_event[e] = by_id[trace, span]
            continue
        if len(rows) == MOST_SPANS:
            rows.left_out += 1
            continue
        at = of_event[e] = len(rows)
        begun[key] = at
        rows.first.append(e)
        rows.last.append(e)
        rows.start.append(time)
        end = told.get("end") or ""
        rows.end.append(int(end) if end.lstrip("-").isdigit() and len(end) < 20 else None)
        parent = by_id.get((trace, told.get("parent", "")))
        if parent is None:
            parent = _parent(c, e, of_event, "parent" in told.get("edge", ""))
        rows.parent.append(parent)
        by_id.setdefault((trace, span), at)
    return rows


def _parent(c: Computation, e: int, of_event: dict[int, int], has_parent: bool) -> int:
    """The parent span of the span that event e begins. Only earlier spans qualify, so no cycle can arise."""
    causes = [c.source[e], *c.causes[c.cause_offsets[e] : c.cause_offsets[e + 1]]]
    if has_parent and c.seq[e] > 1:
        causes.append(c.chain[c.chain_offsets[c.process[e]] + c.seq[e] - 2])
    return next((of_event[int(u)] for u in causes if int(u) in of_event), -1)


def relative(times: list[int | None], origin: int) -> Ints:
    """Nanoseconds since the origin as floats; NaN where there is no time."""
    return np.array([np.nan if time is None else time - origin for time in times], np.float64)
