"""Judges the traces of the last minutes; writes a trace and tables whenever these traces have changed.

In    the traces that have ended, from the window
Out   trace/part.parquet, an ordinary trace for `happened view`, `check` and `ask`; and one part
      each of the tables below. Every file is replaced as a whole
Cost  assembling the new computations, and running the kernels over all ended traces of the window

Traces that name each other's spans or share a channel are judged together, as `happened import` does it: a
trace that comes later may join others into one computation, which is then assembled anew.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..ask.critical import CriticalPath, critical_path
from ..ask.history import History, load
from ..ask.naming import NoTimes
from ..causality.analysis import AnswerTables, analyse
from ..causality.judgement import Judgement, judge_totals
from ..causality.skew import instance_skew
from ..trace.parts import write_part
from ..trace.readers import spans
from ..trace.readers.draft import Draft, Options, QuarantinedRecord, table_of
from ..trace.readers.span_drafts import Instance, Span
from ..trace.readers.span_joins import TraceJoins
from ..trace.schema import SCHEMA
from ..trace.writer import table_from_rows
from .intake import Group, Version

QUESTIONS = ("order", "dependencies")
MOST_LEFT_OUT = 1000
OPTIONS = Options()

TEXT, NUMBER = pa.string(), pa.int64()
SHARE = {"place": TEXT, "requests": NUMBER, "took": NUMBER, "saved": NUMBER}
SEGMENT = {"request": TEXT, "place": TEXT, "took": NUMBER, "begin": TEXT, "end": TEXT, "label": TEXT}
CLOCK = {"process": TEXT, "clock_offset": NUMBER, "drift": pa.float64(), "feasible": pa.bool_()}
TIMING = {
    "requests": pa.schema({"request": TEXT, "took": NUMBER}),
    "critical_path": pa.schema(SHARE),
    "slowest": pa.schema(SEGMENT),
    "skew": pa.schema(CLOCK),
}
"""requests       how long each request took, in ns after correction for skew, the slowest first
critical_path  the shares of places in the critical paths of all requests (`happened ask critical-path`)
slowest        the critical path of the slowest request, from its first event to its last
skew           how far each instance's clock is ahead of the median clock at the newest event, in ns, and how
               fast that grows. Derived from all traces together; `feasible` is false where no offsets and
               drifts explain all times"""


@dataclass(frozen=True)
class Told:
    """The results of one round: the trace, its tables by name, and the judgement."""

    trace: pa.Table
    tables: Mapping[str, pa.Table]
    judgement: Judgement
    totals: Mapping[str, int]

    def write(self, out: Path) -> None:
        for name, table in {"trace": self.trace, **self.tables}.items():
            write_part(out / name, "part", table)


def load_kernels() -> None:
    """Judge a tiny trace once: the first time takes seconds, and no request should wait for that."""
    time, shop = 1, Instance("shop", "shop")
    sent = Span("t", "1", shop, "send", "producer", time, time + 1, {"session.id": "s"}).draft("", 1)
    got = Span(
        "t", "2", shop, "handle", "consumer", time + 2, time + 3, {"session.id": "s"}, (sent.id or "",)
    )
    LastMinutes().tell({("t", 1): [sent, got.draft("", 2)]})


class Assembled(NamedTuple):
    """One computation: its rows, and the records that contradict each other."""

    rows: pa.Table
    quarantined: tuple[QuarantinedRecord, ...]


class LastMinutes:
    """Judges the ended traces, round after round; computations that have not changed are assembled once."""

    def __init__(self) -> None:
        self._assembled: dict[Group, Assembled] = {}

    def tell(self, ended: Mapping[Version, list[Draft]], left_out: Iterable[QuarantinedRecord] = ()) -> Told:
        """Judge the ended traces. `left_out`: rejected records, which belong to no trace."""
        groups, too_wide = groups_of(ended)
        new = {group: name for group, name in groups.items() if group not in self._assembled}
        known = {group: self._assembled[group] for group in groups if group not in new}
        self._assembled = known | assemble(new, ended)
        parts = [self._assembled[group] for group in groups]
        trace = pa.concat_tables([SCHEMA.empty_table(), *(part.rows for part in parts)]).combine_chunks()
        analysis = analyse(trace, questions=QUESTIONS)
        unsound = (
            QuarantinedRecord("trace", None, None, f"{row['computation']}: {row['reason']}")
            for row in analysis.table("quarantine").to_pylist()
        )
        every = chain(left_out, unsound, *(part.quarantined for part in parts))
        tables = {
            "violations": _causal(analysis, "violations"),
            "lost_causes": _causal(analysis, "lost_causes"),
            "dependencies": analysis.table("dependencies"),
            "quarantine": table_of(islice(every, MOST_LEFT_OUT)),
            **_timing(trace),
        }
        totals = analysis.totals | {"channels_not_joined": too_wide}
        return Told(trace, tables, judge_totals(analysis.totals), totals)


def groups_of(traces: Mapping[Version, list[Draft]]) -> tuple[dict[Group, str], int]:
    """The traces and the name of each computation; and how many channels had too many traces to join them."""
    joins = TraceJoins()
    for draft in chain.from_iterable(traces.values()):
        joins.add(draft)
    leaders = joins.leaders(chain.from_iterable(traces.values()))
    members: dict[str, list[Version]] = {}
    for version in traces:
        members.setdefault(leaders.get(version[0], version[0]), []).append(version)
    return {frozenset(versions): name for name, versions in members.items()}, joins.too_wide


def assemble(new: Mapping[Group, str], traces: Mapping[Version, list[Draft]]) -> dict[Group, Assembled]:
    """Assemble the computations of these groups, in one table, since each table has a fixed cost."""
    assemblies = []
    for group, name in new.items():
        copies = []
        for version in sorted(group):
            for draft in traces[version]:
                mine = copy(draft)  # assembling changes drafts, and the window still needs the originals
                mine.computation = name
                copies.append(mine)
        assemblies.append(spans.assemble(copies, OPTIONS))
    table = table_from_rows([row for assembly in assemblies for row in assembly.rows])
    found, at = {}, 0
    for group, assembly in zip(new, assemblies, strict=True):
        rows = table.slice(at, len(assembly.rows))
        found[group] = Assembled(rows, tuple(assembly.quarantined))
        at += len(assembly.rows)
    return found


def _causal(analysis: AnswerTables, name: str) -> pa.Table:
    return analysis.table(name).filter(pc.field("order_name") == "causal")


def _timing(trace: pa.Table) -> dict[str, pa.Table]:
    """The tables about time; without times they are empty."""
    rows: dict[str, list[Any]] = {name: [] for name in TIMING}
    if trace.num_rows:
        history = load(trace)
        rows["skew"] = _skew(history)
        with suppress(NoTimes):
            rows |= _paths(critical_path(history))
    return {name: pa.Table.from_pylist(rows[name], schema=schema) for name, schema in TIMING.items()}


def _paths(found: CriticalPath) -> dict[str, list[Any]]:
    requests = sorted(zip(found.took, found.requests, strict=True), reverse=True)
    slowest = [
        {
            "request": found.slowest.request,
            "place": segment.place,
            "took": segment.took,
            "begin": segment.begin.id,
            "end": segment.end.id,
            "label": " … ".join(dict.fromkeys(filter(None, (segment.begin.label, segment.end.label)))),
        }
        for segment in found.slowest.segments
    ]
    return {
        "requests": [{"request": name, "took": took} for took, name in requests],
        "critical_path": [share._asdict() for share in found.shares],
        "slowest": slowest,
    }


def _skew(history: History) -> list[dict[str, Any]]:
    times = history.times
    if times is None:
        return []
    names, skew, origin = instance_skew(history.union, times)
    newest = int(times.time[times.timed].max()) - origin
    ahead = skew.ahead(np.arange(len(names)), np.full(len(names), newest))
    # Only differences of clocks are known. Most clocks agree, so wrong ones stand out from the median.
    ahead = ahead - int(np.median(ahead))
    columns = zip(names, ahead.tolist(), skew.drifts.tolist(), skew.feasible.tolist(), strict=True)
    return [dict(zip(CLOCK, row, strict=True)) for row in columns]
