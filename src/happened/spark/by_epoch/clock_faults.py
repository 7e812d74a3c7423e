"""Logged vector clocks of large computations against recomputed ones.

In    stamped epochs with the logged clocks of their events
Out   rows of CLOCKS (causality.questions.verify_clocks), with the faults of causality.logged_clocks
Cost  per epoch its logged clocks, dense; then one task that compares clocks across the ends of epochs
"""

from collections import Counter

import numpy as np
import pyarrow as pa

from ...causality.computation import event_ids
from ...causality.epochs import event_keys, places
from ...causality.linearization import Ints
from ...causality.questions import Answers
from ...causality.questions.verify_clocks import CLOCK_TOTALS, CLOCKS
from ..storage import read_arrays, write_arrays
from .epoch_layout import Layout
from .stamping import EpochDone


def verify_epoch(of: EpochDone, answers: Answers) -> None:
    """Compare the clocks logged in an epoch; `verify_ends` compares those of its first events."""
    layout, view, share = of.layout, of.view, of.share
    logged = share["logged"][np.lexsort((share["logged"][:, 1], share["logged"][:, 0]))]
    if not len(logged):
        return
    n, counts = len(layout.names), layout.counts
    process, seq, foreign = logged.T
    clock = np.zeros((len(logged), n), np.int64)
    entries = share["clocks"]
    row = np.searchsorted(event_keys(process, seq), event_keys(entries[:, 0], entries[:, 1]))
    clock[row, entries[:, 2]] = entries[:, 3]
    at = places(view.epoch, process, seq)
    impossible = (foreign > 0) | (clock > counts).any(axis=1)
    differs = (clock != of.stamped.event_vectors()[at]).any(axis=1) | impossible
    follows = np.flatnonzero((np.diff(process) == 0) & (np.diff(seq) == 1)) + 1
    regression = follows[shrinks(clock[follows - 1], clock[follows], process[follows])]
    answers.totals["clocks_logged"] += len(logged)
    for fault, rows in {
        "mismatch": np.flatnonzero(differs),
        "impossible": np.flatnonzero(impossible),
        "regression": regression,
    }.items():
        _add(layout, answers, fault, process[rows], seq[rows])
    first = np.flatnonzero(seq == layout.starts(view.number)[process] + 1)
    last = np.flatnonzero(seq == layout.cuts[view.number][process])
    write_arrays(
        layout.path("logged", view.number),
        first=process[first],
        first_clock=clock[first],
        last=process[last],
        last_clock=clock[last],
    )


def shrinks(before: Ints, after: Ints, process: Ints) -> Ints:
    """Whether a clock does not exceed that of the event before it on its process."""
    row = np.arange(len(process))
    back: Ints = (after < before).any(axis=1) | (after[row, process] <= before[row, process])
    return back


def verify_ends(layout: Layout) -> Answers:
    """The regressions from the last event of a process before an epoch to its first one there."""
    answers = Answers()
    last: dict[int, Ints] = {}
    for k in range(layout.epochs):
        start, end = layout.starts(k), layout.cuts[k]
        path = layout.path("logged", k)
        ends = read_arrays(path) if path.exists() else None
        if ends is not None:
            known = [
                (p, clock) for p, clock in zip(ends["first"], ends["first_clock"], strict=True) if p in last
            ]
            if known:
                process = np.array([p for p, _ in known])
                before = np.array([last[p] for p, _ in known])
                back = shrinks(before, np.array([clock for _, clock in known]), process)
                _add(layout, answers, "regression", process[back], start[process[back]] + 1)
        for p in np.flatnonzero(end > start).tolist():
            last.pop(p, None)
        if ends is not None:
            last |= dict(zip(ends["last"].tolist(), ends["last_clock"], strict=True))
    return answers


def _add(layout: Layout, answers: Answers, fault: str, process: Ints, seq: Ints) -> None:
    size = len(process)
    names = pa.array(layout.names, pa.string()).take(pa.array(process, pa.int64()))
    seqs = pa.array(seq, pa.int64())
    columns = [
        pa.repeat(layout.computation, size),
        names,
        seqs,
        event_ids(names, seqs),
        pa.repeat(fault, size),
    ]
    answers.add("clocks", pa.table(columns, schema=CLOCKS))
    answers.totals += Counter({CLOCK_TOTALS[fault]: size})
