"""Answers as tables in a directory: what a task of Spark writes, and a process by itself.

In    tables of whole computations, and a directory
Out   a part of each table that has rows, totals that add up; `conclude`: a summary, and tables without rows
Cost  that of the questions, for about EVENTS_PER_BATCH events at a time
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..trace.parts import write_part
from ..trace.store import AnyPath
from .analysis import analyse
from .questions import QUARANTINE, Question

EVENTS_PER_BATCH = 200_000

MOST_CELLS = 50_000_000
"""Events x processes of a computation that is taken whole: at 10 bytes each, the kernel's peak, 500 MB."""

COUNTED = ("events", "processes", "computations", "quarantined")
ALWAYS = (*COUNTED, "complete")
"""What every summary has, whatever was asked."""


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


def conclude(folder: AnyPath, totals: Counter[str], questions: Sequence[Question]) -> dict[str, Any]:
    """Write an empty table wherever nobody wrote a part, and return the summary."""
    tables = {"quarantine": QUARANTINE}
    summary: dict[str, Any] = {name: totals[name] for name in COUNTED}
    for question in questions:
        tables |= question.tables
        summary |= question.summarise(totals)
    for name, schema in tables.items():
        if not (folder / name).exists():
            write_part(folder / name, "empty", schema.empty_table())
    return summary


def is_wide(events: pa.Table) -> bool:
    """Whether a computation is too large to be taken whole. It has no more processes than events."""
    if events.num_rows**2 <= MOST_CELLS:
        return False
    sizes = sizes_of(events)
    return bool(pc.max(pc.multiply(sizes["events"], sizes["processes"])).as_py() > MOST_CELLS)


def sizes_of(events: pa.Table) -> pa.Table:
    """Of each computation: its events, the processes that act in it, and its rows of kind `deliver`."""
    flagged = events.select(["computation", "process"]).append_column(
        "delivers", pc.equal(events["kind"], "deliver").cast(pa.int64())
    )
    added = [("process", "count"), ("process", "count_distinct"), ("delivers", "sum")]
    table = flagged.group_by("computation").aggregate(added)
    names = ["computation", "process_count", "process_count_distinct", "delivers_sum"]
    return table.select(names).rename_columns(["computation", "events", "processes", "delivers"])


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
