"""Trace events for Perfetto and chrome://tracing: a track per process, messages and causes as flows.

Times are those of the trace; where it has none, an event's level counts as a microsecond, and the tracks say
so. A span is as long as it was; any other event lasts for as long as its track has no next one, and at most
MOST microseconds, since a viewer draws nothing for what has no length. The arguments of an event are its row
of the trace, and MARK tells `happened import` that they are: it reads the same trace back.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..prepared import Prepared
from ..span_rows import span_rows
from .event_texts import EventText, told

MOST = 100.0
MARK = "happenedTrace"


def write(computations: Sequence[Prepared]) -> Iterator[str]:
    yield f'{{"{MARK}":1,"displayTimeUnit":"ns","traceEvents":['
    first = True
    for number, each in enumerate(computations):
        for event in _computation(each, number + 1):
            yield ("" if first else ",\n") + json.dumps(event, ensure_ascii=False)
            first = False
    yield "]}\n"


def _computation(each: Prepared, pid: int) -> Iterator[dict[str, Any]]:
    c = each.c
    untimed = "" if each.times is not None else " (logical time)"
    yield _name("process_name", pid, 0, f"{c.name or 'computation'}{untimed}")
    for p, name in enumerate(c.process_names):
        yield _name("thread_name", pid, p + 1, name)
        yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": p + 1, "args": {"sort_index": p}}
    at = _microseconds(each)
    lengths = _lengths(each, at)
    flows = 0
    for event in told(each):
        e = event.number
        place = {"pid": pid, "tid": int(c.process[e]) + 1, "ts": at[e]}
        shown = {"ph": "X", "name": event.deed, "cat": event.row["kind"], "dur": lengths[e]}
        yield place | shown | {"args": _arguments(event)}
        causes = [int(c.source[e])] if c.source[e] >= 0 else []
        for u in causes + c.causes[c.cause_offsets[e] : c.cause_offsets[e + 1]].tolist():
            flows += 1
            flow = {"name": event.row["message"] or "cause", "cat": "message", "id": f"{pid}.{flows}"}
            yield flow | {"ph": "s", "pid": pid, "tid": int(c.process[u]) + 1, "ts": at[u]}
            yield flow | place | {"ph": "f", "bp": "e"}


def _name(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def _arguments(event: EventText) -> dict[str, Any]:
    return {name: value for name, value in event.row.items() if value is not None}


def _microseconds(each: Prepared) -> list[float]:
    """The time of every event; one without a time gets that of the event before it on its process."""
    if each.times is None:
        return [float(level) for level in each.levels.tolist()]
    c = each.c
    times: list[float] = (each.times[0] / 1000).tolist()
    for e in c.chain.tolist():
        if times[e] != times[e]:
            before = int(c.chain[c.chain_offsets[c.process[e]] + c.seq[e] - 2]) if c.seq[e] > 1 else -1
            times[e] = times[before] if before >= 0 else 0.0
    return times


def _lengths(each: Prepared, at: list[float]) -> list[float]:
    c = each.c
    lengths = [MOST if each.times is not None else 0.9] * c.events
    for e, after in zip(c.chain[:-1].tolist(), c.chain[1:].tolist(), strict=True):
        if c.process[e] == c.process[after]:
            lengths[e] = max(0.001, min(lengths[e], at[after] - at[e]))
    spans = span_rows(c, each.table, np.arange(c.events))
    for first, start, end in zip(spans.first, spans.start, spans.end, strict=True):
        if start is not None and end is not None:
            lengths[first] = max(0.001, (end - start) / 1000)
    return lengths
