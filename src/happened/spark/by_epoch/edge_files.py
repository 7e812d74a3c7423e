"""The files of edges of a large computation: as tasks read them, and what its times show of its clocks.

In    edges, with their gaps and sending times; processes are numbered for the whole computation, not per file
Out   offsets and drifts as causality.skew estimates them; rows of MEASURES: messages, latency_min and
      latency_mean per pair of processes
Cost  one scan of the edges, some more where offsets alone do not explain the times; what reaches the driver
      is a row per pair of processes (and window of time). Measures add up a file of sums per file of edges,
      in tasks of some PAIRS_PER_TASK pairs
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ...causality.linearization import Ints
from ...causality.questions.measures import MEASURES, measure_rows
from ...causality.skew import (
    MOST_DRIFTS,
    Skew,
    clocks_of,
    correct,
    removed,
    solve_drifts,
    tightest,
    window_width,
)
from ...trace.store import AnyPath
from ..storage import read_arrays, write_arrays
from .matching import EDGES, UNNAMED, UNNAMED_SEQ, unpack_names


class EdgeFile:
    """names, counts   of the computation's processes, and of their events"""

    def __init__(self, path: AnyPath, names: Sequence[str], counts: Ints) -> None:
        self._arrays = read_arrays(path)
        index = {name: p for p, name in enumerate(names)}
        self._local = unpack_names(self._arrays["names"])
        self._known = np.array([index.get(name, -1) for name in self._local], np.int64)
        self._counts = counts
        self._edges = {name: self._arrays[name] for name in EDGES}
        self._source = self._known[self._edges["source"]]
        self._target = self._known[self._edges["target"]]
        length = np.where(self._source >= 0, counts[self._source], 0) if len(counts) else self._source
        seq = self._edges["source_seq"]
        self._real = (seq >= 1) & (seq <= length)
        self._whole = self._real & (self._edges["target_seq"] > 0)

    def ends(self) -> tuple[Ints, Ints, Ints, Ints]:
        """(source, its seq, target, its seq) of every edge."""
        whole = self._whole
        seqs = self._edges["source_seq"][whole], self._edges["target_seq"][whole]
        return self._source[whole], seqs[0], self._target[whole], seqs[1]

    @property
    def slot(self) -> Ints:
        """Whether each edge is a slot."""
        return self._edges["slot"][self._whole]

    def addressed(self, where: Any = True) -> tuple[Ints, Ints, Ints]:
        """(source, its seq, target) of every slot, delivered or not."""
        slots = self._edges["slot"] & where
        return self._source[slots], self._edges["source_seq"][slots], self._target[slots]

    def lost(self) -> Ints:
        """(source, its seq, target) of every slot that was never delivered."""
        return np.column_stack(self.addressed(self._edges["target_seq"] == 0))

    @cached_property
    def messages(self) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints]:
        """(source, target, time sent, gap, whether these count, whether a slot) of edges of messages."""
        of = (self._edges["target_seq"] > 0) & ~self._edges["cause"]
        columns = (self._edges[name][of] for name in ("sent", "gap", "timed", "slot"))
        return (self._source[of], self._target[of], *columns)

    def timed(self, origin: int) -> tuple[Ints, Ints, Ints, Ints]:
        """(source, target, time sent since the origin, gap) of edges of messages that have them."""
        source, target, sent, gap, timed, _ = self.messages
        return source[timed], target[timed], sent[timed] - origin, gap[timed]

    def absent_causes(self) -> list[str]:
        """For every cause that is not an event, the reason to quarantine it."""
        return [
            f"{self._name(e, 'target')} names the cause {self._name(e, 'source')}, which is not in the trace"
            for e in np.flatnonzero(self._edges["cause"] & ~self._real).tolist()
        ]

    def _name(self, e: int, end: str) -> str:
        process, seq = self._local[self._edges[end][e]], int(self._edges[f"{end}_seq"][e])
        if process == UNNAMED and seq < 1:
            return f"None#{seq - UNNAMED_SEQ if UNNAMED_SEQ < seq < UNNAMED_SEQ // 2 else _number(seq)}"
        return f"{process}#{_number(seq)}"

    def rows(self) -> dict[str, Ints] | None:
        """What the split's events have besides edges: process, seq, time, …; None if nothing."""
        if "row_process" not in self._arrays:
            return None
        rows = {name.removeprefix("row_"): self._arrays[name] for name in self._arrays if "row_" in name}
        return rows | {"process": self._known[rows["process"]]}

    def clocks(self) -> tuple[Ints, Ints, Ints, list[str]] | None:
        """Logged clocks: (row of `rows`, code of a name, count) of each entry, and the names."""
        if "clock_row" not in self._arrays:
            return None
        row, key, count = (self._arrays[f"clock_{name}"] for name in ("row", "key", "count"))
        return row, key, count, unpack_names(self._arrays["clock_names"])


def _number(seq: int) -> int | None:
    return None if seq == UNNAMED_SEQ else seq


Scan = Callable[[Callable[[EdgeFile], Any]], list[Any]]
"""Runs a function over every file of edges, on tasks."""


@dataclass(frozen=True)
class Clocks:
    """The skew of each process, and the earliest time of any process, from which drift is counted."""

    skew: Skew
    origin: int

    def corrected(self, source: Ints, target: Ints, since: Ints, gap: Ints) -> Ints:
        """How long messages took; `since` counts from the origin."""
        corrected: Ints = gap - self.skew.ahead(target, since + gap) + self.skew.ahead(source, since)
        return corrected


def estimate(scan: Scan, least: tuple[Ints, ...], names: Sequence[str], origin: int, last: int) -> Clocks:
    """Estimate the clocks of the processes with these names as causality.skew.estimate does.

    least   the tightest gap of each pair
    last    the latest time that anything was sent, since the origin
    """
    n = len(names)
    nobody = np.zeros(n, np.int64)
    same = clocks_of(names, nobody)
    source, target, gap = least
    clocks = Clocks(correct(nobody, *tightest(same[source], same[target], gap)).of(same), origin)
    if clocks.skew.feasible.all() or n > MOST_DRIFTS:
        return clocks
    width = window_width(last)

    def in_windows(file: EdgeFile) -> tuple[Ints, ...]:
        source, target, since, gap = file.timed(origin)
        return tightest(same[source], same[target], since // width, gap)

    drifts = solve_drifts(n, width, *tightest(*_merged(scan(in_windows))))
    if drifts is None:
        return clocks

    def without_drift(file: EdgeFile) -> tuple[Ints, ...]:
        source, target, since, gap = file.timed(origin)
        source, target = same[source], same[target]
        return tightest(source, target, gap - removed(drifts, source, target, since, gap))

    skew = correct(nobody, *tightest(*_merged(scan(without_drift))))._replace(drifts=drifts)
    better = Clocks(skew.of(same), origin)

    def backwards(file: EdgeFile) -> tuple[int, int]:
        edges = file.timed(origin)
        return tuple(int((each.corrected(*edges) < 0).sum()) for each in (clocks, better))  # type: ignore[return-value]

    before, after = np.sum(scan(backwards), axis=0)
    return better if after < before else clocks


def merge_tightest(found: list[tuple[Ints, ...]]) -> tuple[Ints, ...]:
    return tightest(*_merged(found))


def _merged(found: Sequence[tuple[Ints, ...]]) -> list[Ints]:
    return [np.concatenate(columns) for columns in zip(*found, strict=True)]


PAIRS_PER_TASK = 1_000_000

NEVER = np.iinfo(np.int64).max


class Sums(NamedTuple):
    """Where the sums of a file of edges are, for how many pairs, and how many of its messages arrive before
    they are sent, by recorded and by corrected times."""

    path: AnyPath
    pairs: int
    before: int
    after: int


def leave_sums(store: AnyPath, number: int, file: EdgeFile, clocks: Clocks | None, n: int) -> Sums:
    """Per pair of processes: its key, messages, timed edges, least and sum of corrected gaps."""
    source, target, sent, gap, timed, slot = file.messages
    keys, of = np.unique(source * n + target, return_inverse=True)
    messages = np.bincount(of, slot, keys.size).astype(np.int64)
    count, total, least = (np.full(keys.size, value) for value in (0, 0, NEVER))
    before = after = 0
    if clocks is not None:
        of, source, target, gap = of[timed], source[timed], target[timed], gap[timed]
        corrected = clocks.corrected(source, target, sent[timed] - clocks.origin, gap)
        np.minimum.at(least, of, corrected)
        np.add.at(total, of, corrected)
        np.add.at(count, of, 1)
        before, after = int((gap < 0).sum()), int((corrected < 0).sum())
    path = store / "pairs" / f"{number:06d}.npz"
    write_arrays(path, keys=keys, messages=messages, count=count, least=least, total=total)
    return Sums(path, int(keys.size), before, after)


def parts_of(sums: list[Sums]) -> int:
    """The number of parts that these sums are added up in."""
    return 1 + sum(each.pairs for each in sums) // PAIRS_PER_TASK


def traffic_rows(computation: str, names: tuple[str, ...], of_files: list[Sums], part: int) -> pa.Table:
    """The measures of the pairs of processes in one of the parts, from the sums of all files."""
    parts = parts_of(of_files)
    every: dict[str, list[Ints]] = {name: [] for name in ("keys", "messages", "count", "least", "total")}
    for each in of_files:
        sums = read_arrays(each.path)
        mine = sums["keys"] % parts == part
        for name, column in sums.items():
            every[name].append(column[mine])
    columns = {name: np.concatenate(values) for name, values in every.items()}
    keys, of = np.unique(columns["keys"], return_inverse=True)
    messages, count, total, least = (np.full(keys.size, value) for value in (0, 0, 0, NEVER))
    for added, name in ((messages, "messages"), (count, "count"), (total, "total")):
        np.add.at(added, of, columns[name])
    np.minimum.at(least, of, columns["least"])
    called = pa.array(names, pa.string())
    rows = [MEASURES.empty_table()]
    timed = np.flatnonzero(count)
    for measure, at, values in (
        ("messages", np.flatnonzero(messages), messages),
        ("latency_min", timed, least),
        ("latency_mean", timed, total / np.maximum(count, 1)),
    ):
        ends = (called.take(pa.array(end[at])) for end in (keys // len(names), keys % len(names)))
        rows.append(measure_rows(computation, measure, values[at], *ends))
    return pa.concat_tables(rows)
