"""Export traces to the formats of other tools; each function documents what its format keeps.

An export takes computations and yields text, or bytes for a binary format. `FORMATS` lists all exports.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ..core.errors import LocalProtocolError
from ..trace.schema import SCHEMA
from .browser import png_of
from .diagrams import MOST_EVENTS, diagram, hasse, timeline
from .prepared import Prepared
from .space_time import STANDALONE
from .span_rows import span_rows
from .texts import cut

LONGEST = 500


class EventText(NamedTuple):
    """An event: its number in the computation, its name, its row of the table, and a description."""

    number: int
    name: str
    row: dict[str, Any]
    deed: str

    @property
    def filled(self) -> dict[str, Any]:
        """The columns of its row that are not null."""
        return {name: value for name, value in self.row.items() if value is not None}


def told(prepared: Prepared) -> Iterator[EventText]:
    """The events in a topological order."""
    c = prepared.c
    rows = prepared.table.take(pa.array(c.row)).to_pylist(maps_as_pydicts="strict")
    for e, row in enumerate(rows):
        deed = row["kind"] if row["message"] is None else f"{row['kind']} {row['message']}"
        if row["label"]:
            deed = row["label"] if row["kind"] == "internal" else f"{deed}: {row['label']}"
        yield EventText(e, c.event(e).id, row, one_line(deed))


def one_line(text: str) -> str:
    return " ".join(cut(text, LONGEST).split()) or "-"


def csv(computations: Sequence[Prepared]) -> Iterator[str]:
    """A table of the events with their vector timestamps, one row each, in a topological order.

    Texts are quoted and numbers are not; lists and maps are JSON. The columns `event`, `level`, `before`
    (number of events that happened before) and `timestamp` are added, the others are those of the trace:
    `happened import` can read the file.
    """
    yield ",".join(("event", *SCHEMA.names, "level", "before", "timestamp")) + "\n"
    for each in computations:
        vectors, names = each.vectors, each.c.process_names
        for event in told(each):
            before = clock = None
            if vectors is not None:
                counts = vectors[event.number].tolist()
                before = sum(counts) - 1
                clock = {name: count for name, count in zip(names, counts, strict=True) if count}
            columns = (event.row[name] for name in SCHEMA.names)
            row = (event.name, *columns, int(each.levels[event.number]), before, clock)
            yield ",".join(map(_cell, row)) + "\n"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool | int):
        return str(value).lower()
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return '"' + text.replace('"', '""') + '"'


def jsonl(computations: Sequence[Prepared]) -> Iterator[str]:
    """The trace as JSON lines, without loss."""
    for each in computations:
        for event in told(each):
            yield json.dumps(event.filled, ensure_ascii=False) + "\n"


SHAPES = {"deliver": "diamond", "internal": "box"}  # Graphviz shapes; other kinds are circles


def dot(computations: Sequence[Prepared]) -> Iterator[str]:
    """Graphviz: a node per event, processes as clusters, edges of process order, messages and causes."""
    yield 'digraph happened {\n  rankdir=LR; node [fontsize=10, fontname="sans-serif"];\n'
    for number, each in enumerate(computations):
        yield from _graph(each, number)
    yield "}\n"


def _graph(each: Prepared, number: int) -> Iterator[str]:
    c = each.c
    events = list(told(each))
    for p, name in enumerate(c.process_names):
        chain = c.chain[c.chain_offsets[p] : c.chain_offsets[p + 1]].tolist()
        if not chain:
            continue
        yield f"  subgraph cluster_{number}_{p} {{ label={_quoted(name)};\n"
        for e in chain:
            shape = SHAPES.get(events[e].row["kind"], "circle")
            label = _quoted(f"{events[e].row['seq']} {events[e].deed}")
            yield f"    e{number}_{e} [shape={shape}, label={label}];\n"
        yield "  }\n"
        if len(chain) > 1:
            yield f"  {' -> '.join(f'e{number}_{e}' for e in chain)} [weight=8, color=gray];\n"
    for e in range(c.events):
        if c.source[e] >= 0:
            about = _quoted(c.message_name(int(c.message[e])))
            yield f"  e{number}_{c.source[e]} -> e{number}_{e} [label={about}, constraint=true];\n"
        for u in each.recorded_causes(e):
            yield f"  e{number}_{u} -> e{number}_{e} [style=dashed];\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\0", "")
    return f'"{escaped}"'


MOST_LINES = 2_000


def mermaid(computations: Sequence[Prepared]) -> Iterator[str]:
    """Mermaid sequence diagrams: an arrow for each delivered message, a note for each internal event.
    Arrivals are left out if there are deliveries.

    The order of arrows respects happened-before; a send is not shown separately from its delivery. Mermaid
    can draw hundreds of arrows but not thousands, so only the first MOST_LINES are written.
    """
    yield "sequenceDiagram\n"
    lines = _sequence(computations)
    yield from islice(lines, MOST_LINES)
    if next(lines, None) is not None:
        yield f"  %% more than {MOST_LINES:,} lines: the rest is left out; export a part of the trace\n"


def _sequence(computations: Sequence[Prepared]) -> Iterator[str]:
    for number, each in enumerate(computations):
        for p, name in enumerate(each.c.process_names):
            yield f"  participant c{number}p{p} as {_plain(name)}\n"
    for number, each in enumerate(computations):
        c = each.c
        for event in told(each):
            e = event.number
            here = f"c{number}p{c.process[e]}"
            if c.source[e] >= 0:
                yield f"  c{number}p{c.process[c.source[e]]}-){here}: {_plain(event.row['message'])}\n"
            elif event.row["kind"] == "internal" or c.fate[e]:
                yield f"  Note over {here}: {_plain(event.deed)}\n"
            for u in each.recorded_causes(e):
                if c.process[u] != c.process[e]:
                    yield f"  c{number}p{c.process[u]}-->>{here}: {_plain(event.deed)}\n"
            if event.row["kind"] == "send":
                for slot in range(int(c.dest_offsets[c.message[e]]), int(c.dest_offsets[c.message[e] + 1])):
                    if c.slot_delivery[slot] < 0:
                        yield f"  {here}-xc{number}p{c.slot_dest[slot]}: {_plain(event.row['message'])}\n"


def _plain(text: str) -> str:
    """The text on one line, with the characters that Mermaid interprets escaped."""
    return "".join(f"#{ord(sign)};" if sign in '#;<>{}&"%' else sign for sign in one_line(text))


REGEX = r"(?<host>\S*) (?<clock>{.*})\n(?<event>.*)"
DELIMITER = "^=== (?<trace>.*) ===$"


def shiviz(computations: Sequence[Prepared]) -> Iterator[str]:
    """ShiViz logs: the regular expression, the delimiter, then two lines per event.

    Happened-before is kept exactly, and so are the events' descriptions; the format cannot express that an
    event was a send or a delivery. White space in the name of a process becomes `_`.
    """
    yield f"{REGEX}\n{DELIMITER}\n"
    for each in computations:
        c, vectors = each.c, each.vectors
        if vectors is None:
            continue
        hosts = _hosts(c.process_names)
        yield f"\n=== {one_line(c.name)} ===\n"
        for event in told(each):
            counts = vectors[event.number]
            clock = {hosts[q]: int(counts[q]) for q in counts.nonzero()[0]}
            host = hosts[c.process[event.number]]
            yield f"{host} {json.dumps(clock, ensure_ascii=False)}\n{event.deed}\n"


def _hosts(names: Sequence[str]) -> list[str]:
    """A unique name without white space for each process."""
    hosts: dict[str, None] = {}
    for name in names:
        host = short = re.sub(r"\s+", "_", name) or "_"
        number = 2
        while host in hosts:
            host, number = f"{short}_{number}", number + 1
        hosts[host] = None
    return list(hosts)


MOST = 100.0
MARK = "happenedTrace"


def perfetto(computations: Sequence[Prepared]) -> Iterator[str]:
    """Trace events for Perfetto and chrome://tracing: a track per process, messages and causes as flows.

    Times are those of the trace; if it has none, an event's level counts as a microsecond, and the tracks say
    so. A span has its real length; any other event lasts until the next event of its track, at most MOST
    microseconds, since a viewer draws nothing for an event of length 0. The arguments of an event are its row
    of the trace, marked with MARK so that `happened import` recognises them and reads the same trace back.
    """
    yield f'{{"{MARK}":1,"displayTimeUnit":"ns","traceEvents":['
    joint = ""
    for pid, each in enumerate(computations, 1):
        for event in _track_events(each, pid):
            yield joint + json.dumps(event, ensure_ascii=False)
            joint = ",\n"
    yield "]}\n"


def _track_events(each: Prepared, pid: int) -> Iterator[dict[str, Any]]:
    def about(what: str, tid: int, **arguments: Any) -> dict[str, Any]:
        return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": arguments}

    c = each.c
    untimed = "" if each.times is not None else " (logical time)"
    yield about("process_name", 0, name=f"{c.name or 'computation'}{untimed}")
    for p, name in enumerate(c.process_names):
        yield about("thread_name", p + 1, name=name)
        yield about("thread_sort_index", p + 1, sort_index=p)
    at = _microseconds(each)
    lengths = _lengths(each, at)
    flows = 0
    for event in told(each):
        e = event.number
        place = {"pid": pid, "tid": int(c.process[e]) + 1, "ts": at[e]}
        shown = {"ph": "X", "name": event.deed, "cat": event.row["kind"], "dur": lengths[e]}
        yield place | shown | {"args": event.filled}
        source = [int(c.source[e])] if c.source[e] >= 0 else []
        for u in source + each.recorded_causes(e):
            flows += 1
            flow = {"name": event.row["message"] or "cause", "cat": "message", "id": f"{pid}.{flows}"}
            yield flow | {"ph": "s", "pid": pid, "tid": int(c.process[u]) + 1, "ts": at[u]}
            yield flow | place | {"ph": "f", "bp": "e"}


def _microseconds(each: Prepared) -> list[float]:
    """The time of every event; one without a time gets that of the event before it on its process."""
    if each.times is None:
        return [float(level) for level in each.levels.tolist()]
    times: list[float] = (each.times[0] / 1000).tolist()
    last = dict[int, float]()
    for e, p in zip(each.c.chain.tolist(), each.c.process[each.c.chain].tolist(), strict=True):
        last[p] = times[e] = last.get(p, 0.0) if times[e] != times[e] else times[e]
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


PICTURES: dict[str, Callable[[Prepared, str], str]] = {"space": diagram, "hasse": hasse, "spans": timeline}
"""Space–time diagram, Hasse diagram of the relevant events, timeline of the request with most spans."""


def svg(computations: Sequence[Prepared], picture: str = "space") -> Iterator[str]:
    """A standalone picture as SVG, which adapts to the reader's light or dark scheme."""
    if not computations:
        raise LocalProtocolError("there are no events to draw")
    if len(computations) > 1:
        names = ", ".join(repr(each.c.name) for each in computations[:5])
        raise LocalProtocolError(
            f"a picture shows one computation, and here are {len(computations):,}; choose one with "
            f"--computation: {names}{', …' if len(computations) > 5 else ''}"
        )
    (only,) = computations
    if only.c.events > MOST_EVENTS:
        raise LocalProtocolError(
            f"a picture shows at most {MOST_EVENTS:,} events, and here are {only.c.events:,}; choose a part "
            "(--window 1..200, --past EVENT, …)"
        )
    drawn = PICTURES[picture](only, STANDALONE)
    if not drawn:
        raise LocalProtocolError(f"nothing to draw: no {picture} are recorded with their times")
    yield drawn


def png(computations: Sequence[Prepared], picture: str = "space") -> Iterator[bytes]:
    yield from map(png_of, svg(computations, picture))


@dataclass(frozen=True, slots=True)
class Export:
    description: str
    write: Callable[..., Iterator[Any]]  # takes computations and, if it draws, a picture's name
    draws: bool = False
    binary: bool = False

    def chunks(self, computations: Sequence[Prepared], picture: str) -> Iterator[bytes]:
        """The bytes to write to a file, piece by piece."""
        found = self.write(computations, picture) if self.draws else self.write(computations)
        return (each if self.binary else each.encode() for each in found)


FORMATS = {
    "shiviz": Export("a log for ShiViz, with vector clocks; `happened import` reads it back", shiviz),
    "jsonl": Export("our own trace, one JSON object per event", jsonl),
    "dot": Export("a directed graph for Graphviz", dot),
    "mermaid": Export("a sequence diagram for Mermaid", mermaid),
    "perfetto": Export(
        "trace events for Perfetto and chrome://tracing, messages as flows; `happened import` reads it back",
        perfetto,
    ),
    "csv": Export("a table with timestamps; `happened import` reads it back", csv),
    "svg": Export("a picture, the one that --picture names", svg, draws=True),
    "png": Export("the same as pixels, drawn by Chromium", png, draws=True, binary=True),
}
