"""The pictures of a report: the most telling window of some computations, and a page to explore these
computations.

The window shows the first violation of causal order, if there is one; else the stretch with the most
deliveries. A report reads little, whatever the size of the trace: some computations, first those with
violations, then the largest ones below a limit. Labels, spans and marks of relevance come from the trace; if
the trace is missing, or too large to be read for a report, the pictures are drawn from the tables.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .. import trace as traces
from ..causality import check_order, encode
from ..causality.linearization import Ints
from ..core.errors import CausalityError
from ..trace.store import AnyPath, arrow_dataset, matching, size_of
from ..trace.validation import validate, validate_rows
from ..view.diagrams import diagram, hasse, relevant_count, timeline
from ..view.pages import NEEDED, Viewed, events_of_answers, page, viewed_table
from ..view.prepared import Prepared
from ..view.slicing import Slice, sliced

MOST_EVENTS = 20_000  # events of a computation that is read
MOST_EVENTS_IN_ALL = 60_000
MOST_LOOKED_AT = 50  # computations on the page
MOST_DRAWN = 120  # events in a picture
MOST_PROCESSES = 40
PROCESSES_READ = 5_000
EVENTS_OF_TRACE = 500_000
BYTES_OF_TRACE = 200_000_000  # for JSON lines, whose events cannot be counted before they are read


class Window(NamedTuple):
    """A window of one computation: its pictures as SVG, "" if there is nothing to show."""

    computation: str
    levels: tuple[int, int]
    of_violation: bool
    space_time: str
    hasse: str
    spans: str


@dataclass(frozen=True)
class Looks:
    """The computations that a report shows; `page` is the address of the page to explore them, "" for none.
    The pictures and that page are made once; `at` changes only the address."""

    of: Viewed | None
    page: str = ""
    _made: dict[str, Any] = field(default_factory=dict, compare=False)

    def at(self, page: str) -> "Looks":
        """The same computations, with their page at another address."""
        return replace(self, page=page)

    @property
    def computations(self) -> Sequence[Prepared]:
        return self.of.computations if self.of is not None else ()

    def href(self, computation: str, *events: str, levels: tuple[int, int] | None = None) -> str:
        """The address that shows these events (at most two) or levels on the page; "" if it lacks them."""
        names = [each.c.name for each in self.computations]
        if not self.page or computation not in names:
            return ""
        state = [("c", str(names.index(computation))), *(("event", event) for event in events[:2])]
        if levels is not None:  # with one level of margin on either side
            state.append(("look", f"{levels[0] - 1},{levels[1] + 1},0"))
        return f"{self.page}#{urlencode(state)}"

    def windows(self, most: int) -> list[Window]:
        """The windows of the first few computations."""
        windows: list[Window] = self._made.setdefault("windows", [])
        windows += [_window(each) for each in self.computations[len(windows) : most]]
        return windows[:most]

    def html(self) -> str:
        """The HTML of the page; "" if nothing can be shown."""
        if "html" not in self._made:
            self._made["html"] = page(self.of) if self.of is not None else ""
        return str(self._made["html"])


def looks(folder: AnyPath, trace: AnyPath | None) -> Looks:
    """The computations of an analysis's folder that can be shown; none if tables are missing.

    trace   the trace that was analysed, if its path is known
    """
    if not all(matching(folder / table, "*.parquet") for table in (*NEEDED, "violations")):
        return Looks(None)
    names = _chosen(folder)
    if not names:
        return Looks(None)
    table = _of_trace(trace, names) if trace is not None else None
    if table is None:
        try:
            table = events_of_answers(folder, names)
        except CausalityError:  # a renumbered window, or predecessors alone: pictures need all events
            return Looks(None)
    return Looks(viewed_table(table, "What happened", complete=None))


def _chosen(folder: AnyPath) -> list[str]:
    """The computations of the first violations, then the largest, among the first rows of the tables."""
    faulty = arrow_dataset(folder / "violations").head(1000, filter=pc.field("order_name") == "causal")
    first = dict.fromkeys(faulty["computation"].to_pylist())
    wanted = pc.field("computation").isin(pa.array(list(first)[:MOST_LOOKED_AT], pa.string()))
    sizes: dict[str, tuple[int, int]] = {}
    data = arrow_dataset(folder / "processes")
    for part in (data.head(PROCESSES_READ, filter=wanted), data.head(PROCESSES_READ, filter=~wanted)):
        for row in part.to_pylist():
            events, processes = sizes.get(row["computation"], (0, 0))
            sizes[row["computation"]] = events + row["events"], processes + 1
    fit = [name for name, (events, _) in sizes.items() if 0 < events <= MOST_EVENTS]
    fit.sort(key=lambda name: (name not in first, sizes[name][1] > MOST_PROCESSES, -sizes[name][0], name))
    chosen, events = [], 0
    for name in fit[:MOST_LOOKED_AT]:
        events += sizes[name][0]
        if events <= MOST_EVENTS_IN_ALL:
            chosen.append(name)
    return chosen


def _of_trace(trace: AnyPath, names: list[str]) -> pa.Table | None:
    """The events of some computations; None if the trace is large, or has invalid rows."""
    try:
        at = traces.locate(trace)
        if at.is_json and size_of(at.root) > BYTES_OF_TRACE:
            return None
        if not at.is_json and traces.count(trace) > EVENTS_OF_TRACE:
            return None
        table = traces.read(trace, validate_rows)
        part = table.filter(pc.is_in(table["computation"], value_set=pa.array(names, pa.string())))
        validate(part)
        encode(part)
    except (CausalityError, OSError):  # the report lists bad rows from the tables
        return None
    return part


def _window(prepared: Prepared) -> Window:
    if prepared.faults:
        fault = np.array(prepared.faults[0].events + prepared.faults[0].path)
        low, high = _around(prepared.levels, prepared.levels[fault])
    else:
        low, high = _busiest(prepared)
    whole = prepared.c.events <= MOST_DRAWN
    (part,) = [prepared] if whole else sliced([prepared], Slice(window=(low, high)))
    if prepared.faults and not whole:
        part = Prepared(part.c, part.table, check_order(part.table, limit=1).witnesses)
    of_relevant = prepared if relevant_count(prepared) <= MOST_DRAWN else part
    return Window(
        prepared.c.name,
        (1, int(prepared.levels.max())) if whole else (low, high),
        bool(prepared.faults),
        diagram(part),
        hasse(of_relevant),
        timeline(prepared),
    )


def _around(levels: Ints, fault: Ints) -> tuple[int, int]:
    """The levels of a witness, with one more on either side; of a long one only the end, with the fault."""
    low, high = max(1, int(fault.min()) - 1), int(fault.max()) + 1
    while low < high and int(((levels >= low) & (levels <= high)).sum()) > MOST_DRAWN:
        low += 1
    return low, high


def _busiest(prepared: Prepared) -> tuple[int, int]:
    """Of the windows of at most MOST_DRAWN events, the first with the most deliveries."""
    levels, depth = prepared.levels, int(prepared.levels.max())
    events = np.cumsum(np.bincount(levels, minlength=depth + 1))
    given = np.cumsum(np.bincount(levels[prepared.c.source >= 0], minlength=depth + 1))
    best, most = (1, 1), -1
    for low in range(1, depth + 1):
        high = int(np.searchsorted(events, events[low - 1] + MOST_DRAWN, side="right")) - 1
        high = min(depth, max(low, high))
        deliveries = int(given[high] - given[low - 1])
        if deliveries > most:
            best, most = (low, high), deliveries
    return best
