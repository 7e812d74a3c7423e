"""Immediate predecessors, depth and necessary information of one large computation.

In    a Layout
Out   predecessors/, necessary/ and the depth and width of measures/, as in causality.analysis
Cost  each a fold over the epochs in one task, its memory one epoch and one frontier; side by side

Their states compose only through n² numbers per row (see causality.units), more than the events they
would save going through twice; so they go through once, in order.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from ..causality.analysis import NECESSARY, STAMPS, predecessor_clocks
from ..causality.epochs import Epoch, Frontier
from ..causality.marks import level_epoch, mark_epoch, no_marks
from ..causality.measures import MEASURES, width_rows
from ..causality.predecessors import PREDECESSORS
from ..causality.units import MOST_PROCESSES, UnitState, count_units
from .cuts import Ints
from .layout import Layout
from .stamp import build_epoch, places
from .storage import write_part
from .tasks import on_tasks

FOLDS = ("predecessors", "measures", "necessary", "stamps")
"""`stamps` are the immediate predecessors once more, as timestamps."""


def fold(spark: SparkSession, layout: Layout, out: Path, wanted: Sequence[str]) -> dict[str, int]:
    work: list[Callable[[Layout, Path], dict[str, int]]] = []
    if "predecessors" in wanted or "stamps" in wanted:
        tables = [name for name in wanted if name in ("predecessors", "stamps")]
        work.append(partial(_predecessors, tables))
    if "measures" in wanted:
        work.append(_levels)
    if "necessary" in wanted and len(layout.names) <= MOST_PROCESSES:
        work.append(_necessary)
    results = on_tasks(spark, len(work), lambda number: work[number](layout, out))
    return {name: total for result in results for name, total in result.items()}


def _predecessors(tables: Sequence[str], layout: Layout, out: Path) -> dict[str, int]:
    names = pa.array(layout.names, pa.string())
    state, found = no_marks(len(layout.names)), 0
    for k in range(layout.epochs):
        share = layout.share(k)
        epoch, _ = build_epoch(layout, k, share["edges"])
        relevant = np.full(epoch.events, layout.all_relevant)
        chosen = share["relevant"]
        relevant[places(layout, k, chosen[:, 0], chosen[:, 1])] = True
        kept = share["kept"]
        (effects, process, seq), state = mark_epoch(epoch, relevant, state, kept[:, 0], kept[:, 1])
        found += effects.size
        part = f"{layout.store.name}-{k:06d}"
        causes = names.take(pa.array(process))
        if "predecessors" in tables:
            columns = [*_named(layout, names, epoch, effects), causes, pa.array(seq)]
            write_part(out / "predecessors", part, pa.table(columns, schema=PREDECESSORS))
        if "stamps" in tables:
            events = np.flatnonzero(relevant)
            # The effects come in topological order, the events by process: each keeps its own causes.
            order = np.argsort(effects, kind="stable")
            clock = predecessor_clocks(
                np.bincount(effects, minlength=epoch.events)[events], causes.take(pa.array(order)), seq[order]
            )
            number = pa.repeat(pa.scalar(k, pa.int32()), events.size)
            columns = [*_named(layout, names, epoch, events), number, clock]
            write_part(out / "stamps", part, pa.table(columns, schema=STAMPS))
    return {"reduction_edges": found} if "predecessors" in tables else {}


def _named(layout: Layout, names: pa.Array, epoch: Epoch, events: Ints) -> list[pa.Array]:
    processes = names.take(pa.array(epoch.process[events]))
    return [pa.repeat(layout.computation, events.size), processes, pa.array(epoch.seq[events])]


def _levels(layout: Layout, out: Path) -> dict[str, int]:
    n = len(layout.names)
    state = Frontier(np.zeros(n, np.int64), *(np.empty(0, np.int64),) * 2, np.empty((0, 1), np.int64))
    per_level = np.zeros(0, np.int64)
    for k in range(layout.epochs):
        share = layout.share(k)
        epoch, _ = build_epoch(layout, k, share["edges"])
        levels, state = level_epoch(epoch, state, share["kept"][:, 0], share["kept"][:, 1])
        counts = np.bincount(levels - 1, minlength=per_level.size)
        counts[: per_level.size] += per_level
        per_level = counts
    widths = width_rows(pa.array([layout.computation]), np.array([per_level.size]), per_level)
    rows = pa.concat_tables([MEASURES.empty_table(), *widths])
    write_part(out / "measures", f"{layout.store.name}-levels", rows)
    return {}


def _necessary(layout: Layout, out: Path) -> dict[str, int]:
    names = pa.array(layout.names, pa.string())
    state, units, edges = UnitState.beginning(len(layout.names)), 0, 0
    for k in range(layout.epochs):
        share = layout.share(k)
        epoch, ordered = build_epoch(layout, k, share["edges"])
        addressed = share["addressed"]
        addressed = addressed[np.lexsort((addressed[:, 2], addressed[:, 1], addressed[:, 0]))]
        place = places(layout, k, addressed[:, 0], addressed[:, 1])
        offsets = np.concatenate([[0], np.cumsum(np.bincount(place, minlength=epoch.events))]).astype(
            np.int64
        )
        kept = share["kept"]
        counts, state = count_units(
            epoch, ordered[:, 4] == 1, offsets, addressed[:, 2], state, (kept[:, 0], kept[:, 1])
        )
        units, edges = units + int(counts.sum()), edges + counts.size
        columns = [
            pa.repeat(layout.computation, counts.size),
            names.take(pa.array(addressed[:, 0])),
            pa.array(addressed[:, 1]),
            names.take(pa.array(addressed[:, 2])),
            pa.array(counts),
        ]
        write_part(out / "necessary", f"{layout.store.name}-{k:06d}", pa.table(columns, schema=NECESSARY))
    return {"necessary_units": units, "necessary_edges": edges}
