"""How much happened, between whom, how deep and how wide.

The *level* of an event is the length of the longest chain of events that ends with it; events of one level
are concurrent. So the number of levels is the depth of a computation (its critical path, each event
counting one), and events per level say how wide it is along the way.
"""

import numpy as np
import pyarrow as pa

from ..trace.declared import schema
from .compiled import compiled
from .computation import Computation
from .linearization import FIRST, Ints
from .reach import edges_of

MEASURES = schema(
    "computation string, measure string, process string?, other string?, at int32?, value float64"
)
"""events        per process
messages      per pair: first deliveries at `other` of messages from `process`
latency_min   per pair, ns, after correction for skew; likewise latency_mean
depth         levels of the computation
width         events per level, `at` one of at most STRETCHES equal stretches of levels
"""

STRETCHES = 100


@compiled
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
    levels, edges = np.empty(c.events, np.int64), edges_of(c)
    level_rows(levels, 0, np.full(c.processes, -1, np.int64), c.process, edges.offsets, edges.causes)
    return levels


def measure(c: Computation, latency: tuple[Ints, Ints, Ints] | None) -> pa.Table:
    """`latency` is (sender, receiver, corrected ns) of each timed message edge, if any."""
    counts = np.diff(c.chain_offsets)
    present = np.flatnonzero(counts)
    computation, process = c.names_of(present)
    rows = [measure_rows(computation, "events", counts[present], process)]
    given = np.flatnonzero(c.fate == FIRST)
    ends, pair = _pairs(c, c.process[c.source[given]], c.process[given])
    rows.append(measure_rows(ends[0], "messages", np.bincount(pair), *ends[1:]))
    if latency is not None:
        sender, receiver, gap = latency
        ends, pair = _pairs(c, sender, receiver)
        least = np.full(len(ends[0]), np.iinfo(np.int64).max)
        np.minimum.at(least, pair, gap)
        rows.append(measure_rows(ends[0], "latency_min", least, *ends[1:]))
        rows.append(
            measure_rows(ends[0], "latency_mean", np.bincount(pair, gap) / np.bincount(pair), *ends[1:])
        )
    rows += _levels(c)
    return pa.concat_tables([MEASURES.empty_table(), *rows])


def _pairs(c: Computation, sender: Ints, receiver: Ints) -> tuple[list[pa.Array], Ints]:
    """Each distinct pair as (computation, sender, receiver), and the pair of each edge."""
    pairs, of = np.unique(sender.astype(np.int64) * c.processes + receiver, return_inverse=True)
    return [*c.names_of(pairs // c.processes), c.names_of(pairs % c.processes)[1]], of


def _levels(c: Computation) -> list[pa.Table]:
    levels, owner = levels_of(c), c.owner[c.process]
    depths = np.zeros(len(c.computation_names), np.int64)
    np.maximum.at(depths, owner, levels)
    begins = np.cumsum(depths) - depths
    per_level = np.bincount(begins[owner] + levels - 1, minlength=depths.sum())
    return width_rows(pa.array(c.computation_names, pa.string()), depths, per_level)


def width_rows(computations: pa.Array, depths: Ints, per_level: Ints) -> list[pa.Table]:
    """Depth and width, from the number of events of each level of one computation after the other."""
    owner = np.repeat(np.arange(len(depths)), depths)
    level = np.arange(len(owner)) - np.repeat(np.cumsum(depths) - depths, depths)
    stretches = np.minimum(STRETCHES, depths)
    begins = np.cumsum(stretches) - stretches
    stretch = begins[owner] + level * stretches[owner] // depths[owner]
    width = np.bincount(stretch, per_level) / np.bincount(stretch)
    of = np.repeat(np.arange(len(depths)), stretches)
    return [
        measure_rows(computations, "depth", depths),
        measure_rows(computations.take(pa.array(of)), "width", width, at=np.arange(len(of)) - begins[of]),
    ]


def measure_rows(
    computation: pa.Array | str,
    name: str,
    value: Ints,
    process: pa.Array | None = None,
    other: pa.Array | None = None,
    at: Ints | None = None,
) -> pa.Table:
    size = len(value)
    return pa.table(
        [
            pa.repeat(computation, size) if isinstance(computation, str) else computation,
            pa.repeat(name, size),
            pa.nulls(size, pa.string()) if process is None else pa.array(process, pa.string()),
            pa.nulls(size, pa.string()) if other is None else pa.array(other, pa.string()),
            pa.nulls(size, pa.int32()) if at is None else pa.array(at, pa.int32()),
            pa.array(np.asarray(value, np.float64)),
        ],
        schema=MEASURES,
    )
