"""A computation too large for one task, laid out by epoch: what each epoch's task will need, as arrays.

In    the events of one computation, in any order
Out   store/epoch-K/share-*.npz: the edges into epoch K; the events before its end that are causes beyond
      it (`kept`); the slots that are in flight at some time in it; and which of its events are relevant.
      store/lost-*.npz: the slots that were never delivered, which no epoch can forget.
      The events themselves need not be written: with the cuts, epoch K has those numbered
      cuts[K-1] + 1 … cuts[K] of each process.
Cost  one shuffle join (see edges), then scans of the edges by tasks that read and write files themselves

Everything the driver holds has size processes x epochs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from ...causality.epochs import Epoch
from ...causality.linearization import Ints
from ...causality.questions import EpochView
from ...core.errors import TraceFormatError
from ..schemas import only_row
from ..storage import read_arrays, write_arrays
from ..tasks import on_tasks
from .consistent_cuts import backward, epoch_of, make_consistent, propose
from .edge_skew import Clocks, estimate, with_skew
from .edges import cause_edges, deliveries, fates, handover, message_edges
from .matching import match_in_files

FINE_SLOTS = 400_000
"""Processes x fine slots of time that reach the driver to place the cuts."""


MOST_UNEVEN = 4
"""If an epoch cut by time is so many times larger than asked for, cuts by seq are tried."""

MOST_NAMED = 1000
"""Causes that are no events; more are only counted."""

SHARES = {"edges": 5, "kept": 2, "slots": 4, "addressed": 3, "relevant": 2}
"""What an epoch is given, and the columns of each."""


@dataclass(frozen=True)
class Layout:
    """The directory that a computation is laid out in, and what of it is small enough for the driver."""

    store: Path
    computation: str
    names: tuple[str, ...]
    cuts: Ints  # epochs x processes
    clocks: Clocks | None  # of a computation that has times
    totals: dict[str, int]
    pairs: list[Row]
    all_relevant: bool
    quarantined: list[str] = field(default_factory=list)  # causes that are not in the trace, by name

    @property
    def epochs(self) -> int:
        return len(self.cuts)

    def starts(self, epoch: int) -> Ints:
        """The last seq of each process before this epoch."""
        return self.cuts[epoch - 1] if epoch else np.zeros(len(self.names), np.int64)

    def share(self, epoch: int) -> dict[str, Ints]:
        """Read what all tasks laid out for an epoch, as one array for each of SHARES."""
        shares = [read_arrays(path) for path in sorted(_folder(self.store, epoch).glob("share-*.npz"))]
        return {
            name: np.concatenate([np.empty((0, width), np.int64), *(s[name] for s in shares if name in s)])
            for name, width in SHARES.items()
        }

    def lost(self) -> Ints:
        """(sender, seq, destination) of every slot that was never delivered."""
        parts = [read_arrays(path)["lost"] for path in sorted(self.store.glob("lost-*.npz"))]
        return np.concatenate([np.empty((0, 3), np.int64), *parts])

    def epoch(self, k: int, edges: Ints) -> tuple[Epoch, Ints]:
        """Epoch k, and its edges in the order of their targets (the last column is kept as it is)."""
        n, start = len(self.names), self.starts(k)
        counts = self.cuts[k] - start
        process = np.repeat(np.arange(n), counts)
        first = np.concatenate([[0], np.cumsum(counts)[:-1]])
        seq = np.arange(process.size) - np.repeat(first - start, counts) + 1
        place = first[edges[:, 2]] + edges[:, 3] - start[edges[:, 2]] - 1
        order = np.argsort(place, kind="stable")
        offsets = np.concatenate([[0], np.cumsum(np.bincount(place, minlength=process.size))])
        edges = edges[order]
        return Epoch(n, process, seq, offsets.astype(np.int64), edges[:, 0], edges[:, 1], self.names), edges

    def view(self, k: int, timestamps: str) -> EpochView:
        """Epoch k as questions see it."""
        share = self.share(k)
        epoch, edges = self.epoch(k, share["edges"])
        kept = share["kept"]
        return EpochView(
            self.computation,
            self.names,
            k,
            epoch,
            is_slot=edges[:, 4] == 1,
            kept=(kept[:, 0], kept[:, 1]),
            chosen=None if self.all_relevant else share["relevant"],
            sent=share["addressed"],
            slots=share["slots"],
            lost=self.lost(),
            timestamps=timestamps,
        )


def _folder(store: Path, epoch: int) -> Path:
    return store / f"epoch-{epoch:06d}"


def lay_out(
    spark: SparkSession,
    events: DataFrame,
    computation: str,
    store: Path,
    *,
    per_epoch: int,
    files: Sequence[str] = (),
) -> Layout:
    """Lay out one computation in the directory `store`, in epochs of about `per_epoch` events.

    files   the Parquet files that hold exactly these events; their messages are matched where they lie. None:
            the events come from elsewhere, and are joined
    """
    chains = _chains(events, computation)
    names = tuple(sorted(chains))
    counts = np.array([chains[name] for name in names], np.int64)
    index = spark.createDataFrame(list(zip(names, range(len(names)), strict=True)), "process string, p int")
    _one_send_each(events)
    kind = handover(events)
    totals = match_in_files(spark, files, computation, names, kind, store) if files else None
    if totals is None:
        totals = _join(events, index, kind, store)
    quarantined, absent = _quarantine_causes(events, index, counts)
    earliest = only_row(events.agg(F.min("time")))[0]
    edges = spark.read.parquet(str(store / "edges")).where("target_seq is not null")
    clocks = estimate(edges, len(names), earliest) if earliest is not None else None
    offsets = clocks.skew.offsets if clocks is not None else None
    pairs = _pairs(edges, clocks)
    totals["receives_before_sends"] = sum(row["before"] for row in pairs)
    totals["receives_before_sends_corrected"] = sum(row["after"] for row in pairs)
    epochs = math.ceil(counts.sum() / per_epoch)
    shares = sorted(str(path) for path in (store / "edges").glob("*.parquet"))

    def cut(ahead: Ints | None) -> tuple[Ints, int]:
        proposed = _propose(events, index, names, counts, ahead, epochs)
        return make_consistent(proposed, lambda cuts: _look(spark, shares, cuts, counts))

    cuts, rounds = cut(offsets)
    if offsets is not None and _largest(cuts) > MOST_UNEVEN * per_epoch:
        # One time far from all others (a clock that showed 1970) leaves all others in one slot.
        by_seq, more = cut(None)
        cuts, rounds = min(cuts, by_seq, key=_largest), rounds + more
    totals |= {"events": int(counts.sum()), "processes": len(names), "rounds": rounds, "quarantined": absent}
    relevant = _relevant(events, index, store)
    _scatter(spark, shares, relevant, cuts, counts, store)
    return Layout(
        store,
        computation,
        names,
        cuts,
        clocks,
        totals,
        pairs,
        not relevant,
        quarantined,
    )


def _join(events: DataFrame, index: DataFrame, kind: str, store: Path) -> dict[str, int]:
    """The edges by a shuffle join, whatever the order of the rows and the faults of the trace."""
    met = deliveries(events, index, kind).persist()
    totals = only_row(fates(met, events.where(F.col("kind") == "send"))).asDict()
    edges = message_edges(met).union(cause_edges(events, index))
    edges.write.mode("overwrite").parquet(str(store / "edges"))
    met.unpersist()
    return totals


def _chains(events: DataFrame, computation: str) -> dict[str, int]:
    """How many events each process has; destinations that never act have none."""
    bucket, bit = F.bitmap_bucket_number("seq"), F.bitmap_bit_position("seq")
    chains = (
        events.groupBy("process", bucket.alias("bucket"))
        .agg(
            F.count(F.lit(1)).alias("events"),
            F.max("seq").alias("last"),
            F.bitmap_count(F.bitmap_construct_agg(bit)).alias("distinct"),
        )
        .groupBy("process")
        .agg(
            F.sum("events").alias("events"), F.max("last").alias("last"), F.sum("distinct").alias("distinct")
        )
    )
    lengths = {}
    for row in chains.collect():
        if not row["events"] == row["last"] == row["distinct"]:
            what = "two events share one seq" if row["events"] > row["distinct"] else "seq has a gap"
            raise TraceFormatError(
                f"{what}: process {row['process']!r} of computation {computation!r} has {row['events']} "
                f"events, {row['distinct']} different seqs, the last {row['last']}; number the events of "
                "each process 1, 2, … (two processes under one name look like this too)",
                field="seq",
            )
        lengths[row["process"]] = row["events"]
    silent = events.select(F.explode("to").alias("process")).distinct()
    return {row["process"]: 0 for row in silent.collect()} | lengths


def _one_send_each(events: DataFrame) -> None:
    """Names are compared only where their hashes meet: shuffling hashes is cheaper than shuffling names."""
    sends = events.where(F.col("kind") == "send").withColumn("hash", F.xxhash64("message"))
    met = sends.groupBy("hash").count().where("count > 1").select("hash")
    twice = sends.join(met, "hash", "left_semi").groupBy("message").count().where("count > 1").head(1)
    if twice:
        raise TraceFormatError(
            f"{twice[0]['message']!r} has been sent {twice[0]['count']} times; give each send its own name",
            field="message",
        )


def _quarantine_causes(events: DataFrame, index: DataFrame, counts: Ints) -> tuple[list[str], int]:
    """Name and count the causes that are no events; no edge is made of them."""
    lengths = events.sparkSession.createDataFrame(list(enumerate(map(int, counts))), "p int, length long")
    known = F.broadcast(index.join(lengths, "p").withColumnRenamed("process", "cause_process"))
    causes = events.where(F.col("causes").isNotNull()).select(
        "process", "seq", F.explode("causes").alias("cause")
    )
    causes = causes.select(
        "process", "seq", F.col("cause.process").alias("cause_process"), F.col("cause.seq").alias("cause_seq")
    )
    is_event = F.col("cause_seq").between(1, F.col("length"))
    absent = causes.join(known, "cause_process", "left").where(~F.coalesce(is_event, F.lit(False)))
    named = [
        f"{row['process']}#{row['seq']} names the cause {row['cause_process']}#{row['cause_seq']}, "
        "which is not in the trace"
        for row in absent.limit(MOST_NAMED).collect()
    ]
    return named, len(named) if len(named) < MOST_NAMED else absent.count()


def _pairs(edges: DataFrame, clocks: Clocks | None) -> list[Row]:
    """Per pair of processes: messages delivered, corrected latency, and deliveries before their sends."""
    if clocks is None:
        told = edges.withColumn("corrected", F.lit(None).cast("long"))
    else:
        told = with_skew(edges.withColumn("since", F.col("sent") - clocks.origin), clocks.skew)
    return (
        told.groupBy("source", "target")
        .agg(
            F.count(F.when(F.col("slot"), 1)).alias("messages"),
            F.min("corrected").alias("latency_min"),
            F.avg("corrected").alias("latency_mean"),
            F.count(F.when(F.col("gap") < 0, 1)).alias("before"),
            F.count(F.when(F.col("corrected") < 0, 1)).alias("after"),
        )
        .collect()
    )


def _propose(
    events: DataFrame,
    index: DataFrame,
    names: tuple[str, ...],
    counts: Ints,
    offsets: Ints | None,
    epochs: int,
) -> Ints:
    """By corrected time, given offsets and a time for every event; else by the share of each process."""
    if epochs <= 1 or not counts.sum():
        return counts[None]
    spark = events.sparkSession
    ahead = np.zeros(len(names), np.int64) if offsets is None else offsets
    numbers = [(i, int(counts[i]), int(ahead[i])) for i in range(len(names))]
    chains = spark.createDataFrame(numbers, "p int, length long, ahead long")
    of = (
        events.select("process", "seq", "time")
        .join(F.broadcast(index), "process")
        .join(F.broadcast(chains), "p")
    )
    timed = offsets is not None and of.where(F.col("time").isNull()).isEmpty()
    place = F.col("time") - F.col("ahead") if timed else F.col("seq") / F.col("length")
    of = of.select("p", "seq", place.cast("double").alias("place"))
    low, high = only_row(of.agg(F.min("place"), F.max("place")))
    slots = max(2 * epochs, min(64 * epochs, FINE_SLOTS // max(len(names), 1)))
    width = (high - low) / slots or 1.0
    slot = F.least(F.floor((F.col("place") - low) / width), F.lit(slots - 1)).cast("int")
    fine = of.groupBy("p", slot.alias("slot")).agg(
        F.min("seq").alias("first"), F.count(F.lit(1)).alias("events")
    )
    first = np.full((len(names), slots), np.iinfo(np.int64).max, np.int64)
    count = np.zeros(slots, np.int64)
    for row in fine.collect():
        first[row["p"], row["slot"]] = row["first"]
        count[row["slot"]] += row["events"]
    return propose(first, count, counts, epochs)


def _largest(cuts: Ints) -> int:
    """Events of the largest epoch."""
    return int(np.diff(cuts.sum(axis=1), prepend=0).max(initial=0))


class _Edges:
    """One file of edges. A slot whose target_seq is 0 was addressed and never reached: it is no edge."""

    def __init__(self, path: str, counts: Ints) -> None:
        table = pq.read_table(path)
        source, source_seq, target = (
            table[name].to_numpy().astype(np.int64) for name in table.column_names[:3]
        )
        target_seq = pc.fill_null(table["target_seq"], 0).to_numpy()
        slot = table["slot"].to_numpy()
        real = (source_seq >= 1) & (source_seq <= counts[source])
        whole = real & (target_seq > 0)
        self.ends = tuple(column[whole] for column in (source, source_seq, target, target_seq))
        self.slot = slot[whole]
        self.addressed = tuple(column[real & slot] for column in (source, source_seq, target))
        lost = real & slot & (target_seq == 0)
        self.lost = np.column_stack([column[lost] for column in (source, source_seq, target)])


def _look(spark: SparkSession, files: list[str], cuts: Ints, counts: Ints) -> list[Ints]:
    def bounds(number: int) -> list[list[int]]:
        bound = backward(cuts, *_Edges(files[number], counts).ends)
        changed = np.argwhere(bound != cuts)
        return [[int(k), int(p), int(bound[k, p])] for k, p in changed]

    result = []
    for found in on_tasks(spark, len(files), bounds):
        bound = cuts.copy()
        for k, p, seq in found:
            bound[k, p] = seq
        result.append(bound)
    return result


def _relevant(events: DataFrame, index: DataFrame, store: Path) -> list[str]:
    """Files with the (process, seq) of the relevant events; none means that all are."""
    chosen = events.where("relevant").join(F.broadcast(index), "process").select("p", "seq")
    if chosen.isEmpty():
        return []
    chosen.write.parquet(str(store / "relevant"))
    return sorted(str(path) for path in (store / "relevant").glob("*.parquet"))


def _scatter(
    spark: SparkSession, files: list[str], relevant: list[str], cuts: Ints, counts: Ints, store: Path
) -> None:
    """Give every epoch its share of the edges, kept events, slots and relevant events."""

    def scatter(number: int) -> int:
        if number >= len(files):
            table = pq.read_table(relevant[number - len(files)])
            process, seq = table["p"].to_numpy().astype(np.int64), table["seq"].to_numpy()
            return _write_shares(store, number, {"relevant": (epoch_of(cuts, process, seq), process, seq)})
        edges = _Edges(files[number], counts)
        source, source_seq, target, target_seq = edges.ends
        sent = epoch_of(cuts, source, source_seq)
        given = epoch_of(cuts, target, target_seq)
        crossing, at = _spans(sent, given)
        flying, during = _spans(sent, given + 1, edges.slot)
        if len(edges.lost):
            write_arrays(store / f"lost-{number:05d}.npz", lost=edges.lost)
        return _write_shares(
            store,
            number,
            {
                "edges": (given, *edges.ends, edges.slot.astype(np.int64)),
                "kept": (at, source[crossing], source_seq[crossing]),
                "slots": (during, *(column[flying] for column in edges.ends)),
                "addressed": (epoch_of(cuts, *edges.addressed[:2]), *edges.addressed),
            },
        )

    on_tasks(spark, len(files) + len(relevant), scatter)


def _spans(first: Ints, end: Ints, where: Any = None) -> tuple[Ints, Ints]:
    """Each edge once for every epoch in first:end, as (edge, epoch)."""
    lengths = np.maximum(end - first, 0)
    if where is not None:
        lengths = np.where(where, lengths, 0)
    edge = np.repeat(np.arange(len(first)), lengths)
    start = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
    return edge, np.repeat(first - start, lengths) + np.arange(edge.size)


def _write_shares(store: Path, number: int, columns: dict[str, tuple[Ints, ...]]) -> int:
    shares: dict[int, dict[str, Ints]] = {}
    for name, (epoch, *values) in columns.items():
        if not epoch.size:
            continue
        rows = np.stack(values, axis=1)
        order = np.argsort(epoch, kind="stable")
        present, at = np.unique(epoch[order], return_index=True)
        for k, part in zip(present, np.split(rows[order], at[1:]), strict=True):
            shares.setdefault(int(k), {})[name] = np.unique(part, axis=0) if name == "kept" else part
    for k, share in shares.items():
        write_arrays(_folder(store, k) / f"share-{number:05d}.npz", **share)
    return len(shares)
