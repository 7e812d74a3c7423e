"""Clocks that disagree: how far, and a correction under which no message arrives before it is sent.

Each edge from an event of p to one of q says offset[q] - offset[p] <= time there - time here, where an
offset is how far a process's clock is ahead. Of all edges of a pair only the tightest counts, so the
constraints are at most n², and a shortest-path solution satisfies them all, if anything does: a cycle of
negative length means that offsets alone cannot explain the times (a clock drifts, or was set).
"""

from dataclasses import dataclass

import numpy as np

from .linearization import Ints

NO_EDGE = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Skew:
    """Offsets in the unit of the times given; `feasible` says whether they satisfy every constraint."""

    offsets: Ints
    feasible: bool


def tightest(processes: int, source: Ints, target: Ints, gap: Ints) -> Ints:
    """The smallest time difference seen from each process to each other; NO_EDGE where there is none."""
    least = np.full((processes, processes), NO_EDGE, np.int64)
    np.minimum.at(least, (source, target), gap)
    return least


def correct(least: Ints) -> Skew:
    """Offsets from the tightest gaps (Bellman–Ford from everywhere at once). Zero where nothing forces more.

    Where the constraints contradict each other, the offsets reached after n rounds are the best known.
    """
    n = len(least)
    offsets = np.zeros(n, np.int64)
    source, target = np.nonzero(least != NO_EDGE)
    gap = least[source, target]
    for _ in range(n + 1):
        bound = offsets.copy()
        np.minimum.at(bound, target, offsets[source] + gap)
        if np.array_equal(bound, offsets):
            return Skew(offsets, True)
        offsets = bound
    return Skew(offsets, False)
