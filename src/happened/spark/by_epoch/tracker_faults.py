"""Checks the timestamps that trackers recorded in large computations against those that follow from the
events.

In    stamped epochs, and the rows of the trace that hold them
Out   rows of TRACKERS (causality.questions.verify_trackers)
Cost  one scan of the attributes, where events are marked relevant; each epoch that has numbered events is
      stamped once more; then a task for each computation, with a vector for each of its numbered events

Wide computations have no whole vectors: their numbered events are counted as not judged.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...causality.epochs import event_keys, places, stamp_epoch
from ...causality.linearization import Ints
from ...causality.questions import Answers
from ...causality.questions.verify_trackers import (
    compare,
    is_numbered,
    numbered_events,
    read_attributes,
    tell_faults,
)
from ...trace.schema import SCHEMA
from ..splits import Split
from ..storage import read_arrays, read_parts, write_arrays, write_part
from ..tasks import Runner, on_tasks
from .epoch_layout import FRONTIER, Layout, load
from .named_violations import Laid
from .stamping import write_answers

ROWS = pa.schema([("process", pa.int64()), ("seq", pa.int64()), SCHEMA.field("attributes")])
FOLDER, VECTORS = "numbered", "numbered-vectors"


def verify_trackers(spark: Runner, laid: Sequence[Laid], told: Sequence[Any]) -> Counter[str]:
    marked = [of for of in laid if not of.layout.all_relevant]
    jobs = [(of.layout, number, split) for of in marked for number, split in enumerate(of.splits)]
    counts: Counter[str] = Counter()
    for (layout, _, _), found in zip(
        jobs, on_tasks(spark, len(jobs), lambda n: _take_out(*jobs[n])), strict=True
    ):
        counts[str(layout.store)] += found
    tracked = [of for of in marked if counts[str(of.layout.store)] and not of.layout.wide]
    unjudged = sum(counts[str(of.layout.store)] for of in marked if of.layout.wide)
    epochs = [(of.layout, k) for of in tracked for k in range(of.layout.epochs)]
    on_tasks(spark, len(epochs), lambda n: _stamp(*epochs[n]))
    totals: Counter[str] = sum(on_tasks(spark, len(tracked), lambda n: _compare(tracked[n])), Counter())
    return totals + Counter(tracker_unjudged=unjudged)


def _take_out(layout: Layout, number: int, split: Split) -> int:
    """Keep the numbered events that a split has of a computation; how many there are."""
    table = split.read(["computation", "process", "seq", "attributes"]).events
    table = table.filter(pc.equal(table["computation"], layout.computation))
    table = table.filter(pa.array(is_numbered(table["attributes"])))
    names = pa.array(layout.names, pa.string())
    process = pc.index_in(table["process"], value_set=names).cast(pa.int64())
    kept = pa.table([process, table["seq"], table["attributes"]], schema=ROWS)
    if kept.num_rows:
        write_part(layout.store / FOLDER, f"{number:06d}", kept)
    return int(kept.num_rows)


def _numbered(layout: Layout) -> tuple[Ints, Ints, pa.Table]:
    """Process and seq of all numbered events, in that order, and their rows."""
    table = read_parts(layout.store / FOLDER).combine_chunks()
    table = table.sort_by([("process", "ascending"), ("seq", "ascending")])
    return table["process"].to_numpy(), table["seq"].to_numpy(), table


def _stamp(layout: Layout, k: int) -> None:
    process, seq, _ = _numbered(layout)
    here = (seq > layout.starts(k)[process]) & (seq <= layout.cuts[k][process])
    process, seq = process[here], seq[here]
    view = layout.view(k)
    vectors = np.empty((0, len(layout.names)), np.int32)
    if process.size:
        stamped = stamp_epoch(view.epoch, load(layout.path(FRONTIER, k)), view.arranged)
        vectors = stamped.event_vectors()[places(view.epoch, process, seq)]
    write_arrays(layout.path(VECTORS, k), keys=event_keys(process, seq), vectors=vectors)


def _compare(of: Laid) -> Counter[str]:
    layout = of.layout
    process, seq, table = _numbered(layout)
    parts = [read_arrays(layout.path(VECTORS, k)) for k in range(layout.epochs)]
    order = np.argsort(np.concatenate([part["keys"] for part in parts]))
    vectors = np.concatenate([part["vectors"] for part in parts])[order]
    names = pa.array(layout.names, pa.string())
    recorded = read_attributes(table["attributes"].combine_chunks())
    pasts = numbered_events(process, seq, np.zeros(len(names), np.int64), vectors)
    answers = Answers()
    answers.totals["tracker_stamps"] += recorded.rows

    def processes(row: Ints, named: pa.Array) -> Ints:
        found: Ints = pc.index_in(named, value_set=names).fill_null(-1).to_numpy(zero_copy_only=False)
        return found.astype(np.int64)

    view = layout.view(0)
    tell_faults(
        compare(recorded, pasts, processes),
        lambda rows: view.event_columns(process[rows], seq[rows]),
        answers,
    )
    write_answers(layout, of.output.folder, answers, "trackers")
    return answers.totals
