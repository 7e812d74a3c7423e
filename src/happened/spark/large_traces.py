"""Questions about a trace that is too large for one process: Spark finds the computations that they concern.

In    a trace at a path or URL, and names of events or requests
Out   a History of the computations in which they occur, for the functions of `happened.ask`; and the critical
      path of all requests
Cost  tasks scan the columns that contain names, then the rows of the computations found. The driver holds
      these computations, at most MOST_GATHERED events, and for questions about requests the names of all.
      The critical path shuffles the rows by computation, as bytes, without labels and most attributes, and
      makes two passes over the buckets; the second finds what each place would save. A task holds a bucket,
      or its largest computation

Nothing in one computation happened before anything in another, and clocks are corrected computation by
computation: so a History of some computations answers as the whole trace would.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from ..ask.critical import MOST_PLACES, Between, By, CriticalPath, Paths, Spent, concluded
from ..ask.finding import find_request
from ..ask.history import History, load
from ..ask.naming import ID, KINDS, UnknownName, attributes_of, of_request
from ..causality.names import encode_names, hashes
from ..core.errors import CausalityError
from ..trace import locate
from ..trace.readers.span_joins import leaders_of
from ..trace.schema import ASKED, SCHEMA
from ..trace.store import AnyPath, any_path, remove_tree
from .splits import Split, splits_of
from .storage import read_part, read_parts, write_part
from .tasks import Emitted, exchange, on_each, on_tasks, packed_by_bucket, raise_faults, unpack_table
from .workspace import Workspace

MOST_GATHERED = 20_000_000
"""The most events that the computations of one question may have: some 10 GB in the driver."""

MOST_COMPUTATIONS = 10_000
"""The most computations in which one name may occur. A name that occurs in more does not mean one event."""

REQUEST = "request"


class Stage(NamedTuple):
    """Kinds of names that are looked up together, and the columns to read for that besides splits.TELLING."""

    kinds: tuple[str, ...]
    columns: tuple[str, ...]


BY_ID = Stage((ID,), ())
"""Looks up an event by its id, as most questions name it; needs none of the other columns."""
BY_TEXT = Stage(tuple(kind for kind in KINDS if kind != ID), ("label", "attributes"))
BY_REQUEST = Stage((REQUEST,), ("attributes",))

FITS = {**KINDS, REQUEST: of_request}


class Hits(NamedTuple):
    """For one name: the first kind of name in a stage that matches any row, and these rows' computations."""

    kind: int
    computations: set[str]


class LargeTrace:
    """A trace that is questioned on Spark; `work` is a directory that the driver and all tasks reach."""

    def __init__(self, spark: SparkSession, splits: Sequence[Split], work: AnyPath) -> None:
        self.spark, self.splits, self.work = spark, splits, work
        self._numbers = count()

    def about(self, *names: str) -> History:
        """A History of the computations in which these events occur."""
        wanted: set[str] = set()
        for name, found in zip(names, self._found(names, (BY_ID, BY_TEXT)), strict=True):
            if not found:
                raise UnknownName(_unknown(name))
            wanted |= found
        return self.gathered(wanted)

    def about_request(self, text: str) -> tuple[History, str]:
        """A History of the computations of the request that `text` names, and the request's full name."""
        for stage in (BY_REQUEST, BY_ID, BY_TEXT):
            (computations,) = self._found([text], [stage])
            if not computations:
                continue
            history = self.gathered(computations)
            try:
                number = find_request(history, text)
            except UnknownName:  # no request begins with this name, or the event belongs to no request
                if stage is BY_TEXT:
                    raise
                continue
            name = history.requests[1][number]
            every = self._beside(self.computations_of(name))
            history = history if every <= computations else self.gathered(every)
            return replace(history, requests_in_trace=len(self.requests)), name
        raise UnknownName(_unknown(text))

    def computations_of(self, request: str) -> set[str]:
        """The computations that have events of this request, and the computation of that name, if any."""
        pairs = self.pairs
        mine = pc.or_kleene(pc.equal(pairs["trace"], request), pc.equal(pairs["computation"], request))
        return {*pairs.filter(mine)["computation"].to_pylist()}

    def _beside(self, computations: set[str]) -> set[str]:
        """These computations, and all others in which their requests have events."""
        pairs = self.pairs
        mine = pairs.filter(pc.is_in(pairs["computation"], value_set=pa.array(computations, pa.string())))
        requests = mine["trace"].combine_chunks().drop_null()
        others = pairs.filter(pc.is_in(pairs["trace"], value_set=requests))
        return computations | {*others["computation"].to_pylist()}

    @cached_property
    def requests(self) -> set[str]:
        """The names of all requests: see History.requests."""
        traced = self.pairs.filter(pc.is_valid(self.pairs["trace"]))
        alone = {*self.pairs["computation"].to_pylist()} - {*traced["computation"].to_pylist()}
        return alone | {*traced["trace"].to_pylist()}

    @cached_property
    def pairs(self) -> pa.Table:
        """Pairs of a computation and a value of the attribute `trace` in it; null where events lack that."""
        splits, folder = self.splits, self.folder()

        def write(number: int) -> None:
            rows = splits[number].read(["attributes"]).events
            pairs = pa.table({"computation": rows["computation"], "trace": attributes_of(rows)("trace")})
            write_part(folder, f"{number:06d}", _distinct(pairs))

        on_tasks(self.spark, len(splits), write)
        return _distinct(read_parts(folder))

    def gathered(self, computations: set[str]) -> History:
        """A History of all events of these computations."""
        wanted = pa.array(sorted(computations), pa.string())
        splits, folder = self.splits, self.folder()

        def write(number: int) -> Counter[str]:
            if not splits[number].may_hold(wanted):
                return Counter()
            rows, quarantined = splits[number].read(ASKED)
            kept = rows.filter(pc.is_in(rows["computation"], value_set=wanted))
            if kept.num_rows:
                write_part(folder, f"{number:06d}", kept)
            return Counter(rows=kept.num_rows, quarantined=quarantined.num_rows)

        totals: Counter[str] = sum(on_tasks(self.spark, len(splits), write), Counter())
        if totals["rows"] > MOST_GATHERED:
            raise CausalityError(
                f"the question needs {totals['rows']:,} events, and at most {MOST_GATHERED:,} can be held "
                "at once; run `happened analyze TRACE --out ANSWERS` and ask ANSWERS about an event: "
                "then only its past is read"
            )
        history = load(read_parts(folder).select(SCHEMA.names).cast(SCHEMA))
        remove_tree(folder)
        return replace(history, quarantined=history.quarantined + totals["quarantined"])

    def folder(self) -> AnyPath:
        """A new directory for the files of tasks."""
        return self.work / f"asked-{next(self._numbers):04d}"

    def _found(self, names: Sequence[str], stages: Sequence[Stage]) -> list[set[str]]:
        """For each name, the computations it occurs in, by the first kind of name that matches any row."""
        found: list[set[str]] = [set() for _ in names]
        for kinds, columns in stages:
            left = {number: name for number, name in enumerate(names) if not found[number]}
            if left:
                for number, computations in self._looked_for(left, kinds, columns).items():
                    if len(computations) > MOST_COMPUTATIONS:
                        raise CausalityError(
                            f"{names[number]!r} occurs in more than {MOST_COMPUTATIONS:,} computations; give "
                            "a name that means one event: process#seq, computation:process#seq, a span's id"
                        )
                    found[number] = computations
        return found

    def _looked_for(
        self, names: dict[int, str], kinds: Sequence[str], columns: Sequence[str]
    ) -> dict[int, set[str]]:
        splits = self.splits

        def look(number: int) -> dict[int, Hits]:
            rows = splits[number].read(columns).events
            hits = ((name, _hits(rows, text, kinds)) for name, text in names.items())
            return {name: found for name, found in hits if found is not None}

        told = on_tasks(self.spark, len(splits), look)
        found: dict[int, set[str]] = {}
        for name in names:
            mine = [hits[name] for hits in told if name in hits]
            first = min((hits.kind for hits in mine), default=None)
            found[name] = set().union(*(hits.computations for hits in mine if hits.kind == first))
        return found


@contextmanager
def asked_on_spark(spark: SparkSession, trace: AnyPath, work: AnyPath | None = None) -> Iterator[LargeTrace]:
    """A trace that is questioned on this session; its intermediate files are removed at the end.

    work   the directory for these files, which all executors must reach; optional if Spark runs here
    """
    splits = splits_of(locate(any_path(trace).absolute()))
    workspace = Workspace(spark, work)
    try:
        yield LargeTrace(spark, splits, workspace.folder)
    finally:
        workspace.close()


def _hits(rows: pa.Table, text: str, kinds: Sequence[str]) -> Hits | None:
    for number, kind in enumerate(kinds):
        fits = pc.fill_null(FITS[kind](rows, attributes_of(rows), text), False)
        names = pc.unique(rows["computation"].filter(fits))
        if len(names):
            return Hits(number, {*names.slice(0, MOST_COMPUTATIONS + 1).to_pylist()})
    return None


def _distinct(pairs: pa.Table) -> pa.Table:
    return pairs.group_by(pairs.column_names).aggregate([])


def _unknown(text: str) -> str:
    return f"nothing in the trace is called {text!r}: no process#seq, span, message or label"


EVENTS_PER_BUCKET = 200_000
NEEDED = ("service", "trace")
"""The attributes of an event that say to which service and request its time belongs."""


def critical_path(trace: LargeTrace, by: By = "service") -> CriticalPath:
    """The same result as ask.critical_path of all requests."""
    leaders = _leaders(trace.pairs)
    buckets = sum(split.rows or EVENTS_PER_BUCKET for split in trace.splits) // EVENTS_PER_BUCKET + 1
    job = _Job(list(trace.splits), leaders, buckets, trace.folder(), by)
    given, settled = exchange(trace.spark, len(trace.splits), job.emit, buckets, job.settle)
    raise_faults(given)
    numbers = sorted(settled)
    spent, saved = add_up(
        raise_faults([*settled.values()]),
        lambda places: on_each(trace.spark, [(number, places) for number in numbers], job.saved),
    )
    slowest = Paths(trace.gathered(trace.computations_of(spent.slowest)), by)
    return concluded(spent, saved, slowest.path_of)


def add_up(
    parts: Iterable[Spent], saved_by: Callable[[list[Between]], Iterable[Mapping[Between, int]]]
) -> tuple[Spent, Counter[Between]]:
    """The time spent on the paths of all parts; and what the places that took the most time would save."""
    spent = Spent()
    for part in parts:
        spent.add(part)
    places = spent.ranked[:MOST_PLACES]
    saved: Counter[Between] = Counter(dict.fromkeys(places, 0))
    for told in saved_by(places) if places else ():
        saved.update(told)
    return spent, saved


def _leaders(pairs: pa.Table) -> pa.Table:
    """(computation, leader) for computations that share a request; `pairs` as in LargeTrace. A computation
    without a known request name is a request under its own name."""
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
        """Send the rows of a split to the buckets of their computations."""
        rows = self.splits[number].read([name for name in ASKED if name != "label"]).events
        rows = _without_other_attributes(rows)
        codes, names = encode_names(rows["computation"])
        at = pc.index_in(names, value_set=self.leaders["computation"].combine_chunks())
        homes = pc.coalesce(self.leaders["leader"].combine_chunks().take(at), names)
        bucket = (hashes(homes) % np.uint64(self.buckets)).astype(np.int64)[codes]
        return Emitted(None, packed_by_bucket(rows, bucket))

    def settle(self, bucket: int, blobs: list[bytes]) -> Spent:
        write_part(self.folder, f"{bucket:06d}", pa.concat_tables(map(unpack_table, blobs)).cast(SCHEMA))
        paths = self._paths(bucket)
        return Spent() if paths is None else paths.spent

    def saved(self, bucket: int, places: list[Between]) -> dict[Between, int]:
        paths = self._paths(bucket)
        return {} if paths is None else paths.saved(places)

    def _paths(self, bucket: int) -> Paths | None:
        """The critical paths of a bucket's requests; None if none of the bucket's computations is sound."""
        try:
            return Paths(load(read_part(self.folder / f"{bucket:06d}.parquet").cast(SCHEMA)), self.by)
        except CausalityError:
            return None


def _without_other_attributes(rows: pa.Table) -> pa.Table:
    """The same rows, with only the attributes NEEDED."""
    size = rows.num_rows
    columns = [pc.map_lookup(rows["attributes"], name, "first").combine_chunks() for name in NEEDED]
    alternating = np.arange(2 * size).reshape(len(NEEDED), size).T.reshape(-1)
    keys = pa.array(NEEDED).take(pa.array(np.tile(np.arange(len(NEEDED)), size)))
    offsets = pa.array(np.arange(size + 1, dtype=np.int32) * len(NEEDED))
    kept = pa.MapArray.from_arrays(offsets, keys, pa.concat_arrays(columns).take(pa.array(alternating)))
    at = rows.schema.get_field_index("attributes")
    return rows.set_column(at, SCHEMA.field("attributes"), kept.cast(SCHEMA.field("attributes").type))
