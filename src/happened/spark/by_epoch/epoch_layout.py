"""Large computations laid out by epoch: the arrays that each epoch's task needs.

In    the files of edges that one pass over the rows left (see matching), and what it told of each
Out   store/epoch-K.npz: the edges into epoch K; the events before its end that are causes beyond it (`kept`);
      the slots that are in flight at some time in it; which of its events are relevant; times and logged
      clocks, if there are any. store/arranged-K.npz: its topological order. store/summary-K.npz: epoch K
      stamped from names alone (see causality.epochs), unless there are more than WIDE processes.
      store/lost-*.npz: the slots that were never delivered, which no epoch can forget.
      The events themselves need not be written: with the cuts, epoch K has those numbered
      cuts[K-1] + 1 … cuts[K] of each process.
Cost  three scans of the edges by tasks, and one shuffle of them, as bytes; all computations in each together

Everything the driver holds has size processes x epochs, or (if there are times) pairs of processes that
exchange messages.
"""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...causality.epochs import Arranged, Epoch, Frontier, arrange, event_keys, split_keys
from ...causality.epochs import stamp as stamp_with
from ...causality.linearization import Ints
from ...causality.questions import EpochView
from ...causality.questions.question import WIDTH
from ...causality.skew import tightest
from ...causality.stamps import MANY_PROCESSES
from ...trace.store import AnyPath, matching
from ..storage import read_arrays, write_arrays
from ..tasks import Emitted, Runner, TraceFault, exchange, on_each, on_tasks
from .consistent_cuts import backward, by_share, by_time, epoch_of, settled
from .edge_files import Clocks, EdgeFile, Sums, estimate, leave_sums, merge_tightest
from .matching import pack_names

MOST_UNEVEN = 4
"""If an epoch cut by time is this many times larger than requested, cuts by seq are tried."""

CELLS_PER_EPOCH = 20_000_000
"""Events x processes of an epoch: 80 MB of vectors in a task."""

EPOCH_EVENTS = 200_000

WIDE = MANY_PROCESSES
"""With more processes than this, frontiers would be larger than epochs, so columns are stamped in blocks."""

SUMMARY, FRONTIER = "summary", "frontier"
"""The files of an epoch's summary, and of the exact frontier that enters it once epochs are stamped."""

SHARES = {
    "edges": 5, "kept": 2, "entering": 2, "slots": 4, "addressed": 3, "relevant": 2, "times": 3,
    "logged": 3, "clocks": 4,
}  # fmt: skip
"""The arrays of an epoch, and the columns of each.

times    process, seq, time
logged   process, seq of events with a logged clock, and whether it names a process there is not
clocks   process, seq, and an entry of its logged clock: another process, a count
"""


class Samples(NamedTuple):
    """Some events of each process, with their times, from which cuts are proposed."""

    process: Ints
    seq: Ints
    time: Ints


NO_SAMPLES = Samples(*(np.empty(0, np.int64),) * 3)


@dataclass(kw_only=True)
class Found:
    """A large computation after the pass over the rows.

    counts    how many events each process has
    files     of edges
    fates     files of the fates of messages, if they are asked for
    earliest  the earliest time of its events; None if no event has a time
    casts     whether any message has several destinations
    """

    number: int
    computation: str
    events: int
    store: AnyPath
    names: tuple[str, ...] = ()
    counts: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    totals: dict[str, int] = field(default_factory=dict)
    files: list[AnyPath] = field(default_factory=list)
    fates: list[AnyPath] = field(default_factory=list)
    earliest: int | None = None
    untimed: int = 0
    relevant: int = 0
    logged: int = 0
    casts: bool = False
    samples: Samples = NO_SAMPLES

    def open(self, path: AnyPath) -> EdgeFile:
        return EdgeFile(path, self.names, self.counts)


@dataclass(kw_only=True)
class Layout(Found):
    """A computation that is laid out in its directory, by facts that are small enough for the driver."""

    cuts: Ints  # epochs x processes
    clocks: Clocks | None  # only for a computation that has times
    pairs: list[Sums]  # one row for each pair of processes that exchanged messages
    wide: bool  # whether blocks of columns are stamped separately
    absent: list[AnyPath]  # files of causes that are not in the trace

    @property
    def epochs(self) -> int:
        return len(self.cuts)

    def named(self, processes: Ints) -> pa.Array:
        return pa.array(self.names, pa.string()).take(pa.array(processes))

    def numbered(self, processes: pa.ChunkedArray) -> pa.ChunkedArray:
        """The numbers of processes; null for a name that is none of them."""
        return pc.index_in(processes, value_set=pa.array(self.names, pa.string()))

    @property
    def all_relevant(self) -> bool:
        return not self.relevant

    def starts(self, epoch: int) -> Ints:
        """The last seq of each process before this epoch."""
        return self.cuts[epoch - 1] if epoch else np.zeros(len(self.names), np.int64)

    def share(self, epoch: int) -> dict[str, Ints]:
        """The arrays written for epoch k, one for each of SHARES."""
        return read_arrays(self.path("epoch", epoch))

    def path(self, what: str, epoch: int) -> AnyPath:
        return self.store / f"{what}-{epoch:06d}.npz"

    def lost(self) -> Ints:
        """(sender, seq, destination) of every slot that was never delivered."""
        parts = [read_arrays(path)["lost"] for path in matching(self.store, "lost-*.npz")]
        return np.concatenate([np.empty((0, 3), np.int64), *parts])

    def epoch(self, k: int, edges: Ints) -> tuple[Epoch, Ints]:
        """Epoch k, and its edges in the order of their targets (the last column is unchanged)."""
        n, start = len(self.names), self.starts(k)
        counts = self.cuts[k] - start
        process = np.repeat(np.arange(n), counts)
        first = np.concatenate([[0], np.cumsum(counts)[:-1]])
        seq = np.arange(process.size) - np.repeat(first - start, counts) + 1
        place = first[edges[:, 2]] + edges[:, 3] - start[edges[:, 2]] - 1
        offsets = np.concatenate([[0], np.cumsum(np.bincount(place, minlength=process.size))])
        if (place[1:] < place[:-1]).any():
            edges = edges[np.argsort(place, kind="stable")]
        return Epoch(n, process, seq, offsets.astype(np.int64), edges[:, 0], edges[:, 1], self.names), edges

    def arranged(self, k: int) -> Arranged:
        arrays = read_arrays(self.path("arranged", k))
        entering = int(arrays.pop("entering")[0])
        return Arranged(entering, **{name: array.astype(np.int64) for name, array in arrays.items()})

    def logged_clocks(self, k: int, share: dict[str, Ints] | None = None) -> tuple[Ints, Ints]:
        """The logged clocks of epoch k, as EpochView has them."""
        share = self.share(k) if share is None else share
        logged = share["logged"]
        return logged[np.lexsort((logged[:, 1], logged[:, 0]))], share["clocks"]

    def view(
        self, k: int, timestamps: str = "full", share: dict[str, Ints] | None = None, lost: Ints | None = None
    ) -> EpochView:
        """Epoch k as questions see it; pass `share` and `lost` if they have been read already.

        For a wide computation the view has no whole vectors.
        """
        share = self.share(k) if share is None else share
        epoch, edges = self.epoch(k, share["edges"])
        kept = share["kept"]
        logged, clocks = self.logged_clocks(k, share)
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
            lost=self.lost() if lost is None else lost,
            timestamps="predecessors" if self.wide else timestamps,
            arranged=self.arranged(k),
            counts=self.counts,
            logged=logged,
            clocks=clocks,
        )


def lay_out(
    spark: Runner, found: Sequence[Found], *, epoch_events: int | None = None
) -> list[Layout | TraceFault]:
    """Lay out every computation in its directory, in epochs of about `epoch_events` events each.

    A computation that turns out to be invalid is a TraceFault in the result.
    """
    # Tasks need no samples.
    jobs = [(replace(of, samples=NO_SAMPLES), path) for of in found for path in of.files]
    prepared = _prepare(spark, found, jobs, epoch_events)
    _make_consistent(spark, found, jobs, prepared)
    layouts = [_layout(of, plan) for of, plan in zip(found, prepared, strict=True)]
    faults = _scatter(spark, found, jobs, layouts)
    return [faults.get(number, layout) for number, layout in enumerate(layouts)]


@dataclass
class _Plan:
    """What is known of a computation before it is cut into epochs."""

    clocks: Clocks | None
    proposals: list[Ints]  # proposed cuts, the best first
    per_epoch: int
    absent: list[AnyPath]
    absent_count: int
    cuts: Ints = field(default_factory=lambda: np.empty((0, 0), np.int64))
    rounds: int = 0
    pairs: list[Sums] = field(default_factory=list)


def _prepare(
    spark: Runner, found: Sequence[Found], jobs: list[tuple[Found, AnyPath]], epoch_events: int | None
) -> list[_Plan]:
    """First scan of the edges: how far clocks disagree, and causes that are not in the trace."""

    def look(number: int) -> tuple[Any, ...]:
        of, path = jobs[number]
        file = of.open(path)
        source, target, since, gap = file.timed(of.earliest or 0)
        absent = file.absent_causes()
        left = of.store / "absent" / f"{number:06d}.npz"
        if absent:
            write_arrays(left, reasons=pack_names(absent))
        return tightest(source, target, gap), int(since.max(initial=0)), left, len(absent)

    looked = on_tasks(spark, len(jobs), look)
    plans = []
    for of in found:
        mine = [result for (each, _), result in zip(jobs, looked, strict=True) if each.number == of.number]
        clocks = None
        if of.earliest is not None:
            least = merge_tightest([result[0] for result in mine])
            last = max((result[1] for result in mine), default=0)
            clocks = estimate(_scan(spark, of), least, of.names, of.earliest, last)
        absent = [left for _, _, left, count in mine if count]
        # Marks, which the walks of wide computations hold, are twice as large as entries of vectors.
        width = 2 * WIDTH if len(of.names) > WIDE else max(len(of.names), 1)
        per_epoch = epoch_events or max(1000, min(EPOCH_EVENTS, CELLS_PER_EPOCH // width))
        proposals = _proposals(of, clocks, per_epoch)
        count = sum(result[3] for result in mine)
        plans.append(_Plan(clocks, proposals, per_epoch, absent, count))
    return plans


def _scan(spark: Runner, of: Found) -> Callable[[Callable[[EdgeFile], Any]], list[Any]]:
    of = replace(of, samples=NO_SAMPLES)
    return lambda look: on_each(spark, [(path,) for path in of.files], lambda path: look(of.open(path)))


def _proposals(of: Found, clocks: Clocks | None, per_epoch: int) -> list[Ints]:
    """Cuts by corrected time, where every event has one; otherwise by the share of each process."""
    epochs = max(1, round(of.events / per_epoch))  # a computation hardly too large is not cut
    proposals = [by_share(of.counts, epochs)]
    if epochs > 1 and clocks is not None and not of.untimed:
        corrected = of.samples.time - clocks.skew.offsets[of.samples.process]
        timed = by_time(of.samples.process, of.samples.seq, corrected, of.counts, epochs)
        # One time far from all others (a clock that showed 1970) would put all other events into one epoch.
        proposals.insert(0 if largest(timed) <= MOST_UNEVEN * per_epoch else 1, timed)
    return proposals


def largest(cuts: Ints) -> int:
    """Events of the largest epoch."""
    return int(np.diff(cuts.sum(axis=1), prepend=0).max(initial=0))


def _make_consistent(
    spark: Runner, found: Sequence[Found], jobs: list[tuple[Found, AnyPath]], plans: list[_Plan]
) -> None:
    """Second scan: the traffic between pairs, and which edges lead backwards; repeated until none does."""
    attempts: list[tuple[int, Ints]] = [(i, plan.proposals[0]) for i, plan in enumerate(plans)]
    results: dict[int, list[Ints]] = {i: [] for i in range(len(plans))}
    pairs_wanted = True
    while attempts:
        cuts = dict(attempts)
        todo = [(of, path) for of, path in jobs if of.number in cuts]

        def look(
            number: int, cuts: dict[int, Ints] = cuts, pairs: bool = pairs_wanted, todo: Any = todo
        ) -> Any:
            of, path = todo[number]
            file = of.open(path)
            bound = backward(cuts[of.number], *file.ends())
            at = np.nonzero(bound != cuts[of.number])
            told = (
                leave_sums(of.store, number, file, plans[of.number].clocks, len(of.names)) if pairs else None
            )
            return (*at, bound[at]), told

        looked = on_tasks(spark, len(todo), look)
        following: list[tuple[int, Ints]] = []
        for i, proposed in attempts:
            plan = plans[i]
            mine = [result for (of, _), result in zip(todo, looked, strict=True) if of.number == i]
            plan.pairs += [told for _, told in mine if told is not None]
            bound = proposed.copy()
            for (k, p, seq), _ in mine:
                np.minimum.at(bound, (k, p), seq)
            plan.rounds += 1
            if not np.array_equal(bound, proposed):
                following.append((i, bound))
                continue
            results[i].append(settled(proposed))
            uneven = largest(results[i][-1]) > MOST_UNEVEN * plan.per_epoch
            if uneven and len(results[i]) < len(plan.proposals):
                following.append((i, plan.proposals[len(results[i])]))
        pairs_wanted = False
        attempts = following
    for i, plan in enumerate(plans):
        plan.cuts = min(results[i], key=largest)


def _layout(of: Found, plan: _Plan) -> Layout:
    totals = of.totals | {
        "events": int(of.counts.sum()),
        "processes": len(of.names),
        "rounds": plan.rounds,
        "quarantined": plan.absent_count,
        "receives_before_sends": sum(each.before for each in plan.pairs),
        "receives_before_sends_corrected": sum(each.after for each in plan.pairs),
    }
    return Layout(
        **vars(replace(of, totals=totals, samples=NO_SAMPLES)),
        cuts=plan.cuts,
        clocks=plan.clocks,
        pairs=plan.pairs,
        wide=len(of.names) > WIDE,
        absent=plan.absent,
    )


def _scatter(
    spark: Runner, found: Sequence[Found], jobs: list[tuple[Found, AnyPath]], layouts: list[Layout]
) -> dict[int, TraceFault]:
    """Third scan: write the arrays of every epoch, and summarise it; returns the faults of computations."""
    base = np.concatenate([[0], np.cumsum([layout.epochs for layout in layouts])]).astype(int)
    first = {of.number: number for number, (of, _) in reversed([*enumerate(jobs)])}

    def emit(number: int) -> Emitted:
        of, path = jobs[number]
        layout = layouts[of.number]
        shares = _shares(of.open(path), layout, number)
        if first[of.number] == number:  # every epoch is settled, even one that no edge leads into
            shares = {k: shares.get(k, {}) for k in range(layout.epochs)}
        return Emitted(None, [(int(base[of.number]) + k, pickle.dumps(share)) for k, share in shares.items()])

    def settle(bucket: int, blobs: list[bytes]) -> None:
        number = int(np.searchsorted(base, bucket, side="right")) - 1
        layout, k = layouts[number], bucket - int(base[number])
        parts = [pickle.loads(blob) for blob in blobs]
        share = {
            name: np.concatenate([np.empty((0, width), np.int64), *(p[name] for p in parts if name in p)])
            for name, width in SHARES.items()
        }
        epoch, share["edges"] = layout.epoch(k, share["edges"])
        write_arrays(layout.path("epoch", k), **share)
        _arrange(layout, k, epoch, share)

    emitted, results = exchange(spark, len(jobs), emit, int(base[-1]), settle)
    faults = {of.number: result for (of, _), result in zip(jobs, emitted, strict=True) if result is not None}
    for bucket, result in results.items():
        if isinstance(result, TraceFault):
            faults.setdefault(int(np.searchsorted(base, bucket, side="right")) - 1, result)
    return faults


def _shares(file: EdgeFile, layout: Layout, number: int) -> dict[int, dict[str, Ints]]:
    """The edges of one file, for each epoch."""
    cuts = layout.cuts
    ends, slot = file.ends(), file.slot
    source, source_seq, target, target_seq = ends
    sent = epoch_of(cuts, source, source_seq)
    given = epoch_of(cuts, target, target_seq)
    crossing, at = _spans(sent, given)
    flying, during = _spans(sent, given + 1, slot)
    lost, addressed = file.lost(), file.addressed()
    if len(lost):
        write_arrays(layout.store / f"lost-{number:06d}.npz", lost=lost)
    kept = (source[crossing], source_seq[crossing])
    columns: dict[str, tuple[Ints, ...]] = {
        "edges": (given, *ends, slot.astype(np.int64)),
        "kept": (at, *kept),
        "entering": (at + 1, *kept),
        "slots": (during, *(column[flying] for column in ends)),
        "addressed": (epoch_of(cuts, *addressed[:2]), *addressed),
    }
    rows = file.rows()
    if rows is not None:
        process, seq = rows["process"], rows["seq"]
        epoch = epoch_of(cuts, process, seq)
        relevant, timed, logged = (np.flatnonzero(rows[name]) for name in ("relevant", "timed", "logged"))
        columns["relevant"] = (epoch[relevant], process[relevant], seq[relevant])
        columns["times"] = (epoch[timed], process[timed], seq[timed], rows["time"][timed])
        columns |= _clock_columns(file, layout, logged, epoch, process, seq)
    return _by_epoch(columns)


def _clock_columns(
    file: EdgeFile, layout: Layout, logged: Ints, epoch: Ints, process: Ints, seq: Ints
) -> dict[str, tuple[Ints, ...]]:
    entries = file.clocks()
    if entries is None:
        return {}
    row, key, count, names = entries
    index = {name: p for p, name in enumerate(layout.names)}
    known = np.array([index.get(name, -1) for name in names], np.int64)
    of = known[key] if key.size else key
    foreign = np.zeros(process.size, bool)
    foreign[row[(of < 0) & (count != 0)]] = True
    row, of, count = row[of >= 0], of[of >= 0], count[of >= 0]
    return {
        "logged": (epoch[logged], process[logged], seq[logged], foreign[logged].astype(np.int64)),
        "clocks": (epoch[row], process[row], seq[row], of, count),
    }


def _spans(first: Ints, end: Ints, where: Any = None) -> tuple[Ints, Ints]:
    """Each edge once for every epoch in first:end, as (edge, epoch)."""
    lengths = np.maximum(end - first, 0)
    if where is not None:
        lengths = np.where(where, lengths, 0)
    edge = np.repeat(np.arange(len(first)), lengths)
    start = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
    return edge, np.repeat(first - start, lengths) + np.arange(edge.size)


def _by_epoch(columns: dict[str, tuple[Ints, ...]]) -> dict[int, dict[str, Ints]]:
    shares: dict[int, dict[str, Ints]] = {}
    for name, (epoch, *values) in columns.items():
        if not epoch.size:
            continue
        rows = np.stack(values, axis=1)
        order = np.argsort(epoch, kind="stable")
        present, at = np.unique(epoch[order], return_index=True)
        for k, part in zip(present, np.split(rows[order], at[1:]), strict=True):
            once = name in ("kept", "entering")
            shares.setdefault(int(k), {})[name] = np.unique(part, axis=0) if once else part
    return shares


def _arrange(layout: Layout, k: int, epoch: Epoch, share: dict[str, Ints]) -> None:
    """Write the topological order of an epoch, and its summary."""
    entering = _entering(layout, k, share["entering"])
    a = arrange(epoch, entering)
    arrays: dict[str, Any] = {
        name: getattr(a, name).astype(np.int32) for name in ("order", "row_of", "edge_offsets", "edge_rows")
    }
    write_arrays(layout.path("arranged", k), entering=np.array([a.entering]), last=a.last, **arrays)
    if not layout.wide:
        kept = share["kept"]
        _, summary = stamp_with(epoch, entering.names_only(), kept[:, 0], kept[:, 1], a)
        save(layout.path(SUMMARY, k), summary)


def _entering(layout: Layout, k: int, kept: Ints) -> Frontier:
    """The frontier that enters epoch k, without its vectors; that of a wide computation has no columns."""
    last = layout.starts(k)
    present = np.flatnonzero(last > 0)
    lasts = event_keys(present, last[present])
    process, seq = split_keys(np.unique(np.concatenate([lasts, event_keys(kept[:, 0], kept[:, 1])])))
    return Frontier(last, process, seq, np.zeros((process.size, 0 if layout.wide else len(last)), np.int32))


def save(path: AnyPath, frontier: Frontier) -> None:
    arrays: dict[str, Any] = {name: getattr(frontier, name) for name in ("last", "process", "seq", "vectors")}
    write_arrays(path, **arrays)


def load(path: AnyPath) -> Frontier:
    return Frontier(**read_arrays(path))
