"""Full vectors from the dependency vectors that trackers recorded in a trace (Hélary, Melideo & Raynal 2000).

In    a trace, some of whose events have the attribute `dependencies` (trace/tracker_attributes.py)
Out   stamps of the application's relevant events: clocks count those alone, without null events; `seq` and
      `event` are those of the trace
Cost  a scan of the attributes, then as spark/rebuild.py; tasks hold the numbers of all events

Null events are included, since dependencies name them, and removed at the end.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from ..causality.computation import event_ids
from ..causality.linearization import Ints
from ..causality.questions.stamp import PROCESSES, STAMPS
from ..causality.questions.verify_trackers import is_numbered, read_attributes
from ..core.errors import TraceFormatError
from ..trace.store import AnyPath, matching
from .splits import Split
from .storage import read_part, read_parts, write_part
from .tasks import on_tasks

NUMBERED = pa.schema(
    [
        pa.field("computation", pa.string()),
        pa.field("process", pa.string()),
        pa.field("seq", pa.int64()),  # the number that the tracker gave
        pa.field("clock", pa.map_(pa.string(), pa.int64())),  # its dependencies
        pa.field("recorded_seq", pa.int64()),
        pa.field("null", pa.bool_()),
    ]
)


def take_out(spark: SparkSession, splits: Sequence[Split], folder: AnyPath, trace: AnyPath) -> None:
    """Write the events of a trace that have dependencies, by NUMBERED; TraceFormatError if there are none, or
    if some are missing."""

    def take(number: int) -> int:
        table = splits[number].read(["computation", "process", "seq", "attributes"]).events
        table = table.filter(pa.array(is_numbered(table["attributes"])))
        rows = _dependencies(table)
        if rows.num_rows:
            write_part(folder, f"{number:06d}", rows)
        return int(rows.num_rows)

    if not sum(on_tasks(spark, len(splits), take)):
        raise TraceFormatError(
            "no event here has dependencies to rebuild vectors from: p2, incremental and direct record them, "
            "other trackers record vectors themselves",
            file=str(trace),
        )
    table = read_parts(folder)
    for row in (
        table.group_by(["computation", "process"]).aggregate([("seq", "max"), ("seq", "count")]).to_pylist()
    ):
        if row["seq_max"] != row["seq_count"]:
            raise TraceFormatError(
                f"{row['process']!r} has {row['seq_count']} numbered events, the last of number "
                f"{row['seq_max']}: vectors need each of them once, null events too",
                file=str(trace),
            )


def _dependencies(table: pa.Table) -> pa.Table:
    recorded = read_attributes(table["attributes"].combine_chunks())
    if recorded.unreadable.any():
        row = table.slice(int(np.argmax(recorded.unreadable)), 1).to_pylist()[0]
        raise TraceFormatError(
            f"{row['process']}#{row['seq']}: the dependencies that its tracker recorded cannot be read"
        )
    counts = recorded.counts["dependencies"]
    offsets = np.searchsorted(counts.row, np.arange(recorded.rows + 1)).astype(np.int32)
    clock = pa.MapArray.from_arrays(pa.array(offsets), counts.name, pa.array(counts.number))
    null = pc.is_valid(pc.map_lookup(table["attributes"], pa.scalar("null"), "first"))
    columns = [table["computation"], table["process"], pa.array(recorded.number), clock, table["seq"], null]
    return pa.table(columns, schema=NUMBERED).filter(pa.array(counts.told))


class Renumbering:
    """For each computation and process, the application's event behind each number."""

    def __init__(self, numbered: pa.Table) -> None:
        numbered = numbered.sort_by([(name, "ascending") for name in ("computation", "process", "seq")])
        names = [numbered[name].to_pylist() for name in ("computation", "process")]
        null = numbered["null"].to_numpy(zero_copy_only=False)
        recorded = numbered["recorded_seq"].to_numpy()
        self.counts: dict[tuple[str, str], Ints] = {}  # events up to each number that are not null
        self.is_null: dict[tuple[str, str], Ints] = {}
        self.recorded: dict[tuple[str, str], Ints] = {}
        of = list(zip(*names, strict=True))
        start = 0
        for end in range(1, len(of) + 1):
            if end == len(of) or of[end] != of[start]:
                here = slice(start, end)
                self.counts[of[start]] = np.concatenate([[0], np.cumsum(~null[here])])
                self.is_null[of[start]], self.recorded[of[start]] = null[here], recorded[here]
                start = end

    def events(self, computation: str, process: str) -> int:
        return int(self.counts.get((computation, process), np.zeros(1, np.int64))[-1])


def without_null_events(
    spark: SparkSession, folder: AnyPath, answers: AnyPath, out: AnyPath
) -> dict[str, Any]:
    """Write the tables `stamps` and `processes` of the application's events; returns their totals."""
    processes = read_parts(answers / "processes")
    names: dict[str, list[str]] = {}
    for row in processes.sort_by([("computation", "ascending"), ("p", "ascending")]).to_pylist():
        names.setdefault(row["computation"], []).append(row["process"])
    parts = matching(answers / "stamps", "*.parquet")

    def renumber(number: int) -> Counter[str]:
        means = Renumbering(read_parts(folder))
        rows = _renumbered(read_part(parts[number]), names, means)
        if rows.num_rows:
            write_part(out / "stamps", f"{number:06d}", rows)
        past = int(pc.sum(pc.list_flatten(rows["clock"])).as_py() or 0)
        return Counter(events=rows.num_rows, ordered_pairs=past - rows.num_rows)

    totals: Counter[str] = sum(on_tasks(spark, len(parts), renumber), Counter())
    means = Renumbering(read_parts(folder))
    counted = [
        row | {"events": means.events(row["computation"], row["process"])} for row in processes.to_pylist()
    ]
    write_part(out / "processes", "part", pa.Table.from_pylist(counted, schema=PROCESSES))
    if not (out / "stamps").exists():
        write_part(out / "stamps", "empty", STAMPS.empty_table())
    size: Counter[str] = Counter()
    for row in counted:
        size[row["computation"]] += row["events"]
    pairs = sum(events * (events - 1) // 2 for events in size.values())
    ordered = totals["ordered_pairs"]
    return {"events": totals["events"], "ordered_pairs": ordered, "concurrent_pairs": pairs - ordered}


def _renumbered(stamps: pa.Table, names: Mapping[str, list[str]], means: Renumbering) -> pa.Table:
    found = [STAMPS.empty_table()]
    for computation in pc.unique(stamps["computation"]).to_pylist():
        rows = stamps.filter(pc.equal(stamps["computation"], computation))
        of = names[computation]
        clocks = pc.list_flatten(rows["clock"]).to_numpy().reshape(rows.num_rows, len(of)).astype(np.int64)
        for p, name in enumerate(of):
            counts = means.counts.get((computation, name))
            if counts is not None:
                clocks[:, p] = counts[clocks[:, p]]
        process, number = rows["process"].to_pylist(), rows["seq"].to_numpy() - 1
        at = [*zip(process, number.tolist(), strict=True)]
        kept = np.array([not means.is_null[computation, name][place] for name, place in at], bool)
        seq = pa.array([int(means.recorded[computation, name][place]) for name, place in at], pa.int64())
        offsets = np.arange(rows.num_rows + 1, dtype=np.int32) * len(of)
        clock = pa.ListArray.from_arrays(pa.array(offsets), pa.array(clocks.ravel().astype(np.int32)))
        columns = [
            rows["computation"],
            rows["process"],
            seq,
            event_ids(rows["process"].combine_chunks(), seq),
            rows["epoch"],
            clock.cast(STAMPS.field("clock").type),
            pa.nulls(rows.num_rows, STAMPS.field("entries").type),
        ]
        found.append(pa.table(columns, schema=STAMPS).filter(pa.array(kept)))
    return pa.concat_tables(found)
