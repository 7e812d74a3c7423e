"""One picture of a run: the space–time diagram of the window that says most about it.

That is the window of the first violation of causal order, where there is one; else the stretch in which most
messages were delivered. Read are the rows of one computation, and only if they are few: a report reads
little, whatever the size of the trace.
"""

from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc

from ..causality import check_order, encode
from ..causality.linearization import Ints
from ..trace.store import AnyPath, arrow_dataset, matching
from ..view.answers import NEEDED, events_of_answers
from ..view.diagram import diagram
from ..view.prepared import Prepared
from ..view.slicing import Slice, sliced

MOST_EVENTS = 20_000  # of the computation that is read
MOST_DRAWN = 120
MOST_PROCESSES = 40
PROCESSES_READ = 5_000


class Window(NamedTuple):
    picture: str
    computation: str
    levels: tuple[int, int]
    of_violation: bool


def interesting_window(folder: AnyPath) -> Window | None:
    """None where tables are missing, nothing happened, or the computation is too large to be read here."""
    if not all(matching(folder / name, "*.parquet") for name in (*NEEDED, "violations")):
        return None
    name = _computation(folder)
    if name is None:
        return None
    table = events_of_answers(folder, name)
    witnesses = check_order(table, limit=1).witnesses
    (c,) = encode(table)
    prepared = Prepared(c, table, witnesses)
    if prepared.faults:
        fault = np.array(prepared.faults[0].events + prepared.faults[0].path)
        low, high = _around(prepared.levels, prepared.levels[fault])
    else:
        low, high = _busiest(prepared)
    (part,) = sliced([prepared], Slice(window=(low, high)))
    shown = Prepared(part.c, part.table, check_order(part.table, limit=1).witnesses)
    return Window(diagram(shown), name, (low, high), bool(prepared.faults))


def _computation(folder: AnyPath) -> str | None:
    """That of the first violation, or else the largest, among the first rows, that is not too large."""
    first = (
        arrow_dataset(folder / "violations").head(1, filter=pc.field("order_name") == "causal").to_pylist()
    )
    of_violation = first[0]["computation"] if first else None
    sizes: dict[str, tuple[int, int]] = {}
    only = None if of_violation is None else pc.field("computation") == of_violation
    for row in arrow_dataset(folder / "processes").head(PROCESSES_READ, filter=only).to_pylist():
        events, processes = sizes.get(row["computation"], (0, 0))
        sizes[row["computation"]] = events + row["events"], processes + 1
    fit = {
        name: size for name, size in sizes.items() if 0 < size[0] <= MOST_EVENTS and size[1] <= MOST_PROCESSES
    }
    return max(fit, key=lambda name: (fit[name][0], name)) if fit else None


def _around(levels: Ints, fault: Ints) -> tuple[int, int]:
    """The levels of a witness and one on either side; of a long one, its end, where the early delivery is."""
    low, high = max(1, int(fault.min()) - 1), int(fault.max()) + 1
    while low < high and int(((levels >= low) & (levels <= high)).sum()) > MOST_DRAWN:
        low += 1
    return low, high


def _busiest(prepared: Prepared) -> tuple[int, int]:
    """Of the windows of at most MOST_DRAWN events, one with most deliveries; the first of these."""
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
