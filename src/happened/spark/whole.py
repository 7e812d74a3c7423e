"""Analyse the computations that each fit into a task, many of them to a task."""

from collections import Counter
from collections.abc import Sequence

from pyspark.sql import SparkSession

from ..causality.written import Whole, is_wide
from ..trace.parts import write_part
from .preflight import Preflight
from .splits import Split
from .tasks import Trouble, on_tasks


def analyse_alone(
    spark: SparkSession, splits: Sequence[Split], whole: Whole, most_events: int, check: Preflight
) -> Counter[str] | None:
    """Analyse a trace that fits a task, in one; None if it does not."""
    if not splits:
        return Counter()
    (split, *more) = splits
    if more or (split.rows or 0) > most_events:
        return None

    def run(_: int) -> Counter[str] | Trouble | None:
        if (trouble := check.look()) is not None:
            return trouble
        events, quarantined = split.read()
        if events.num_rows > most_events or is_wide(events, whole.writes_vectors):
            return None
        if quarantined.num_rows:
            write_part(whole.out / "quarantine", "rows", quarantined)
        return whole.analyse(events, "alone") + Counter(quarantined=quarantined.num_rows)

    (totals,) = on_tasks(spark, 1, run)
    return None if totals is None else Counter(totals)
