"""The spans of a computation: which event began each, when it ended, and which span it belongs to.

A span is recorded in one of two ways: as one event with the attributes `span` and `end` (nanoseconds), or as
two events of the same `span`, the first and the last of which are its start and its end. Its parent is the
span named by its attribute `parent`, or else the one whose event is a recorded cause of its first event.
"""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from ..causality.computation import Computation
from ..causality.linearization import Ints

MOST_SPANS = 20_000


@dataclass(slots=True)
class SpanRows:
    """Parallel lists: the first event, the last one (the same if there is one only), when the span began and
    ended (nanoseconds, None if unknown), and the parent as a place in these lists, or -1."""

    first: list[int] = field(default_factory=list)
    last: list[int] = field(default_factory=list)
    start: list[int | None] = field(default_factory=list)
    end: list[int | None] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.first)


def span_rows(c: Computation, table: pa.Table, events: Ints) -> SpanRows:
    """The spans that these events, given in topological order, tell of."""
    rows = SpanRows()
    attributes = table["attributes"].take(pa.array(c.row[events])).to_pylist()
    times = table["time"].take(pa.array(c.row[events])).to_pylist()
    open_spans: dict[tuple[str, ...], int] = {}
    by_id: dict[tuple[str, str], int] = {}
    of_event: dict[int, int] = {}
    for e, pairs, time in zip(events.tolist(), attributes, times, strict=True):
        told = dict(pairs or ())
        if "span" not in told:
            continue
        trace, span = told.get("trace", ""), told["span"]
        # Client and server may record one id: they are two spans.
        key = (trace, span, c.process_names[c.process[e]])
        if key in open_spans:
            at = open_spans.pop(key)
            rows.last[at], rows.end[at] = e, time
            of_event[e] = at
            continue
        if len(rows) == MOST_SPANS:
            rows.left_out += 1
            continue
        at = of_event[e] = len(rows)
        if "end" not in told:
            open_spans[key] = at
        rows.first.append(e)
        rows.last.append(e)
        rows.start.append(time)
        rows.end.append(_nanoseconds(told.get("end")))
        rows.parent.append(_parent(c, e, by_id.get((trace, told.get("parent", ""))), of_event))
        by_id.setdefault((trace, span), at)
    return rows


def _nanoseconds(text: str | None) -> int | None:
    return int(text) if text is not None and text.lstrip("-").isdigit() and len(text) < 20 else None


def _parent(c: Computation, e: int, named: int | None, of_event: dict[int, int]) -> int:
    """The span that the first event of another belongs to. It is in the lists already: no circle can be."""
    if named is not None:
        return named
    causes = (c.source[e], *c.causes[c.cause_offsets[e] : c.cause_offsets[e + 1]])
    return next((of_event[int(u)] for u in causes if int(u) in of_event), -1)


def relative(times: list[int | None], origin: int) -> Ints:
    """Nanoseconds since the origin as floats; NaN where there is no time."""
    return np.array([np.nan if time is None else time - origin for time in times], np.float64)
