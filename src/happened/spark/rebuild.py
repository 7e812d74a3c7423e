"""Full vector clocks from timestamps that were stored in a shorter form (Hélary, Melideo & Raynal 2000,
section 3.3).

In    a table of stamps: for each event a clock that names some events of its past, from whose clocks the
      whole past can be reached: dependency vectors, changes since the previous event, immediate predecessors.
      Or a trace in which trackers recorded dependencies (trace/tracker_attributes.py)
Out   the same events with their full vectors; for a trace, the application's relevant events, whose clocks
      count only these and no null events (named by dependencies alone); `seq` and `event` as in the trace
Cost  as stamping: two passes. For a trace also a scan of the attributes; tasks hold all events' numbers

The paper follows the named events until nothing changes. Here they become causes in a trace, whose vectors
the stamping kernels compute without iteration. The only cause of an event without a clock of its own (one
that was not relevant) is its predecessor on the same process.

Clocks name processes by number, and the table `processes` beside `stamps` has the names.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ..causality.computation import event_ids
from ..causality.linearization import Ints
from ..causality.questions import asked
from ..causality.questions.stamp import PROCESSES, STAMPS
from ..causality.questions.verify_trackers import is_numbered, read_attributes
from ..causality.stamps import MOST_CELLS
from ..core.errors import CausalityError, TraceFormatError
from ..trace import locate
from ..trace.atomic import WORK, whole_directory
from ..trace.reader import open_part
from ..trace.schema import DEFAULTS
from ..trace.store import AnyPath, StorePath, matching, remove_tree
from .by_epoch.epoch_layout import WIDE
from .in_parts import WHOLE_EVENTS, Asked
from .phases import Progress
from .pipeline import analyze_splits
from .splits import Split, splits_of
from .storage import TRACE, read_part, read_parts, read_rows, write_part, write_rows
from .tasks import on_tasks

EVENT = ["computation", "process", "seq"]


def rebuild(
    spark: SparkSession,
    stamps: AnyPath,
    out: AnyPath,
    *,
    whole_events: int = WHOLE_EVENTS,
    epoch_events: int | None = None,
    progress: Progress = lambda what: None,
) -> dict[str, Any]:
    """Write out/stamps; `stamps` is a table of stamps, a directory that contains one, or a trace in which
    trackers recorded dependency vectors."""
    asking = Asked(asked(["stamp"]), whole_events=whole_events, epoch_events=epoch_events)
    stamp = partial(analyze_splits, spark, asking=asking, progress=progress)
    if _is_trace(stamps):
        return _rebuild_tracked(spark, stamps, out, stamp, whole_events)
    table = stamps / "stamps" if (stamps / "stamps").is_dir() else stamps
    if not matching(table, "*.parquet"):
        raise TraceFormatError(
            "no stamps here: give what `happened analyze --timestamps sparse` or `predecessors` made",
            file=str(stamps),
        )
    stored = read_rows(spark, table)
    processes = _processes(spark, table)
    _refuse_windows(stored, processes, stamps)
    named = with_names(stored, processes)
    _refuse_wide(processes, whole_events)
    with whole_directory(out) as folder:
        work = folder / WORK
        write_rows(as_events(named, processes), work / "trace")
        splits = splits_of(locate(work / "trace"))
        is_all = sum(split.rows or 0 for split in splits) == stored.count()
        answers = folder if is_all else work / "answers"
        answers.mkdir(parents=True, exist_ok=True)
        summary = stamp(splits, answers, work=work)
        if not is_all:
            wanted = stored.select(EVENT)
            for name in ("quarantine", "processes", "stamps"):
                rows = read_rows(spark, answers / name)
                rows = rows.join(wanted, EVENT, "left_semi") if name == "stamps" else rows
                write_rows(rows, folder / name)
            summary["events"] = stored.count()
        remove_tree(work)
    return summary


def _is_trace(path: AnyPath) -> bool:
    if (path / "stamps").is_dir():
        return False
    try:
        at = locate(path)
    except TraceFormatError:
        return False
    return at.is_json or "kind" in open_part(at.parts[0]).schema_arrow.names


def _rebuild_tracked(
    spark: SparkSession, trace: AnyPath, out: AnyPath, stamp: Callable[..., dict[str, Any]], whole_events: int
) -> dict[str, Any]:
    with whole_directory(out) as folder:
        work = folder / WORK
        take_out(spark, splits_of(locate(trace)), work / "numbered", trace)
        named = read_rows(spark, work / "numbered").select(*EVENT, "clock")
        # Clocks are maps from names here, so processes need no numbers: those with events are listed.
        processes = named.groupBy("computation", "process").agg(F.max("seq").alias("events"))
        _refuse_wide(processes, whole_events)
        write_rows(as_events(named, processes), work / "trace")
        answers = work / "answers"
        answers.mkdir(parents=True, exist_ok=True)
        summary = stamp(splits_of(locate(work / "trace")), answers, work=work)
        summary |= without_null_events(spark, work / "numbered", answers, folder)
        write_rows(read_rows(spark, answers / "quarantine"), folder / "quarantine")
        remove_tree(work)
    return summary


def _refuse_wide(processes: DataFrame, whole_events: int) -> None:
    """Raise if a computation has too many processes for full vectors (see by_epoch.epoch_layout)."""
    sizes = processes.groupBy("computation").agg(F.count("*").alias("n"), F.sum("events").alias("events"))
    is_large = (F.col("events") > whole_events) | (F.col("events") * F.col("n") > MOST_CELLS)
    first = sizes.where((F.col("n") > WIDE) & is_large).orderBy("computation").first()
    if first is not None:
        raise CausalityError(
            f"{first['computation']!r} has {first['n']:,} processes and {first['events']:,} events: whole "
            f"vectors are made for up to {WIDE:,} processes; use the immediate predecessors instead"
        )


def _refuse_windows(stamps: DataFrame, processes: DataFrame, where: AnyPath) -> None:
    """Raise if the stamps belong to a renumbered window, where a seq exceeds the number of events."""
    last = stamps.groupBy("computation", "process").agg(F.max("seq").alias("last"))
    first = last.join(processes, ["computation", "process"]).where("last > events").first()
    if first is not None:
        raise TraceFormatError(
            f"the stamps are of a window: {first['process']!r} of computation {first['computation']!r} "
            f"has {first['events']:,} events but the seq {first['last']:,}. Analyse the window with "
            "--timestamps "
            "full, or rebuild the stamps of the whole trace",
            file=str(where),
        )


def _processes(spark: SparkSession, stamps: AnyPath) -> DataFrame:
    beside = (stamps if isinstance(stamps, StorePath) else stamps.resolve()).parent / "processes"
    if not matching(beside, "*.parquet"):
        raise TraceFormatError(
            f"no table `processes` beside these stamps, which number the processes: expected {beside}",
            file=str(stamps),
        )
    return read_rows(spark, beside)


def with_names(stamps: DataFrame, processes: DataFrame) -> DataFrame:
    """The stamps, with clocks of any form converted to maps from process names."""
    numbered = F.array_sort(F.collect_list(F.struct("p", "process")))
    names = processes.groupBy("computation").agg(numbered["process"].alias("names"))
    counts = F.transform("clock", lambda seq, p: F.struct(p.alias("p"), seq.cast("long").alias("seq")))
    entries = F.filter(F.coalesce(counts, F.col("entries")), lambda entry: entry["seq"] > 0)
    by_name = F.transform(
        entries,
        lambda entry: F.struct(F.get("names", entry["p"]).alias("process"), entry["seq"].alias("seq")),
    )
    return stamps.join(names, "computation").select(*EVENT, F.map_from_entries(by_name).alias("clock"))


def as_events(stamps: DataFrame, processes: DataFrame) -> DataFrame:
    """A trace of these processes whose happened-before relation is the one that the clocks describe.

    The first events address the processes without events, so that these are numbered too.
    """
    every = processes.where("events > 0").select(
        "computation", "process", F.explode(F.sequence(F.lit(1).cast("long"), "events")).alias("seq")
    )
    silent = (
        processes.where("events = 0").groupBy("computation").agg(F.collect_list("process").alias("silent"))
    )
    others = F.map_filter("clock", lambda process, seq: (process != F.col("process")) & (seq > 0))
    causes = F.transform(
        F.map_entries(others),
        lambda entry: F.struct(entry["key"].alias("process"), entry["value"].alias("seq")),
    )
    known = {
        "kind": F.lit("internal"),
        **{name: F.lit(value) for name, value in DEFAULTS.items()},
        "to": F.when(F.col("seq") == 1, F.col("silent")),
        "causes": causes,
        **{name: F.col(name) for name in EVENT},
    }
    rows = every.join(stamps, EVENT, "left").join(silent, "computation", "left")
    return rows.select(
        *(known.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name) for field in TRACE.fields)
    )


NUMBERED = pa.schema(
    [
        pa.field("computation", pa.string()),
        pa.field("process", pa.string()),
        pa.field("seq", pa.int64()),  # the event's number as given by the tracker
        pa.field("clock", pa.map_(pa.string(), pa.int64())),  # the event's dependencies
        pa.field("recorded_seq", pa.int64()),
        pa.field("null", pa.bool_()),
    ]
)


def take_out(spark: SparkSession, splits: Sequence[Split], folder: AnyPath, trace: AnyPath) -> None:
    """Write the events with dependencies as rows of NUMBERED; TraceFormatError if any event is missing."""

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
    """Finds, for a computation and process, the application's event for each number that a tracker gave.

    counts   for each number, how many events up to it are not null events
    """

    def __init__(self, numbered: pa.Table) -> None:
        numbered = numbered.sort_by([(name, "ascending") for name in ("computation", "process", "seq")])
        null = numbered["null"].to_numpy(zero_copy_only=False)
        recorded = numbered["recorded_seq"].to_numpy()
        self.counts: dict[tuple[str, str], Ints] = {}
        self.is_null: dict[tuple[str, str], Ints] = {}
        self.recorded: dict[tuple[str, str], Ints] = {}
        names = zip(*(numbered[name].to_pylist() for name in ("computation", "process")), strict=True)
        start = 0
        for of, group in groupby(names):
            end = start + sum(1 for _ in group)
            here, start = slice(start, end), end
            self.counts[of] = np.concatenate([[0], np.cumsum(~null[here])])
            self.is_null[of], self.recorded[of] = null[here], recorded[here]

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
