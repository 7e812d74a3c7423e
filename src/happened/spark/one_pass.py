"""The pass over the rows of a trace that does not fit a task: every split is read once, whole.

    computations inside one split     are analysed by the task of that split
    computations across splits        are shuffled, as Arrow, and analysed by bucket
    large computations                become files of edges; buckets match messages that splits could not

In    splits, and the Survey of them
Out   tables of the computations that are not large; files of edges of the large ones, and facts about these
Cost  one Spark job; one more for large computations whose messages splits must not match by themselves

Buckets also check that the events of each process are numbered 1, 2, … without gaps: for each process a split
sends the runs of consecutive numbers that it has (a single run, in a trace written as it happened).
"""

import pickle
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..causality.linearization import Ints
from ..causality.names import encode_names, hashes
from ..causality.written import Whole
from ..trace import SCHEMA
from ..trace.store import AnyPath, matching
from .by_epoch.epoch_layout import NO_SAMPLES, Found, Samples
from .by_epoch.matching import Arrays, Part, pack_names, settle
from .sizes import Large, Survey
from .storage import write_arrays, write_part
from .tasks import Emitted, Runner, TraceFault, exchange, packed_by_bucket, raise_faults, unpack_table

EVENTS_PER_BUCKET = 500_000

MOST_SAMPLES = 200_000
"""The most events of large computations whose times tasks send to the driver, which places the cuts."""

RUNS = "runs"


class Chain(NamedTuple):
    process: str
    events: int
    distinct: int
    last: int


def runs(part: Part) -> pa.Table:
    """The runs of consecutive seqs of each process; length 0 for a process that may have no event."""
    order = np.lexsort((part.seq, part.process))
    process, seq = part.process[order], part.seq[order]
    begins = np.flatnonzero((np.diff(process, prepend=-1) != 0) | (np.diff(seq, prepend=-1) != 1))
    silent = np.setdiff1d(part.destinations, process)
    codes = np.concatenate([process[begins], silent])
    first, length = seq[begins], np.diff(begins, append=process.size)
    nothing = np.zeros(silent.size, np.int64)
    columns = {"first": np.concatenate([first, nothing]), "length": np.concatenate([length, nothing])}
    return pa.table({"process": pa.array(part.names, pa.string()).take(pa.array(codes)), **columns})


def settle_chains(table: pa.Table) -> list[Chain]:
    """One Chain for each process, joined from the runs that all splits have of the process."""
    code, names = encode_names(table["process"])
    first, length = table["first"].to_numpy(), table["length"].to_numpy()
    order = np.lexsort((first, code))
    order = order[length[order] > 0]
    first, length = first[order], length[order]
    at = np.searchsorted(code[order], np.arange(len(names) + 1))
    of = zip(names.to_pylist(), at[:-1], at[1:], strict=True)
    return [_chain(name, first[a:b], length[a:b]) for name, a, b in of]


def _chain(name: str, first: Ints, length: Ints) -> Chain:
    if not first.size:
        return Chain(name, 0, 0, 0)
    ends = np.maximum.accumulate(first + length - 1)
    before = np.concatenate([[0], ends[:-1]])
    distinct = int(np.maximum(first + length - 1 - np.maximum(before, first - 1), 0).sum())
    return Chain(name, int(length.sum()), distinct, int(ends[-1]))


def fault_of(chains: Sequence[Chain], computation: str) -> TraceFault | None:
    """What is wrong with the seqs of a computation's events, None if nothing; repeated seqs come first."""
    repeated = [chain for chain in chains if chain.events > chain.distinct]
    for chain in repeated or chains:
        if not chain.events == chain.last == chain.distinct:
            what = "two different rows share one seq" if repeated else "seq has a gap"
            reason = (
                f"{what}: process {chain.process!r} of computation {computation!r} has {chain.events} "
                f"events, {chain.distinct} different seqs, the last {chain.last}; number the events of "
                "each process 1, 2, … (two processes under one name look like this too)"
            )
            return TraceFault(reason)
    return None


@dataclass(frozen=True)
class SplitTotals:
    """What the task of a split reports about a large computation."""

    totals: Counter[str]
    earliest: int | None
    untimed: int
    relevant: int
    logged: int
    casts: bool
    names: list[str]
    samples: Samples


class SettledBucket(NamedTuple):
    """The chains of a bucket's processes; the totals of its messages, and whether they are doubtful."""

    chains: list[Chain]
    totals: Counter[str]
    doubtful: bool


def pass_over(
    spark: Runner,
    found: Survey,
    whole: Whole,
    stores: list[AnyPath],
    sample_every: int,
    keep_fates: bool = False,
) -> tuple[Counter[str], list[Found | TraceFault]]:
    """The totals of the computations that are not large; and for each large one what was found, or its fault.

    stores       the directory of each large computation
    keep_fates   whether to write the fate of each of its messages there too
    """
    first = _Pass(found, whole, stores, sample_every, keep_fates)
    totals, results, doubtful = first.run(spark)
    if doubtful:
        results |= replace(first, again=doubtful).run(spark)[1]
    return totals, [results[i] for i in range(len(found.large))]


@dataclass(frozen=True)
class _Pass:
    """again: in a second pass, the large computations whose messages must all be settled by buckets"""

    found: Survey
    whole: Whole
    stores: list[AnyPath]
    sample_every: int
    keep_fates: bool
    again: Sequence[int] = ()

    @property
    def crossing(self) -> int:
        """How many buckets the computations across splits use; they are the buckets from 0 on."""
        return self.found.crossing_events // EVENTS_PER_BUCKET + (self.found.crossing_events > 0)

    def buckets_of(self, large: Large) -> int:
        return large.events // EVENTS_PER_BUCKET + 1

    def base(self, i: int) -> int:
        return self.crossing + sum(self.buckets_of(large) for large in self.found.large[:i])

    def folder(self, i: int, what: str) -> AnyPath:
        """The folder of files `what`; new in a second pass: tasks thought dead may write to the first."""
        return self.stores[i] / (f"{what}-again" if self.again else what)

    def run(self, spark: Runner) -> tuple[Counter[str], dict[int, Found | TraceFault], list[int]]:
        """The totals, the results for large computations, and which of these need a second pass."""
        larges = range(len(self.found.large))
        emitted, settled = exchange(
            spark, len(self.found.splits), self.emit, self.base(len(larges)), self.settle
        )
        told = raise_faults(emitted)
        crossing = raise_faults([settled[bucket] for bucket in range(self.crossing) if bucket in settled])
        totals: Counter[str] = sum((*(whole for whole, _ in told), *crossing), Counter())
        results: dict[int, Found | TraceFault] = {}
        doubtful = []
        for i in self.again or larges:
            buckets = [settled[k] for k in range(self.base(i), self.base(i + 1)) if k in settled]
            results[i] = self.gather(i, [each[i] for _, each in told if i in each], buckets)
            if any(not isinstance(bucket, TraceFault) and bucket.doubtful for bucket in buckets):
                doubtful.append(i)
        return totals, results, doubtful

    def emit(self, number: int) -> Emitted:
        larges = [
            (i, large)
            for i, large in enumerate(self.found.large)
            if number in large.splits and (i in self.again or not self.again)
        ]
        if self.again and not larges:
            return Emitted((Counter(), {}), [])
        table = self.found.splits[number].read().events
        totals, blobs = (Counter[str](), []) if self.again else self._small(number, table, larges)
        told: dict[int, SplitTotals] = {}
        for i, large in larges:
            part = Part(rows_of(table, large.name), large.handover)
            matched = part.unmatched() if self.again else part.match()
            self.write(i, f"split-{number:06d}", matched.edges | _rows(part), matched.fates)
            told[i] = _told(part, matched.totals, self.sample_every)
            blobs += self._by_bucket(i, {**matched.unsettled, RUNS: runs(part)})
        return Emitted((totals, told), blobs)

    def _small(
        self, number: int, table: pa.Table, larges: list[tuple[int, Large]]
    ) -> tuple[Counter[str], list[tuple[int, bytes]]]:
        """Answer for the computations that lie inside this split; send the rows of those across splits to
        buckets, by the hash of the computation's name."""
        codes, names = encode_names(table["computation"])
        hashed = hashes(names)
        by_epoch = pa.array([large.name for _, large in larges], pa.string())
        is_large = pc.is_in(names, value_set=by_epoch).to_numpy(zero_copy_only=False)
        crosses = self.found.crosses(number, hashed) & ~is_large
        mine = table.filter(pa.array(~(crosses | is_large)[codes]))
        totals = self.whole.analyse_in_batches(mine, f"whole-{number:06d}")
        home = (hashed % np.uint64(max(self.crossing, 1))).astype(np.int64)[codes[crosses[codes]]]
        return totals, [*packed_by_bucket(table.filter(pa.array(crosses[codes])), home)]

    def _by_bucket(self, i: int, tables: dict[str, pa.Table]) -> Iterator[tuple[int, bytes]]:
        """Rows for the buckets of a large computation, by the hash of the name in their first column."""
        base, buckets = self.base(i), np.uint64(self.buckets_of(self.found.large[i]))
        for kind, table in tables.items():
            named = table.column(0).combine_chunks()
            hashed = named.to_numpy() if named.type == pa.uint64() else hashes(named)
            for bucket, blob in packed_by_bucket(table, base + (hashed % buckets).astype(np.int64)):
                yield bucket, pickle.dumps((kind, blob))

    def write(self, i: int, name: str, edges: Arrays, fates: pa.Table) -> None:
        write_arrays(self.folder(i, "edges") / f"{name}.npz", **edges)
        if self.keep_fates:
            write_part(self.folder(i, "fates"), name, fates)

    def settle(self, bucket: int, blobs: list[bytes]) -> "SettledBucket | Counter[str]":
        if bucket < self.crossing:
            rows = pa.concat_tables([*map(unpack_table, blobs)]).cast(SCHEMA)
            return self.whole.analyse_in_batches(rows, f"across-{bucket:06d}")
        i = next(i for i in range(len(self.found.large)) if bucket < self.base(i + 1))
        given: dict[str, list[pa.Table]] = {}
        for kind, blob in map(pickle.loads, blobs):
            given.setdefault(kind, []).append(unpack_table(blob))
        tables = {kind: pa.concat_tables(of).combine_chunks() for kind, of in given.items()}
        chains = settle_chains(tables.pop(RUNS)) if RUNS in tables else []
        if not tables:
            return SettledBucket(chains, Counter(), False)
        settled = settle(tables, everything=bool(self.again))
        self.write(i, f"bucket-{bucket - self.base(i):06d}", settled.edges, settled.fates)
        return SettledBucket(chains, settled.totals, settled.doubtful)

    def gather(self, i: int, told: list[SplitTotals], buckets: list[Any]) -> Found | TraceFault:
        """Combine what splits and buckets reported about a large computation."""
        for bucket in buckets:
            if isinstance(bucket, TraceFault):
                return bucket
        large = self.found.large[i]
        chains = sorted(chain for bucket in buckets for chain in bucket.chains)
        fault = fault_of(chains, large.name)
        if fault is not None:
            return fault
        names = tuple(chain.process for chain in chains)
        index = {name: p for p, name in enumerate(names)}
        totals: Counter[str] = sum((each.totals for each in (*told, *buckets)), Counter())
        samples = [
            each.samples._replace(
                process=np.array([index[name] for name in each.names], np.int64)[each.samples.process]
            )
            for each in told
        ]
        return Found(
            number=i,
            computation=large.name,
            events=large.events,
            store=self.stores[i],
            names=names,
            counts=np.array([chain.events for chain in chains], np.int64),
            totals=dict(totals),
            files=matching(self.folder(i, "edges"), "*.npz"),
            fates=matching(self.folder(i, "fates"), "*.parquet"),
            earliest=min((each.earliest for each in told if each.earliest is not None), default=None),
            untimed=sum(each.untimed for each in told),
            relevant=sum(each.relevant for each in told),
            logged=sum(each.logged for each in told),
            casts=any(each.casts for each in told),
            samples=Samples(*(np.concatenate(columns) for columns in zip(*samples, strict=True))),
        )


def rows_of(table: pa.Table, computation: str) -> pa.Table:
    return table.filter(pc.equal(table["computation"], computation)).combine_chunks()


def _told(part: Part, totals: Counter[str], sample_every: int) -> SplitTotals:
    times = part.time[part.timed]
    return SplitTotals(
        totals,
        int(times.min()) if times.size else None,
        int((~part.timed).sum()),
        int(part.relevant.sum()),
        len(part.clocks) - part.clocks.null_count,
        part.casts,
        [part.names[p] for p in np.unique(part.process).tolist()],
        _samples(part, sample_every) if part.timed.all() else NO_SAMPLES,
    )


def _samples(part: Part, every: int) -> Samples:
    """Every n-th event of each process, and its first and last event here."""
    order = np.lexsort((part.seq, part.process))
    process = part.process[order]
    begins = np.flatnonzero(np.diff(process, prepend=-1))
    place = np.arange(process.size) - np.repeat(begins, np.diff(begins, append=process.size))
    is_last = np.diff(process, append=-1) != 0
    chosen = np.flatnonzero((place % every == 0) | is_last)
    dense = np.unique(process, return_inverse=True)[1]
    return Samples(dense[chosen], part.seq[order[chosen]], part.time[order[chosen]])


def _rows(part: Part) -> Arrays:
    """The arrays about rows, if any, that the analysis by epochs needs besides edges."""
    logged = pc.is_valid(part.clocks).to_numpy(zero_copy_only=False)
    if not (part.timed.any() or part.relevant.any() or logged.any()):
        return {}
    rows: Arrays = {
        "row_process": part.process,
        "row_seq": part.seq,
        "row_time": part.time,
        "row_timed": part.timed,
        "row_relevant": part.relevant,
        "row_logged": logged,
    }
    return rows | (_clocks(part) if logged.any() else {})


def _clocks(part: Part) -> Arrays:
    """The nonzero entries of logged clocks, each with the number of its row."""
    clocks = part.clocks
    offsets: Ints = clocks.offsets.to_numpy()
    row = np.repeat(np.arange(len(clocks)), np.diff(offsets))
    keys = clocks.keys.slice(int(offsets[0]), row.size)
    count = clocks.items.slice(int(offsets[0]), row.size).fill_null(0).to_numpy(zero_copy_only=False)
    key, names = encode_names(pa.chunked_array([keys], pa.string()))
    held = count != 0
    return {
        "clock_row": row[held],
        "clock_key": key[held],
        "clock_count": count[held],
        "clock_names": pack_names(names.to_pylist()),
    }
