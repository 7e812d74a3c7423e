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
    follows = np.flatnonzero(np.diff(process) == 0) + 1
    regression = follows[shrinks(clock[follows - 1], clock[follows], process[follows])]
    answers.totals["clocks_logged"] += len(logged)
    for fault, rows in {
        "mismatch": np.flatnonzero(differs),
        "impossible": np.flatnonzero(impossible),
        "regression": regression,
    }.items():
        _add(layout, answers, fault, process[rows], seq[rows])
    first = np.flatnonzero(np.diff(process, prepend=-1))
    last = np.flatnonzero(np.diff(process, append=-1))
    write_arrays(
        layout.path("logged", view.number),
        first=process[first],
        first_seq=seq[first],
        first_clock=clock[first],
        last=process[last],
        last_clock=clock[last],
    )


def shrinks(before: Ints, after: Ints, process: Ints) -> Ints:
    """Whether a clock does not exceed the one logged before it on its process."""
    row = np.arange(len(process))
    back: Ints = (after < before).any(axis=1) | (after[row, process] <= before[row, process])
    return back


def verify_ends(layout: Layout) -> Answers:
    """The regressions from the last clock that a process logged before an epoch to its first one there."""
    answers = Answers()
    n = len(layout.names)
    last, known = np.zeros((n, n), np.int64), np.zeros(n, bool)
    for path in (layout.path("logged", k) for k in range(layout.epochs)):
        if not path.exists():
            continue
        ends = read_arrays(path)
        follows = known[ends["first"]]
        process = ends["first"][follows]
        back = shrinks(last[process], ends["first_clock"][follows], process)
        _add(layout, answers, "regression", process[back], ends["first_seq"][follows][back])
        last[ends["last"]], known[ends["last"]] = ends["last_clock"], True
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
