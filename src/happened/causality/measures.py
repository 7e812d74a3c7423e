"""How much happened, between whom, how deep and how wide.

The *level* of an event is the length of the longest chain of events that ends with it; events of one level
are concurrent. So the number of levels is the depth of a computation (its critical path, each event
counting one), and events per level say how wide it is along the way.
"""

import numpy as np
import pyarrow as pa
from numba import njit

from .computation import Computation
from .linearization import FIRST, Ints

MEASURES = pa.schema(
    [
        pa.field("computation", pa.string(), nullable=False),
        pa.field("measure", pa.string(), nullable=False),
        pa.field("process", pa.string()),
        pa.field("other", pa.string()),
        pa.field("at", pa.int32()),
        pa.field("value", pa.float64(), nullable=False),
    ]
)
"""events        per process
messages      per pair: first deliveries at `other` of messages from `process`
latency_min   per pair, ns, after correction for skew; likewise latency_mean
depth         levels of the computation
width         events per level, `at` one of at most STRETCHES equal stretches of levels
"""

STRETCHES = 100


@njit(cache=True)
def level_rows(levels, entering, last, process, edge_offsets, edges):  # type: ignore[no-untyped-def]
    """Fill levels[entering:], one per event in topological order; rows and `last` as in stamp_rows."""
    for e in range(process.size):
        level = 0
        if last[process[e]] >= 0:
            level = levels[last[process[e]]]
        for k in range(edge_offsets[e], edge_offsets[e + 1]):
            level = max(level, levels[edges[k]])
        levels[entering + e] = level + 1
        last[process[e]] = entering + e


def levels_of(c: Computation) -> Ints:
    """The level of every event, in the computation's own order."""
    edges = (c.source >= 0).astype(np.int64) + np.diff(c.cause_offsets)
    offsets = np.concatenate([[0], np.cumsum(edges)]).astype(np.int64)
    flat = np.empty(offsets[-1], np.int64)
    has_source = np.flatnonzero(c.source >= 0)
    flat[offsets[has_source]] = c.source[has_source]
    lengths = np.diff(c.cause_offsets)
    first = offsets[:-1] + (c.source >= 0)
    places = np.repeat(first - c.cause_offsets[:-1], lengths) + np.arange(c.causes.size)
    flat[places] = c.causes
    levels = np.empty(c.events, np.int64)
    level_rows(levels, 0, np.full(c.processes, -1, np.int64), c.process, offsets, flat)
    return levels


def measure(c: Computation, latency: tuple[Ints, Ints, Ints] | None) -> pa.Table:
    """`latency` is (sender, receiver, corrected ns) of each timed message edge, if any."""
    names = np.array([*c.process_names, None], dtype=object)
    counts = np.diff(c.chain_offsets)
    present = np.flatnonzero(counts)
    rows = [measure_rows(c.name, "events", counts[present], names[present])]
    given = np.flatnonzero(c.fate == FIRST)
    sender, receiver = c.process[c.source[given]].astype(np.int64), c.process[given]
    pairs, count = np.unique(sender * c.processes + receiver, return_counts=True)
    ends = names[pairs // c.processes], names[pairs % c.processes]
    rows.append(measure_rows(c.name, "messages", count, *ends))
    if latency is not None:
        rows += latency_rows(c.name, names, c.processes, *latency)
    rows += level_table_rows(c.name, levels_of(c))
    return pa.concat_tables([MEASURES.empty_table(), *rows])


def latency_rows(
    computation: str, names: Ints, processes: int, sender: Ints, receiver: Ints, gap: Ints
) -> list[pa.Table]:
    pairs, of = np.unique(sender.astype(np.int64) * processes + receiver, return_inverse=True)
    least = np.full(pairs.size, np.iinfo(np.int64).max)
    np.minimum.at(least, of, gap)
    mean = np.bincount(of, gap) / np.bincount(of)
    ends = names[pairs // processes], names[pairs % processes]
    return [
        measure_rows(computation, "latency_min", least, *ends),
        measure_rows(computation, "latency_mean", mean, *ends),
    ]


def level_table_rows(computation: str, levels: Ints) -> list[pa.Table]:
    if not levels.size:
        return []
    depth = int(levels.max())
    return width_rows(computation, np.bincount(levels - 1, minlength=depth))


def width_rows(computation: str, per_level: Ints) -> list[pa.Table]:
    """Depth and width from the number of events of each level."""
    depth = len(per_level)
    stretches = min(STRETCHES, depth)
    stretch = np.arange(depth) * stretches // depth
    width = np.bincount(stretch, per_level) / np.bincount(stretch)
    return [
        measure_rows(computation, "depth", np.array([depth])),
        measure_rows(computation, "width", width, at=np.arange(stretches)),
    ]


def measure_rows(
    computation: str,
    name: str,
    value: Ints,
    process: Ints | None = None,
    other: Ints | None = None,
    at: Ints | None = None,
) -> pa.Table:
    size = len(value)
    return pa.table(
        [
            pa.repeat(computation, size),
            pa.repeat(name, size),
            pa.nulls(size, pa.string()) if process is None else pa.array(process, pa.string()),
            pa.nulls(size, pa.string()) if other is None else pa.array(other, pa.string()),
            pa.nulls(size, pa.int32()) if at is None else pa.array(at, pa.int32()),
            pa.array(np.asarray(value, np.float64)),
        ],
        schema=MEASURES,
    )
