"""The critical paths of all requests of a trace that is too large for one process.

In    a LargeTrace
Out   ask.CriticalPath, as of the whole trace
Cost  one shuffle of the rows by computation, as bytes, without labels and most attributes; two passes over
      the buckets, the second for what places would save. A task holds a bucket, or its largest computation;
      the driver a number for each request

Computations that have events of one request go to one bucket. The times on paths are added up over the
buckets.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..ask.critical import MOST_PLACES, Between, By, CriticalPath, Paths, Spent, concluded
from ..ask.history import load
from ..causality.names import encode_names, hashes
from ..core.errors import CausalityError
from ..trace.readers.span_joins import leaders_of
from ..trace.schema import ASKED, SCHEMA
from ..trace.store import AnyPath
from .large_traces import LargeTrace
from .splits import Split
from .storage import read_part, write_part
from .tasks import Emitted, exchange, on_tasks, pack_table, raise_faults, unpack_table

EVENTS_PER_BUCKET = 200_000
NEEDED = ("service", "trace")
"""Attributes that say which service or request the time belongs to."""


def critical_path(trace: LargeTrace, by: By = "service") -> CriticalPath:
    """As ask.critical_path of all requests."""
    leaders = _leaders(trace.pairs)
    buckets = sum(split.rows or EVENTS_PER_BUCKET for split in trace.splits) // EVENTS_PER_BUCKET + 1
    job = _Job(list(trace.splits), leaders, buckets, trace.folder(), by)
    given, settled = exchange(trace.spark, len(trace.splits), job.emit, buckets, job.settle)
    raise_faults(given)
    spent = Spent()
    for of in raise_faults([*settled.values()]):
        spent.add(of)
    places = spent.ranked[:MOST_PLACES]
    numbers = sorted(settled)
    saved: Counter[Between] = Counter(dict.fromkeys(places, 0))
    for told in on_tasks(trace.spark, len(numbers), lambda number: job.saved(numbers[number], places)):
        saved.update(told)
    slowest = Paths(trace.gathered(trace.computations_of(spent.slowest)), by)
    return concluded(spent, saved, slowest.path_of)


def _leaders(pairs: pa.Table) -> pa.Table:
    """(computation, leader) of computations that share a request; `pairs` as in LargeTrace. A computation is
    a request under its own name, if no other name is known."""
    own = pairs.set_column(1, "trace", pairs["computation"])
    named = pa.concat_tables([pairs.filter(pc.is_valid(pairs["trace"])), own])
    of = named.group_by("trace").aggregate([("computation", "distinct")])
    shared = of.filter(pc.greater(pc.list_value_length(of["computation_distinct"]), 1))
    leaders = leaders_of([{*group} for group in shared["computation_distinct"].to_pylist()])
    columns = [pa.array([*leaders], pa.string()), pa.array([*leaders.values()], pa.string())]
    return pa.table(columns, names=["computation", "leader"])


@dataclass(frozen=True)
class _Job:
    splits: list[Split]
    leaders: pa.Table
    buckets: int
    folder: AnyPath
    by: By

    def emit(self, number: int) -> Emitted:
        """Give the rows of a split to the buckets of their computations."""
        rows = self.splits[number].read([name for name in ASKED if name != "label"]).events
        return Emitted(None, self._by_bucket(_without_other_attributes(rows)))

    def _by_bucket(self, rows: pa.Table) -> Iterator[tuple[int, bytes]]:
        codes, names = encode_names(rows["computation"])
        at = pc.index_in(names, value_set=self.leaders["computation"].combine_chunks())
        homes = pc.coalesce(self.leaders["leader"].combine_chunks().take(at), names)
        bucket = (hashes(homes) % np.uint64(self.buckets)).astype(np.int64)[codes]
        order = np.argsort(bucket, kind="stable")
        ends = np.searchsorted(bucket[order], np.arange(self.buckets + 1))
        rows = rows.take(pa.array(order))
        for number, (begin, end) in enumerate(pairwise(ends.tolist())):
            if end > begin:
                yield number, pack_table(rows.slice(begin, end - begin))

    def settle(self, bucket: int, blobs: list[bytes]) -> Spent:
        write_part(self.folder, f"{bucket:06d}", pa.concat_tables(map(unpack_table, blobs)).cast(SCHEMA))
        paths = self._paths(bucket)
        return Spent() if paths is None else paths.spent

    def saved(self, bucket: int, places: list[Between]) -> dict[Between, int]:
        paths = self._paths(bucket)
        return {} if paths is None else paths.saved(places)

    def _paths(self, bucket: int) -> Paths | None:
        """The paths of a bucket's requests; None if none of its computations is sound."""
        try:
            return Paths(load(read_part(self.folder / f"{bucket:06d}.parquet").cast(SCHEMA)), self.by)
        except CausalityError:
            return None


def _without_other_attributes(rows: pa.Table) -> pa.Table:
    """The same rows, of whose attributes only those NEEDED are left."""
    size = rows.num_rows
    columns = [pc.map_lookup(rows["attributes"], name, "first").combine_chunks() for name in NEEDED]
    alternating = np.arange(2 * size).reshape(len(NEEDED), size).T.reshape(-1)
    keys = pa.array(NEEDED).take(pa.array(np.tile(np.arange(len(NEEDED)), size)))
    offsets = pa.array(np.arange(size + 1, dtype=np.int32) * len(NEEDED))
    kept = pa.MapArray.from_arrays(offsets, keys, pa.concat_arrays(columns).take(pa.array(alternating)))
    at = rows.schema.get_field_index("attributes")
    return rows.set_column(at, SCHEMA.field("attributes"), kept.cast(SCHEMA.field("attributes").type))
