"""Full vector clocks from timestamps that were stored in a shorter form (Hélary, Melideo & Raynal, section
3.3).

In    a table of stamps: per event a clock that names some of its past, enough to reach all of it through the
      clocks of the events named: dependency vectors, changes since the previous event, immediate predecessors
      Or a trace in which trackers recorded dependency vectors: see rebuild_tracked.py
Out   the same events with their full vectors
Cost  as stamping: two passes

The paper follows the names until nothing changes. But an event that a clock names is a cause, and a
computation's vectors follow from its causes without iteration. Events that have no clock of their own (those
that were not relevant) have only their predecessor on the same process as a cause.

Clocks name processes by number, and the table `processes` beside `stamps` has the names.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ..causality.questions import asked
from ..causality.stamps import MOST_CELLS
from ..core.errors import CausalityError, TraceFormatError
from ..trace import locate
from ..trace.atomic import WORK, whole_directory
from ..trace.reader import open_part
from ..trace.schema import DEFAULTS
from ..trace.store import AnyPath, StorePath, matching, remove_tree
from .announcing import Progress
from .by_epoch.epoch_layout import WIDE
from .in_parts import WHOLE_EVENTS, Asked
from .pipeline import analyze_splits
from .rebuild_tracked import take_out, without_null_events
from .schemas import TRACE
from .splits import splits_of
from .storage import read_rows, write_rows

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
    """Write out/stamps; `stamps` is a table of them, a directory with one in it, or a trace in which trackers
    recorded dependency vectors."""
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
        write_rows(as_events(named, processes), work / "trace", "events", work / "rows")
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
                write_rows(rows, folder / name, "part", work / "rows")
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
    spark: SparkSession,
    trace: AnyPath,
    out: AnyPath,
    stamp: Callable[..., dict[str, Any]],
    whole_events: int,
) -> dict[str, Any]:
    with whole_directory(out) as folder:
        work = folder / WORK
        take_out(spark, splits_of(locate(trace)), work / "numbered", trace)
        named = read_rows(spark, work / "numbered").select(*EVENT, "clock")
        processes = _those_that_act(named)
        _refuse_wide(processes, whole_events)
        write_rows(as_events(named, processes), work / "trace", "events", work / "rows")
        answers = work / "answers"
        answers.mkdir(parents=True, exist_ok=True)
        summary = stamp(splits_of(locate(work / "trace")), answers, work=work)
        summary |= without_null_events(spark, work / "numbered", answers, folder)
        write_rows(read_rows(spark, answers / "quarantine"), folder / "quarantine", "part", work / "rows")
        remove_tree(work)
    return summary


def _refuse_wide(processes: DataFrame, whole_events: int) -> None:
    """Raise if a computation has too many processes for whole vectors (see by_epoch.epoch_layout)."""
    sizes = processes.groupBy("computation").agg(F.count("*").alias("n"), F.sum("events").alias("events"))
    is_large = (F.col("events") > whole_events) | (F.col("events") * F.col("n") > MOST_CELLS)
    first = sizes.where((F.col("n") > WIDE) & is_large).orderBy("computation").first()
    if first is not None:
        raise CausalityError(
            f"{first['computation']!r} has {first['n']:,} processes and {first['events']:,} events: whole "
            f"vectors are made for up to {WIDE:,} processes; use the immediate predecessors instead"
        )


def _refuse_windows(stamps: DataFrame, processes: DataFrame, where: AnyPath) -> None:
    """Raise if the stamps are of a window that was renumbered: their seqs exceed the number of events."""
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


def _those_that_act(stamps: DataFrame) -> DataFrame:
    """Rows of PROCESSES without numbers, as far as clocks that are maps name the processes."""
    return stamps.groupBy("computation", "process").agg(F.max("seq").alias("events"))


def _processes(spark: SparkSession, stamps: AnyPath) -> DataFrame:
    beside = (stamps if isinstance(stamps, StorePath) else stamps.resolve()).parent / "processes"
    if not matching(beside, "*.parquet"):
        raise TraceFormatError(
            f"no table `processes` beside these stamps, which number the processes: expected {beside}",
            file=str(stamps),
        )
    return read_rows(spark, beside)


def with_names(stamps: DataFrame, processes: DataFrame) -> DataFrame:
    """The stamps with their clock, of whatever form, as a map from the names of processes."""
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
    """A trace of these processes, whose happened-before is the one the clocks describe.

    The first events address the processes that never act, so that these are numbered too.
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
