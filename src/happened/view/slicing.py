"""Extract a part of a computation as a separate trace.

Happened-before among the kept events is unchanged: where it went through events that are left out, the part
records a cause instead. Events are renumbered if earlier events of their process are left out; the attribute
`original` then holds each event's old name. A delivery whose send is left out becomes an internal event, and
a send keeps only destinations whose deliveries are kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ..causality import encode
from ..causality.computation import DELIVER, Computation
from ..causality.linearization import Ints
from ..causality.predecessors import computation_predecessors
from ..causality.reach import Extent, between, future, hull, past
from ..core.errors import LocalProtocolError
from ..trace.writer import table_from_rows
from .prepared import Prepared


@dataclass(frozen=True, slots=True)
class Slice:
    """Conditions that all selected events must satisfy.

    past, future   of an event `process#seq`, itself included
    window         lowest and highest level
    times          earliest and latest time, in nanoseconds since the earliest event
    processes      names of processes
    """

    past: str | None = None
    future: str | None = None
    window: tuple[float, float] | None = None
    times: tuple[float, float] | None = None
    processes: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        return self == Slice()

    def mask(self, prepared: Prepared) -> Ints:
        """Whether each event of a computation is selected. LocalProtocolError if a named item is missing."""
        c = prepared.c
        wanted = np.ones(c.events, bool)
        if self.past is not None:
            wanted &= past(c, event_named(c, self.past)).mask(c)
        if self.future is not None:
            wanted &= future(c, event_named(c, self.future)).mask(c)
        if self.window is not None:
            wanted &= between(c, prepared.levels, *self.window).mask(c)
        if self.times is not None:
            if prepared.times is None:
                raise LocalProtocolError("the events have no times; give a window of levels instead")
            wanted &= (prepared.times[0] >= self.times[0]) & (prepared.times[0] <= self.times[1])
        if self.processes:
            absent = [name for name in self.processes if name not in c.process_names]
            if absent:
                raise LocalProtocolError(
                    f"no process {absent[0]!r} in computation {c.name!r}; there are "
                    f"{', '.join(c.process_names[:10])}{', …' if c.processes > 10 else ''}"
                )
            wanted &= np.isin(c.process, [c.process_names.index(name) for name in self.processes])
        return wanted

    def extent(self, prepared: Prepared) -> Extent:
        """The smallest extent with all selected events; it has further events if clocks went back."""
        return hull(prepared.c, self.mask(prepared))


def event_named(c: Computation, name: str) -> int:
    process, _, seq = name.rpartition("#")
    try:
        return c.index(process, int(seq) if seq.isdecimal() else 0)
    except LookupError:
        raise LocalProtocolError(
            f"no event {name!r} in computation {c.name!r}; events are named process#number, "
            f"{c.event(0).id} for one"
        ) from None


def slice_table(prepared: Prepared, kept: Ints) -> pa.Table:
    """The events where `kept` is true, as a separate trace."""
    c = prepared.c
    if prepared.vectors is None:
        raise LocalProtocolError("too many events and processes to take a part of; import a smaller trace")
    chained = c.chain[kept[c.chain]].astype(np.int64)
    process = c.process[chained]
    counts = np.bincount(process, minlength=c.processes)
    number = np.zeros(c.events, np.int64)
    number[chained] = np.arange(chained.size) - np.repeat(np.cumsum(counts) - counts, counts) + 1
    causes = _causes(prepared, kept, number)
    told = prepared.table.take(pa.array(c.row[chained])).to_pylist(maps_as_pydicts="strict")
    # Without deliveries, arrivals count as deliveries; the part must not switch to that if the whole did not.
    arrivals_only = bool((c.kind == DELIVER).any()) and not bool((c.kind[chained] == DELIVER).any())
    outside, rows = set(np.flatnonzero(~kept).tolist()), []
    for e, row in zip(chained.tolist(), told, strict=True):
        named = c.event(e).id
        row |= {"seq": int(number[e]), "causes": causes.get(e), "clock": None}
        if int(number[e]) != int(c.seq[e]):
            row["attributes"] = {"original": named} | (row["attributes"] or {})
        if row["kind"] == "send":
            slots = slice(*c.dest_offsets[c.message[e] : c.message[e] + 2])
            left = (c.slot_delivery[slots] < 0) | kept[c.slot_delivery[slots]]
            row["to"] = [c.process_names[to] for to in c.slot_dest[slots][left]]
        elif row["message"] is not None and (arrivals_only or c.send[c.message[e]] in outside):
            row["attributes"] = {row["kind"]: row["message"]} | (row["attributes"] or {})
            row["label"] = row["label"] or f"{row['kind']} {row['message']}"
            row |= {"kind": "internal", "message": None}
        rows.append(row)
    return table_from_rows(rows)


def _causes(prepared: Prepared, kept: Ints, number: Ints) -> dict[int, list[dict[str, Any]]]:
    """For each event, its immediate predecessors on other processes that no message of the part implies."""
    c = prepared.c
    assert prepared.vectors is not None
    effects, causes = computation_predecessors(c, prepared.vectors, kept)
    across = (c.process[effects] != c.process[causes]) & (c.source[effects] != causes)
    found: dict[int, list[dict[str, Any]]] = {}
    for effect, cause in zip(effects[across].tolist(), causes[across].tolist(), strict=True):
        named = {"process": c.process_names[c.process[cause]], "seq": int(number[cause])}
        found.setdefault(effect, []).append(named)
    return found


def sliced(computations: Sequence[Prepared], of: Slice) -> list[Prepared]:
    """The selected part of each computation; computations without selected events are left out."""
    if of.is_whole:
        return list(computations)
    masks = ((each, of.mask(each)) for each in computations)
    tables = (slice_table(each, kept) for each, kept in masks if kept.any())
    return [Prepared(c, table) for table in tables for c in encode(table)]
