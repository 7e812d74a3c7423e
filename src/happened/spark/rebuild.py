"""Full vector clocks from timestamps that were stored in less (Hélary, Melideo & Raynal, section 3.3).

In    a table of stamps: per event a clock that names some of its past, enough to reach all of it through the
      clocks of the events named: dependency vectors, changes since the previous event, immediate predecessors
Out   the same events with their full vectors
Cost  as stamping: two passes

The paper follows the names until nothing changes any more. But an event that a clock names is a cause, and a
computation's vectors follow from its causes without iteration. Events that have no clock of their own (those
that were not relevant) stand in the chain of their process and know of nothing else.
"""

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ..core.errors import TraceFormatError
from ..trace import locate
from ..trace.atomic import whole_directory
from .analyze import WHOLE_EVENTS, analyze_splits
from .by_epoch.job import Progress
from .schemas import TRACE
from .splits import splits_of

EVENT = ["computation", "process", "seq"]


def rebuild(
    spark: SparkSession,
    stamps: Path,
    out: Path,
    *,
    whole_events: int = WHOLE_EVENTS,
    epoch_events: int | None = None,
    progress: Progress = lambda what: None,
) -> dict[str, Any]:
    """Write out/stamps; `stamps` is a table of them, or a directory with one in it."""
    table = stamps / "stamps" if (stamps / "stamps").is_dir() else stamps
    if not any(table.glob("*.parquet")):
        raise TraceFormatError(
            "no stamps here: give what `happened analyze --timestamps sparse` or `predecessors` made",
            file=str(stamps),
        )
    stored = spark.read.parquet(str(table))
    with whole_directory(out) as folder:
        trace = folder / ".work" / "trace"
        as_events(stored).write.parquet(str(trace))
        answers = folder / ".work" / "answers"
        answers.mkdir()
        splits = splits_of(locate(trace))
        summary = analyze_splits(
            spark,
            splits,
            answers,
            questions=["stamp"],
            whole_events=whole_events,
            epoch_events=epoch_events,
            progress=progress,
        )
        (answers / "quarantine").rename(folder / "quarantine")
        if sum(split.rows or 0 for split in splits) == stored.count():
            (answers / "stamps").rename(folder / "stamps")
        else:
            all_stamps = spark.read.parquet(str(answers / "stamps"))
            all_stamps.join(stored.select(EVENT), EVENT, "left_semi").write.parquet(str(folder / "stamps"))
            summary["events"] = stored.count()
    return summary


def as_events(stamps: DataFrame) -> DataFrame:
    """A trace whose happened-before is the one the clocks describe."""
    last = stamps.groupBy("computation", "process").agg(F.max("seq").alias("last"))
    every = last.select("computation", "process", F.explode(F.sequence(F.lit(1), "last")).alias("seq"))
    others = F.map_filter("clock", lambda process, seq: (process != F.col("process")) & (seq > 0))
    causes = F.transform(
        F.map_entries(others),
        lambda entry: F.struct(entry["key"].alias("process"), entry["value"].alias("seq")),
    )
    known = {
        "kind": F.lit("internal"),
        "relevant": F.lit(False),
        "causes": causes,
        **{name: F.col(name) for name in EVENT},
    }
    rows = every.join(stamps.select(*EVENT, "clock"), EVENT, "left")
    return rows.select(
        *(known.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name) for field in TRACE.fields)
    )
