"""The pass over the rows of a trace that does not fit a task: every split is read once, whole.

    computations that a split holds    are analysed there
    those that lie across splits       are shuffled, as Arrow, and analysed by bucket
    large ones                         leave edges, and what splits could not match is settled by bucket

In    splits, and what a survey found
Out   tables of the computations that are not large; files of edges of the others, and what is known of them
Cost  one Spark job; one more for large computations whose messages splits must not match by themselves

Whether the events of each process are numbered 1, 2, … without gaps is settled with the messages: a split
gives the runs of consecutive numbers it has of each process (one, in a trace written as it happened).
"""

import pickle
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..causality.linearization import Ints
from ..causality.names import encode_names, hashes
from ..causality.written import Whole
from ..trace import SCHEMA
from ..trace.store import AnyPath, matching
from .by_epoch.epoch_layout import Found, Samples
from .by_epoch.matching import Arrays, Part, pack_names, settle
from .sizes import Large, Survey
from .splits import Split
from .storage import write_arrays, write_part
from .tasks import Emitted, Runner, TraceFault, exchange, pack_table, raise_faults, unpack_table

EVENTS_PER_BUCKET = 500_000

MOST_SAMPLES = 200_000
"""Events of large computations whose times are sent to the driver, to place cuts."""

CHAINS, MESSAGES = "chains", "messages"


class Chain(NamedTuple):
    process: str
    events: int
    distinct: int
    last: int


def runs(process: Ints, seq: Ints) -> tuple[Ints, Ints, Ints]:
    """(process, first seq, length) of the runs of consecutive seqs."""
    order = np.lexsort((seq, process))
    process, seq = process[order], seq[order]
    begins = np.flatnonzero((np.diff(process, prepend=-1) != 0) | (np.diff(seq, prepend=-1) != 1))
    return process[begins], seq[begins], np.diff(begins, append=process.size)


def runs_by_bucket(
    names: Sequence[str], process: Ints, seq: Ints, others: Ints, buckets: int
) -> Iterator[tuple[int, bytes]]:
    """Give every process to the bucket of its name; `others` are processes that may have no event."""
    of, first, length = runs(process, seq)
    present = np.union1d(of, others)
    bucket_of = {p: zlib.crc32(names[p].encode()) % buckets for p in present.tolist()}
    home = np.array([bucket_of[p] for p in of.tolist()], np.int64)
    for bucket in sorted({*bucket_of.values()}):
        mine = [p for p, b in bucket_of.items() if b == bucket]
        here = home == bucket
        local = np.searchsorted(np.array(mine), of[here])
        yield bucket, pickle.dumps(([names[p] for p in mine], local, first[here], length[here]))


def settle_chains(blobs: Iterable[bytes]) -> list[Chain]:
    """The chains of the processes of a bucket."""
    parts = [pickle.loads(blob) for blob in blobs]
    names = sorted({name for part in parts for name in part[0]})
    index = {name: i for i, name in enumerate(names)}
    code = np.concatenate([np.array([index[name] for name in part[0]], np.int64)[part[1]] for part in parts])
    first, length = (np.concatenate([part[i] for part in parts]) for i in (2, 3))
    order = np.lexsort((first, code))
    code, first, length = code[order], first[order], length[order]
    at = np.searchsorted(code, np.arange(len(names) + 1))
    return [_chain(name, first[a:b], length[a:b]) for name, a, b in zip(names, at[:-1], at[1:], strict=True)]


def _chain(name: str, first: Ints, length: Ints) -> Chain:
    if not first.size:
        return Chain(name, 0, 0, 0)
    ends = np.maximum.accumulate(first + length - 1)
    before = np.concatenate([[0], ends[:-1]])
    distinct = int(np.maximum(first + length - 1 - np.maximum(before, first - 1), 0).sum())
    return Chain(name, int(length.sum()), distinct, int(ends[-1]))


def fault_of(chains: Sequence[Chain], computation: str) -> TraceFault | None:
    """What is wrong with the numbers of a computation's events; repeated numbers are reported first."""
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
    """What a split reports of a large computation."""

    totals: Counter[str]
    earliest: int | None
    untimed: int
    relevant: int
    logged: int
    casts: bool
    names: list[str]
    samples: Samples


def pass_over(
    spark: Runner,
    found: Survey,
    whole: Whole,
    stores: list[AnyPath],
    sample_every: int,
    keep_fates: bool = False,
) -> tuple[Counter[str], list[Found | TraceFault]]:
    """The totals of the computations that are not large, and each large one as it was found.

    stores       the directory of each large computation
    keep_fates   whether what became of each of its messages is to be left there too
    """
    splits = found.splits
    job = _Pass(splits, found, whole, stores, sample_every, keep_fates)
    emitted, settled = exchange(spark, len(splits), job.emit, job.buckets, job.settle)
    told = [result for _, result in raise_faults(emitted)]
    totals: Counter[str] = sum((result for result, _ in emitted), Counter())
    for bucket in range(job.crossing):
        (result,) = raise_faults([settled.get(bucket, Counter())])
        totals += result
    results = [job.of_large(settled, i) for i in range(len(found.large))]
    doubtful = [i for i, result in enumerate(results) if _is_doubtful(result)]
    again: dict[int, list[Any]] = {}
    if doubtful:
        rest = _Again(job, doubtful)
        emitted, settled = exchange(spark, len(splits), rest.emit, job.buckets, rest.settle)
        raise_faults(emitted)
        again = {i: job.of_large(settled, i) for i in doubtful}
        for number, result in enumerate(emitted):
            told[number] = told[number] | result
    return totals, [
        job.gather(i, [each[i] for each in told if i in each], results[i], again.get(i))
        for i in range(len(found.large))
    ]


def _is_doubtful(results: Iterable[Any]) -> bool:
    return any(
        not isinstance(result, TraceFault) and result[1] is not None and result[1][1] for result in results
    )


@dataclass(frozen=True)
class _Pass:
    splits: Sequence[Split]
    found: Survey
    whole: Whole
    stores: list[AnyPath]
    sample_every: int
    keep_fates: bool

    @property
    def crossing(self) -> int:
        """How many buckets the computations that lie across splits use: the first ones."""
        return self.found.crossing_events // EVENTS_PER_BUCKET + (self.found.crossing_events > 0)

    def buckets_of(self, large: Large) -> int:
        return large.events // EVENTS_PER_BUCKET + 1

    def base(self, i: int) -> int:
        return self.crossing + sum(self.buckets_of(large) for large in self.found.large[:i])

    @property
    def buckets(self) -> int:
        return self.base(len(self.found.large))

    def of_large(self, settled: dict[int, Any], i: int) -> list[Any]:
        base = self.base(i)
        buckets = range(base, base + self.buckets_of(self.found.large[i]))
        return [settled[bucket] for bucket in buckets if bucket in settled]

    def emit(self, number: int) -> Emitted:
        table = self.splits[number].read()[0]
        codes, names = encode_names(table["computation"])
        hashed = hashes(names)
        by_epoch = pa.array([large.name for _, large in self.larges_in(number)], pa.string())
        is_large = pc.is_in(names, value_set=by_epoch).to_numpy(zero_copy_only=False)
        crosses = self.found.crosses(number, hashed) & ~is_large
        mine = table.filter(pa.array(~(crosses | is_large)[codes]))
        totals = self.whole.analyse_in_batches(mine, f"whole-{number:06d}")
        blobs = [*self._crossing(table.filter(pa.array(crosses[codes])), hashed[codes[crosses[codes]]])]
        told: dict[int, SplitTotals] = {}
        for i, large in self.larges_in(number):
            part = Part(rows_of(table, large.name), large.handover)
            told[i], given = self._match(i, part, number)
            blobs += given
        return Emitted((totals, told), blobs)

    def larges_in(self, number: int) -> Iterator[tuple[int, Large]]:
        return ((i, large) for i, large in enumerate(self.found.large) if number in large.splits)

    def _crossing(self, rows: pa.Table, names: Ints) -> Iterator[tuple[int, bytes]]:
        """Rows for the buckets, by the hash of their computation's name."""
        if not rows.num_rows:
            return
        bucket = (names % np.uint64(self.crossing)).astype(np.int64)
        order = np.argsort(bucket, kind="stable")
        rows = rows.take(pa.array(order)) if self.crossing > 1 else rows
        ends = np.searchsorted(bucket[order], np.arange(self.crossing + 1)).tolist()
        for each, (begin, end) in enumerate(pairwise(ends)):
            if end > begin:
                yield each, pack_table(rows.slice(begin, end - begin))

    def _match(self, i: int, part: Part, number: int) -> tuple[SplitTotals, list[tuple[int, bytes]]]:
        edges, unsettled, totals, fates = part.match()
        self.write(i, f"split-{number:06d}", edges | _rows(part))
        self.write_fates(i, f"split-{number:06d}", fates)
        base, buckets = self.base(i), self.buckets_of(self.found.large[i])
        chains = runs_by_bucket(part.names, part.process, part.seq, part.destinations, buckets)
        blobs = [(base + r, pickle.dumps((CHAINS, blob))) for r, blob in chains]
        blobs += [(base + r, pickle.dumps((MESSAGES, blob))) for r, blob in unsettled.by_bucket(buckets)]
        return _told(part, totals, self.sample_every), blobs

    def write(self, i: int, name: str, arrays: Arrays, again: bool = False) -> None:
        write_arrays(self.edges(i, again) / f"{name}.npz", **arrays)

    def write_fates(self, i: int, name: str, fates: pa.Table, again: bool = False) -> None:
        if self.keep_fates:
            write_part(self.fates(i, again), name, fates)

    # A second pass has directories of its own: a task of the first pass that was thought dead may still
    # write.

    def edges(self, i: int, again: bool) -> AnyPath:
        return self.stores[i] / ("edges-again" if again else "edges")

    def fates(self, i: int, again: bool) -> AnyPath:
        return self.stores[i] / ("fates-again" if again else "fates")

    def settle(self, bucket: int, blobs: list[bytes]) -> Any:
        if bucket < self.crossing:
            rows = pa.concat_tables([*map(unpack_table, blobs)]).cast(SCHEMA)
            return self.whole.analyse_in_batches(rows, f"across-{bucket:06d}")
        return self.settle_large(bucket, blobs, everything=False)

    def settle_large(
        self, bucket: int, blobs: list[bytes], *, everything: bool
    ) -> tuple[list[Chain], tuple[Counter[str], bool] | None]:
        """The chains of a bucket's processes; the totals of its messages, and whether they are doubtful."""
        i = next(i for i in range(len(self.found.large)) if bucket < self.base(i + 1))
        given: dict[str, list[bytes]] = {CHAINS: [], MESSAGES: []}
        for kind, blob in map(pickle.loads, blobs):
            given[kind].append(blob)
        chains = settle_chains(given[CHAINS]) if given[CHAINS] else []
        if not given[MESSAGES]:
            return chains, None
        settled = settle(given[MESSAGES], everything=everything)
        self.write(i, f"bucket-{bucket - self.base(i):06d}", settled.edges, everything)
        self.write_fates(i, f"bucket-{bucket - self.base(i):06d}", settled.fates, everything)
        return chains, (settled.totals, settled.doubtful)

    def gather(
        self, i: int, told: list[SplitTotals], results: list[Any], again: list[Any] | None
    ) -> Found | TraceFault:
        """Everything that is known of a large computation."""
        for result in (*results, *(again or ())):
            if isinstance(result, TraceFault):
                return result
        large = self.found.large[i]
        chains = sorted(chain for found, _ in results for chain in found)
        fault = fault_of(chains, large.name)
        if fault is not None:
            return fault
        names = tuple(chain.process for chain in chains)
        index = {name: p for p, name in enumerate(names)}
        totals = sum((each.totals for each in told), Counter())
        totals = sum((each[1][0] for each in (again or results) if each[1] is not None), totals)
        earliest = [each.earliest for each in told if each.earliest is not None]
        samples = [
            each.samples._replace(
                process=np.array([index[name] for name in each.names], np.int64)[each.samples.process]
            )
            for each in told
        ]
        return Found(
            number=i,
            name=large.name,
            events=large.events,
            store=self.stores[i],
            names=names,
            counts=np.array([chain.events for chain in chains], np.int64),
            totals=dict(totals),
            files=matching(self.edges(i, again is not None), "*.npz"),
            fates=matching(self.fates(i, again is not None), "*.parquet"),
            earliest=min(earliest, default=None),
            untimed=sum(each.untimed for each in told),
            relevant=sum(each.relevant for each in told),
            logged=sum(each.logged for each in told),
            casts=any(each.casts for each in told),
            samples=Samples(*(np.concatenate(columns) for columns in zip(*samples, strict=True))),
        )


@dataclass(frozen=True)
class _Again:
    """A second pass, over the rows of large computations whose messages must all be settled together."""

    job: _Pass
    doubtful: list[int]

    def emit(self, number: int) -> Emitted:
        told: dict[int, SplitTotals] = {}
        blobs = []
        wanted = [(i, large) for i, large in self.job.larges_in(number) if i in self.doubtful]
        table = self.job.splits[number].read()[0] if wanted else None
        for i, large in wanted:
            part = Part(rows_of(table, large.name), large.handover)
            edges, unsettled, totals = part.unmatched()
            self.job.write(i, f"split-{number:06d}", edges | _rows(part), again=True)
            base, buckets = self.job.base(i), self.job.buckets_of(large)
            given = unsettled.by_bucket(buckets)
            blobs += [(base + r, pickle.dumps((MESSAGES, blob))) for r, blob in given]
            told[i] = _told(part, totals, self.job.sample_every)
        return Emitted(told, blobs)

    def settle(self, bucket: int, blobs: list[bytes]) -> Any:
        return self.job.settle_large(bucket, blobs, everything=True)


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
        _samples(part, sample_every) if part.timed.all() else Samples(*(np.empty(0, np.int64),) * 3),
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
    """The arrays that epochs need besides edges, if any."""
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
    """The entries of logged clocks that are not zero, each with the row it is of."""
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
