"""Exact vector timestamps of one large computation, and the order of its deliveries, in two passes.

In    a Layout
Out   stamps/, and the early deliveries as integers in store/early/ (EARLY), for `violations` to name
Cost  summarise: one task per epoch; scan: the driver, one frontier at a time; stamp: one task per epoch

See causality.epochs for why this is exact.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from ..causality.analysis import clock_table
from ..causality.epochs import Epoch, Frontier, Stamped, complete, event_keys, split_keys, stamp_epoch
from ..causality.epochs import stamp as stamp_with
from ..causality.order import early_deliveries
from .cuts import Ints
from .layout import Layout
from .storage import read_arrays, write_arrays, write_part
from .tasks import on_tasks

EARLY = [
    "dest",
    "early_p",
    "early_sent",
    "early_seq",
    "overtaken_p",
    "overtaken_sent",
    "overtaken_seq",
    "fifo",
]
"""A destination; sender, seqs of send and delivery of two messages; whether FIFO is violated too."""


def stamp(
    spark: SparkSession,
    layout: Layout,
    out: Path,
    timestamps: str | None,
    progress: Callable[[str], object] | None = None,
) -> dict[str, int]:
    """Write the stamps, unless timestamps is None; the totals that follow from them."""
    on_tasks(spark, layout.epochs, lambda k: _summarise(layout, k), _tell("summarised", layout, progress))
    frontier = Frontier.beginning(len(layout.names))
    for k in range(layout.epochs):
        _save(_path(layout, "frontier", k), frontier)
        frontier = complete(_load(_path(layout, "summary", k)), frontier)
    totals = on_tasks(
        spark,
        layout.epochs,
        lambda k: _stamp(layout, k, out, timestamps),
        _tell("stamped", layout, progress),
    )
    return {name: sum(total[name] for total in totals) for name in (totals[0] if totals else ())}


def _tell(
    deed: str, layout: Layout, progress: Callable[[str], object] | None
) -> Callable[[int], object] | None:
    if progress is None:
        return None
    epochs, events = layout.epochs, int(layout.cuts[-1].sum()) if layout.epochs else 0

    def tell(done: int) -> None:
        about = f"about {events * done // epochs:,} of {events:,} events"
        progress(f"{deed} {done} of {epochs} epochs, {about}")

    return tell


def build_epoch(layout: Layout, k: int, edges: Ints) -> tuple[Epoch, Ints]:
    """The epoch, and its edges in the order of their targets (the last column is kept as it is)."""
    n, start = len(layout.names), layout.starts(k)
    counts = layout.cuts[k] - start
    process = np.repeat(np.arange(n), counts)
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    seq = np.arange(process.size) - np.repeat(first - start, counts) + 1
    place = places(layout, k, edges[:, 2], edges[:, 3])
    order = np.argsort(place, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(place, minlength=process.size))]).astype(np.int64)
    edges = edges[order]
    return Epoch(n, process, seq, offsets, edges[:, 0], edges[:, 1], layout.names), edges


def places(layout: Layout, k: int, process: Ints, seq: Ints) -> Ints:
    """Where these events of epoch k stand in it: by process, then seq."""
    start = layout.starts(k)
    first = np.concatenate([[0], np.cumsum(layout.cuts[k] - start)[:-1]])
    return first[process] + seq - start[process] - 1


def _names(layout: Layout, k: int) -> Frontier:
    """The frontier that enters epoch k, every event of it knowing only itself."""
    last = layout.starts(k)
    kept = layout.share(k - 1)["kept"] if k else np.empty((0, 2), np.int64)
    present = np.flatnonzero(last > 0)
    keys = np.unique(np.concatenate([event_keys(present, last[present]), event_keys(kept[:, 0], kept[:, 1])]))
    process, seq = split_keys(keys)
    vectors = np.zeros((keys.size, len(last)), np.int32)
    return Frontier(last, process, seq, vectors).names_only()


def _summarise(layout: Layout, k: int) -> int:
    share, names = layout.share(k), _names(layout, k)
    epoch, _ = build_epoch(layout, k, share["edges"])
    kept = share["kept"]
    _, summary = stamp_with(epoch, names, kept[:, 0], kept[:, 1])
    _save(_path(layout, "summary", k), summary)
    return epoch.events


def _stamp(layout: Layout, k: int, out: Path, timestamps: str | None) -> dict[str, int]:
    share, frontier = layout.share(k), load_frontier(layout, k)
    epoch, _ = build_epoch(layout, k, share["edges"])
    stamped = stamp_epoch(epoch, frontier)
    vectors = stamped.event_vectors()
    if timestamps is not None:
        table = _table(layout, k, epoch, frontier, vectors, timestamps)
        write_part(out / "stamps", f"{layout.store.name}-{k:06d}", table)
    early = _early(stamped, frontier, share["slots"])
    if len(early):
        write_part(layout.store / "early", f"{k:06d}", pa.table(list(early.T), names=EARLY))
    return {
        "ordered_pairs": int(vectors.sum(dtype=np.int64)) - epoch.events,
        "causal_violations": len(early),
        "fifo_violations": int(early[:, 7].sum()),
    }


def _table(
    layout: Layout, k: int, epoch: Epoch, frontier: Frontier, vectors: Ints, timestamps: str
) -> pa.Table:
    n = epoch.processes
    before = np.zeros((n, n), np.int32)
    known = np.flatnonzero(frontier.last > 0)
    before[known] = frontier.vectors[frontier.rows(known, frontier.last[known])]
    names = [pa.repeat(layout.computation, n), pa.array(layout.names, pa.string())]
    everyone = np.zeros(n, np.int64)
    return clock_table(names, everyone, epoch.process, epoch.seq, vectors, timestamps, k, before)


def _early(stamped: Stamped, frontier: Frontier, slots: Ints) -> Ints:
    """The early deliveries of the epoch, one row of EARLY each."""
    n, last = stamped.epoch.processes, stamped.arranged.last
    here = slots[:, 3] <= last[slots[:, 2]]
    delivered = stamped.rows(frontier, slots[here, 2], slots[here, 3])
    slots = np.concatenate([slots[here][np.argsort(delivered)], slots[~here]])
    if not here.any():
        return np.empty((0, 8), np.int64)
    source, seq, dest = slots[:, 0], slots[:, 1], slots[:, 2]
    queue = np.lexsort((seq, source, dest))
    channels, channel = np.unique(dest * n + source, return_inverse=True)
    ends = np.cumsum(np.bincount(channel))
    of_dest = np.searchsorted(channels // n, np.arange(n + 1))
    send = stamped.rows(frontier, source, seq)
    found = [
        early_deliveries(
            int(here.sum()), send, dest, channel, seq, stamped.vectors, queue, ends, channels % n, of_dest,
            fifo,
        )
        for fifo in (False, True)
    ]  # fmt: skip
    early = np.flatnonzero(found[0] >= 0)
    # The FIFO witness where there is one: it violates causal order too.
    fifo = found[1][early] >= 0
    passed = np.where(fifo, found[1][early], found[0][early])
    return np.column_stack(
        [dest[early], slots[early][:, [0, 1, 3]], slots[passed][:, [0, 1, 3]], fifo.astype(np.int64)]
    )


def load_frontier(layout: Layout, k: int) -> Frontier:
    """The exact frontier that enters epoch k; there once `stamp` has begun its second pass."""
    return _load(_path(layout, "frontier", k))


def _path(layout: Layout, what: str, k: int) -> Path:
    return layout.store / f"{what}-{k:06d}.npz"


def _save(path: Path, frontier: Frontier) -> None:
    arrays: dict[str, Any] = {name: getattr(frontier, name) for name in ("last", "process", "seq", "vectors")}
    write_arrays(path, **arrays)


def _load(path: Path) -> Frontier:
    return Frontier(**read_arrays(path))
