"""Analyse the computations that each fit into a task, many of them to a task."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from ..causality.analysis import analyse
from ..causality.questions import Question
from ..trace.store import AnyPath
from .preflight import Preflight
from .sizes import MOST_CELLS, sizes_of
from .splits import Split
from .storage import write_part
from .tasks import Trouble, on_tasks

EVENTS_PER_BATCH = 200_000


@dataclass(frozen=True)
class Whole:
    """What is asked of each computation, and where the answers go."""

    out: AnyPath
    timestamps: str
    questions: Sequence[str | Question]

    def analyse(self, table: pa.Table, part: str) -> Counter[str]:
        """Write the answers for a table as the part `part` of each table; returns the totals.

        A task that runs again gives the same `part`, so that it replaces what it wrote before.
        """
        analysis = analyse(table, timestamps=self.timestamps, questions=self.questions)
        for name, rows in analysis.filled():
            write_part(self.out / name, part, rows)
        return analysis.totals

    def analyse_in_batches(self, table: pa.Table, part: str) -> Counter[str]:
        """The same for many computations, each of which the table has whole."""
        totals: Counter[str] = Counter()
        for number, batch in enumerate(_whole_computations(table)):
            totals += self.analyse(batch, f"{part}-{number:05d}")
        return totals


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
        if events.num_rows > most_events or _is_wide(events):
            return None
        if quarantined.num_rows:
            write_part(whole.out / "quarantine", "rows", quarantined)
        return whole.analyse(events, "alone") + Counter(quarantined=quarantined.num_rows)

    (totals,) = on_tasks(spark, 1, run)
    return None if totals is None else Counter(totals)


def _is_wide(events: pa.Table) -> bool:
    """Whether a computation has too many processes for a task; at most as many act as there are events."""
    if events.num_rows**2 <= MOST_CELLS:
        return False
    sizes = sizes_of(events)
    return bool(pc.max(pc.multiply(sizes["events"], sizes["processes"])).as_py() > MOST_CELLS)


def _whole_computations(table: pa.Table) -> Iterator[pa.Table]:
    """The rows in tables of about EVENTS_PER_BATCH, cut only between computations."""
    if table.num_rows <= EVENTS_PER_BATCH:
        yield table
        return
    table = table.sort_by("computation")
    ends = pc.run_end_encode(table["computation"].combine_chunks()).run_ends.to_pylist()
    begin = 0
    for number, end in enumerate(ends):
        following = ends[number + 1] if number + 1 < len(ends) else None
        if following is None or following - begin > EVENTS_PER_BATCH:
            yield table.slice(begin, end - begin)
            begin = end
