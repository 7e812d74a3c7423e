"""The main job: everything the pipeline can tell of a trace, as tables and one summary.

    out/stamps, predecessors, violations, necessary, skew, clocks, quarantine    Parquet
    out/summary.json                                                             the totals

Computations small enough for a task are analysed whole, many to a task; a large one is laid out by epoch.
The output directory appears when everything in it is there.
"""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ..causality.analysis import TABLES, TIMESTAMPS
from ..core.errors import CausalityError
from .events import fault, local_files, read_events
from .large import WHOLE_EVENTS, LargeComputation, Progress
from .storage import whole_directory, write_part
from .whole import analyse_whole, large_computations, partitions_for

SUMMARY = (
    "events", "processes", "computations", "messages", "ordered_pairs", "concurrent_pairs", "reduction_edges",
    "fifo_violations", "causal_violations", "lost", "duplicated", "misdelivered", "never_sent",
    "clock_mismatches", "clock_regressions", "clock_impossible", "clocks_logged", "receives_before_sends",
    "receives_before_sends_corrected", "deliveries_judged", "quarantined",
)  # fmt: skip


def analyze(
    spark: SparkSession,
    trace: Path,
    out: Path,
    *,
    timestamps: str = "full",
    whole_events: int = WHOLE_EVENTS,
    epoch_events: int | None = None,
    progress: Progress = lambda what: None,
    finish: Callable[[Path, dict[str, Any]], object] = lambda folder, summary: None,
) -> dict[str, Any]:
    """Analyse the trace at a path into the directory `out`; the summary.

    `finish` may add to the directory before it appears: a report, say.
    """
    if timestamps not in TIMESTAMPS:
        raise CausalityError(f"timestamps can be {', '.join(TIMESTAMPS)}; not {timestamps!r}")
    progress("reading")
    rows = read_events(spark, trace)
    with whole_directory(out) as folder:
        summary = analyze_events(
            spark,
            rows,
            folder,
            timestamps=timestamps,
            whole_events=whole_events,
            epoch_events=epoch_events,
            progress=progress,
        )
        (folder / "summary.json").write_text(json.dumps(summary, indent=2, sort_keys=True) + "\n")
        finish(folder, summary)
    return summary


def analyze_events(
    spark: SparkSession,
    rows: DataFrame,
    folder: Path,
    *,
    timestamps: str = "full",
    whole_events: int = WHOLE_EVENTS,
    epoch_events: int | None = None,
    progress: Progress = lambda what: None,
) -> dict[str, Any]:
    totals: Counter[str] = Counter(dict.fromkeys((*SUMMARY, "necessary_units", "necessary_edges"), 0))
    totals["quarantined"] += _turn_away(rows.where(fault().isNotNull()), folder)
    events = rows.where(fault().isNull())
    large = large_computations(events, whole_events)
    # Tasks may read the trace's own files only if every row of them is an event.
    files = [] if totals["quarantined"] else local_files(rows)
    small = events.where(~F.col("computation").isin(*large)) if large else events
    progress("computations that fit a task")
    count = small.count()
    if count:
        partitions = partitions_for(count, spark.sparkContext.defaultParallelism)
        totals += analyse_whole(small, partitions, folder, timestamps)
    for number, (name, size) in enumerate(sorted(large.items())):
        progress(f"computation {name!r} of {size:,} events")
        of = events.where(F.col("computation") == name)
        job = LargeComputation(
            of, name, size, folder, f"large-{number:04d}", timestamps, epoch_events, progress, files
        )
        totals += job.run()
    for name, schema in TABLES.items():
        if not (folder / name).exists():
            write_part(folder / name, "empty", schema.empty_table())
    summary = {name: totals[name] for name in SUMMARY}
    edges = totals["necessary_edges"]
    summary["necessary_units_mean"] = totals["necessary_units"] / edges if edges else None
    return summary


def _turn_away(rows: DataFrame, folder: Path) -> int:
    """Rows that are no events go to the quarantine with their reason."""
    turned = rows.select(
        F.coalesce("computation", F.lit("")).alias("computation"),
        F.concat_ws(
            "", F.coalesce("process", F.lit("?")), F.lit("#"), F.col("seq"), F.lit(": "), fault()
        ).alias("reason"),
    )
    count = turned.count()
    if count:
        turned.write.parquet(str(folder / "quarantine" / "rows"))
        for part in (folder / "quarantine" / "rows").glob("*.parquet"):
            part.rename(folder / "quarantine" / f"rows-{part.name}")
        shutil.rmtree(folder / "quarantine" / "rows")
    return count
