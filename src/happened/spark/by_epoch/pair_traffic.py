"""What passed between pairs of processes of a large computation: how much, and how long it took.

In    files of edges; how far the clocks disagree
Out   rows of MEASURES: messages, latency_min and latency_mean per pair
Cost  in the second scan of the edges, a file with a row per pair; then tasks that each add up those of some
      PAIRS_PER_TASK pairs
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...causality.linearization import Ints
from ...causality.questions.measures import MEASURES, measure_rows
from ...trace.store import AnyPath
from ..storage import read_arrays, write_arrays
from .edge_files import EdgeFile
from .edge_skew import Clocks

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
