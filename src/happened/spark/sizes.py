"""Finds out how large each computation is and whether one split holds it, which decides where to analyse it.

In    the splits of a trace
Out   Survey: the large computations, by name, and where to look up which computations of a split have rows in
      other splits too. Rows that are not events, as parts of the table `quarantine`
Cost  one scan of the columns that tell events from other rows, and a shuffle of six integers for each
      computation of a split; if there are large computations, one small job for their names

A 64-bit hash of each name is shuffled instead of the name. Two computations with the same hash are treated as
one computation across several splits, which costs a shuffle of their rows and changes no answer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..causality.linearization import Ints
from ..causality.names import hashes
from ..causality.written import sizes_of, too_wide
from ..trace import SCHEMA
from ..trace.store import AnyPath, matching
from .splits import TELLING, Groups, Split
from .storage import read_arrays, read_part, write_arrays, write_part
from .tasks import Emitted, Runner, exchange, on_tasks, raise_faults

SPLITS_PER_BUCKET = 8
"""Splits whose counts one task holds, at 48 bytes for each computation."""

MOST_FILES = 16
"""A split of more files is rewritten as one: opening a file takes as long as reading thousands of rows."""

MOSTLY = 0.5
"""If a larger share of the computations lies across splits, all are shuffled and nothing is looked up."""


class Large(NamedTuple):
    """A computation to be cut into epochs.

    handover  the kind of row in this computation that marks handing a message to the application
    splits    the splits that have rows of this computation
    """

    name: str
    events: int
    handover: str
    splits: list[int]


@dataclass(frozen=True)
class Survey:
    """crossing_events  number of events of computations that are not large and must be shuffled
    scattered        for each bucket of hashes, whether all of its computations must be shuffled
    """

    splits: list[Split]
    large: list[Large]
    crossing_events: int
    scattered: tuple[bool, ...]
    store: AnyPath
    quarantined: int

    def crosses(self, number: int, names: Ints) -> Ints:
        """For the computations of a split, by their hashes: whether other splits have rows of them."""
        found: Ints = np.array(self.scattered, bool)[names % np.uint64(len(self.scattered))]
        if not found.all():
            files = matching(self.store / "crossing", f"{number:06d}-*.npz")
            here = [read_arrays(path)["names"] for path in files]
            found |= np.isin(names, np.concatenate([np.empty(0, np.uint64), *here]))
        return found


class _Bucket(NamedTuple):
    """Facts about the computations of a bucket: the hashes of large ones, the number of events of other ones
    that must be shuffled, and whether all of the other ones must be shuffled."""

    large: list[int]
    crossing_events: int
    scattered: bool


def survey(
    spark: Runner,
    splits: Sequence[Split],
    store: AnyPath,
    quarantine: AnyPath,
    threshold: int,
    writes_vectors: bool = True,
) -> Survey:
    """Count the events of each computation. One is large if it has more than `threshold` events, or if its
    vectors would be too wide (see `causality.written.too_wide`).

    The rows of a split of many small files are written into one file, so that they are read faster later.
    """
    scattered = [len(split.pieces) > MOST_FILES for split in splits]
    buckets = len(splits) // SPLITS_PER_BUCKET + 1

    def count(number: int) -> Emitted:
        events, quarantined = splits[number].read(SCHEMA.names if scattered[number] else TELLING)
        if scattered[number]:
            write_part(store / "together", f"{number:06d}", events)
        if quarantined.num_rows:
            write_part(quarantine, f"rows-{number:06d}", quarantined)
        counted = sizes_of(events)
        write_part(store / "counted", f"{number:06d}", counted)
        return Emitted(quarantined.num_rows, _by_bucket(counted, number, buckets))

    def decide(bucket: int, blobs: list[bytes]) -> _Bucket:
        rows = np.concatenate([np.frombuffer(blob, COUNTS) for blob in blobs])
        return _decide(rows, bucket, store, is_large)

    def is_large(sizes: pa.Table) -> pa.ChunkedArray:
        return pc.or_(pc.greater(sizes["events"], threshold), too_wide(sizes, writes_vectors))

    counts, decided = exchange(spark, len(splits), count, buckets, decide)
    none = _Bucket([], 0, False)
    found: list[_Bucket] = raise_faults([decided.get(bucket, none) for bucket in range(buckets)])
    gathered = [
        Split((Groups(store / "together" / f"{number:06d}.parquet", None, {}),), split.rows)
        if scattered[number]
        else split
        for number, split in enumerate(splits)
    ]
    return Survey(
        gathered,
        _named(spark, len(splits), store, [name for each in found for name in each.large], is_large),
        sum(each.crossing_events for each in found),
        tuple(each.scattered for each in found),
        store,
        sum(raise_faults(counts)),
    )


ADDED = ("events", "processes", "delivers", "messages")
COUNTS = np.dtype([("name", np.uint64), ("split", np.int64), *((name, np.int64) for name in ADDED)])
"""The counts of a computation in one split; its name is a hash."""

IsLarge = Callable[[pa.Table], pa.ChunkedArray]


def _by_bucket(counted: pa.Table, number: int, buckets: int) -> list[tuple[int, bytes]]:
    rows = np.empty(counted.num_rows, COUNTS)
    rows["name"] = hashes(counted["computation"].combine_chunks())
    rows["split"] = number
    for name in ADDED:
        rows[name] = counted[name].to_numpy()
    home = rows["name"] % np.uint64(buckets)
    return [(bucket, rows[home == bucket].tobytes()) for bucket in range(buckets)]


def _decide(rows: Ints, bucket: int, store: AnyPath, is_large: IsLarge) -> _Bucket:
    """Add up the counts of splits, and write for each split which of its hashes other splits have too."""
    names, of = np.unique(rows["name"], return_inverse=True)
    sums = {name: np.bincount(of, rows[name], names.size).astype(np.int64) for name in ADDED}
    large, events = is_large(pa.table(sums)).to_numpy(), sums["events"]
    # This includes large computations, since a small one may have the same hash.
    crossing = np.bincount(of, minlength=names.size) > 1
    scattered = bool((crossing & ~large).sum() > MOSTLY * names.size)
    if crossing.any() and not scattered:
        shared = rows[crossing[of]]
        for number in np.unique(shared["split"]).tolist():
            path = store / "crossing" / f"{number:06d}-{bucket:06d}.npz"
            write_arrays(path, names=shared["name"][shared["split"] == number])
    return _Bucket(names[large].tolist(), int(events[(crossing | scattered) & ~large].sum()), scattered)


def _named(spark: Runner, splits: int, store: AnyPath, large: list[int], is_large: IsLarge) -> list[Large]:
    """Look up the large computations, given the hashes of their names."""
    wanted = np.array(large, np.uint64)

    def look(number: int) -> pa.Table:
        counted = read_part(store / "counted" / f"{number:06d}.parquet")
        mine = counted.filter(pa.array(np.isin(hashes(counted["computation"].combine_chunks()), wanted)))
        return mine.append_column("split", pa.repeat(number, mine.num_rows))

    found = on_tasks(spark, splits if large else 0, look)
    if not found:
        return []
    added = [*((name, "sum") for name in ADDED), ("split", "list")]
    sizes = pa.concat_tables(found).group_by("computation").aggregate(added)
    sizes = sizes.rename_columns(["computation", *ADDED, "splits"])
    return [
        Large(
            of["computation"], of["events"], "deliver" if of["delivers"] else "receive", sorted(of["splits"])
        )
        for of in sizes.filter(is_large(sizes)).sort_by("computation").to_pylist()
    ]
