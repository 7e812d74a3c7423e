"""Estimate how far the clocks of one large computation disagree, from its files of edges.

In    the edges between its processes, with their gaps and sending times
Out   offsets and drifts as causality.skew estimates them
Cost  one scan of the edges, some more where offsets alone do not explain the times; what reaches the driver
      is a row per pair of processes (and window of time)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...causality.linearization import Ints
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
from .edge_files import EdgeFile

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
