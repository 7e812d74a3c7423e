"""What the traces of the last minutes show: a trace and tables, written again whenever they change.

In    the traces that have ended, from the window
Out   trace/part.parquet, an ordinary trace for `happened view`, `check`, `why`, `critical-path`; and one part
      each of the tables below. Every file is replaced as a whole
Cost  assembling what is new, and the kernels over all that is in the window

Traces that name each other's spans or share a channel are judged together, as `happened import` does it: a
trace that comes later may join others into one computation, which is then assembled anew.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..ask.critical import CriticalPath, critical_path
from ..ask.errors import NoTimes
from ..ask.history import History, load
from ..causality.analysis import Analysis, analyse
from ..causality.judgement import Judgement, judge_totals
from ..causality.skew import instance_skew
from ..trace.parts import write_part
from ..trace.readers import spans
from ..trace.readers.draft import Draft, Options, Quarantined, table_of
from ..trace.readers.span_joins import TraceJoins
from ..trace.schema import SCHEMA
from ..trace.writer import table_from_rows
from .span_window import Version

QUESTIONS = ("order", "dependencies")
MOST_LEFT_OUT = 1000
OPTIONS = Options()

REQUESTS = pa.schema([pa.field("request", pa.string()), pa.field("took", pa.int64())])
"""How long each request took, in ns after correction for skew, the slowest first."""
CRITICAL_PATH = pa.schema(
    [
        pa.field("place", pa.string()),
        pa.field("requests", pa.int64()),
        pa.field("took", pa.int64()),
        pa.field("saved", pa.int64()),
    ]
)
"""The shares of places in the critical paths of all requests, as `happened critical-path` has them."""
SLOWEST = pa.schema(
    [
        pa.field("request", pa.string()),
        pa.field("place", pa.string()),
        pa.field("took", pa.int64()),
        pa.field("begin", pa.string()),
        pa.field("end", pa.string()),
        pa.field("label", pa.string()),
    ]
)
"""The critical path of the slowest request, from its first event to its last."""
SKEW = pa.schema(
    [
        pa.field("process", pa.string()),
        pa.field("clock_offset", pa.int64()),
        pa.field("drift", pa.float64()),
        pa.field("feasible", pa.bool_()),
    ]
)
"""How far the clock of each instance is ahead of the median one at the newest event, in ns; and how fast that
grows. By all traces together; not `feasible` where no offsets and drifts explain all times."""


@dataclass(frozen=True)
class Told:
    """One round: the trace, its tables by name, and what is said of them."""

    trace: pa.Table
    tables: Mapping[str, pa.Table]
    judgement: Judgement
    totals: Mapping[str, int]

    def write(self, out: Path) -> None:
        for name, table in {"trace": self.trace, **self.tables}.items():
            write_part(out / name, "part", table)


@dataclass
class LastMinutes:
    """Tells of one set of ended traces after another; what has not changed is assembled once.

    left_out   the last records that could not be part of a trace
    """

    left_out: deque[Quarantined] = field(default_factory=lambda: deque(maxlen=MOST_LEFT_OUT))
    _assembled: dict[frozenset[Version], pa.Table] = field(default_factory=dict)

    def tell(self, ended: Mapping[Version, list[Draft]], besides: Iterable[Quarantined] = ()) -> Told:
        """`besides` was left out before there was a trace."""
        trace, not_joined = self._trace(ended)
        analysis = analyse(trace, questions=QUESTIONS)
        unsound = [
            Quarantined("trace", None, None, f"{row['computation']}: {row['reason']}")
            for row in analysis.table("quarantine").to_pylist()
        ]
        tables = {
            "violations": _causal(analysis, "violations"),
            "lost_causes": _causal(analysis, "lost_causes"),
            "dependencies": analysis.table("dependencies"),
            "quarantine": table_of([*besides, *self.left_out, *unsound]),
            **_timing(trace),
        }
        return Told(
            trace,
            tables,
            judge_totals(analysis.totals),
            analysis.totals | {"channels_not_joined": not_joined},
        )

    def _trace(self, ended: Mapping[Version, list[Draft]]) -> tuple[pa.Table, int]:
        """The trace, and how many channels were too wide to join traces."""
        joins = TraceJoins()
        for drafts in ended.values():
            for draft in drafts:
                joins.add(draft)
        leaders = joins.leaders(draft for drafts in ended.values() for draft in drafts)
        members: dict[str, list[Version]] = {}
        for version in ended:
            members.setdefault(leaders.get(version[0], version[0]), []).append(version)
        groups = {name: frozenset(versions) for name, versions in members.items()}
        new = {name: key for name, key in groups.items() if key not in self._assembled}
        known = {key: self._assembled[key] for key in groups.values() if key in self._assembled}
        self._assembled = known | self._assemble(new, members, ended)
        parts = [self._assembled[key] for key in groups.values()]
        return pa.concat_tables([SCHEMA.empty_table(), *parts]).combine_chunks(), joins.too_wide

    def _assemble(
        self,
        new: Mapping[str, frozenset[Version]],
        members: Mapping[str, list[Version]],
        ended: Mapping[Version, list[Draft]],
    ) -> dict[frozenset[Version], pa.Table]:
        """A table for each new computation."""
        copies = []
        for name in new:
            for version in members[name]:
                for draft in ended[version]:
                    mine = copy(draft)  # assembling merges and renames drafts, and the window keeps them
                    mine.computation = name
                    copies.append(mine)
        assembly = spans.assemble(copies, OPTIONS)
        self.left_out.extend(assembly.quarantined)
        table = table_from_rows(assembly.rows)
        counts = Counter(row["computation"] for row in assembly.rows)
        found, at = {}, 0
        for name, key in new.items():  # rows come computation by computation, in the order of the drafts
            found[key] = table.slice(at, counts[name])
            at += counts[name]
        return found


def _causal(analysis: Analysis, name: str) -> pa.Table:
    return analysis.table(name).filter(pc.field("order_name") == "causal")


def _timing(trace: pa.Table) -> dict[str, pa.Table]:
    """The tables about time; they have no rows where there are no times."""
    rows: dict[str, list[Any]] = {"requests": [], "critical_path": [], "slowest": [], "skew": []}
    if trace.num_rows:
        history = load(trace)
        rows["skew"] = _skew(history)
        with suppress(NoTimes):
            rows |= _paths(critical_path(history))
    schemas = {"requests": REQUESTS, "critical_path": CRITICAL_PATH, "slowest": SLOWEST, "skew": SKEW}
    return {name: pa.Table.from_pylist(rows[name], schema=schema) for name, schema in schemas.items()}


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
    # Only differences are known. Most clocks agree, so that the ones that do not stand out from the median.
    ahead = ahead - int(np.median(ahead))
    columns = zip(names, ahead.tolist(), skew.drifts.tolist(), skew.feasible.tolist(), strict=True)
    return [dict(zip(SKEW.names, row, strict=True)) for row in columns]
