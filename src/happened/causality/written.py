"""Answers as tables in a directory: what a task of Spark writes, and a process by itself.

In    tables of whole computations, and a directory
Out   a part of each table that has rows, totals that add up; `conclude`: a summary, and tables without rows
Cost  that of the questions, for about EVENTS_PER_BATCH events at a time
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..trace.parts import write_part
from ..trace.schema import QUARANTINE
from ..trace.store import AnyPath
from .analysis import analyse
from .computation import REFUSE, RENUMBER
from .questions import Question, asked
from .reach import WORD
from .stamps import MANY_PROCESSES, MOST_CELLS

EVENTS_PER_BATCH = 200_000

MOST_WORDS = 20_000_000_000
"""Steps for the ordered pairs of a computation that is taken whole without vectors: some 20 s."""

COUNTED = ("events", "processes", "computations", "quarantined", "duplicate_rows")
ALWAYS = (*COUNTED, "complete")
"""What every summary has, whatever was asked."""

OF_WINDOWS = ("sent_outside", "causes_outside")
"""What the summary of a window has besides: deliveries of messages that were sent outside of it, and recorded
causes that are outside of it."""


@dataclass(frozen=True)
class Whole:
    """The questions to ask of each computation, and where to write the answers; `gaps` as in `analyse`."""

    out: AnyPath
    timestamps: str
    questions: Sequence[str | Question]
    gaps: str = REFUSE

    @property
    def writes_vectors(self) -> bool:
        """Whether the vectors of all events are asked for, whole or by what changed."""
        names = [question.name for question in asked(self.questions)]
        return "stamp" in names and self.timestamps != "predecessors"

    def analyse(self, table: pa.Table, part: str) -> Counter[str]:
        """Write the answers for a table as the part `part` of each table; returns the totals.

        A task that runs again gives the same `part`, so that it replaces what it wrote before.
        """
        analysis = analyse(table, timestamps=self.timestamps, questions=self.questions, gaps=self.gaps)
        for name, rows in analysis.filled():
            write_part(self.out / name, part, rows)
        return analysis.totals

    def analyse_in_batches(self, table: pa.Table, part: str) -> Counter[str]:
        """Write the answers for many computations, in batches; the table has every computation completely."""
        totals: Counter[str] = Counter()
        for number, batch in enumerate(whole_computations(table)):
            totals += self.analyse(batch, f"{part}-{number:05d}")
        return totals


def conclude(
    folder: AnyPath, totals: Counter[str], questions: Sequence[Question], gaps: str = REFUSE
) -> dict[str, Any]:
    """Write an empty table wherever nobody wrote a part, and return the summary."""
    for name, schema in tables_of(questions).items():
        if not (folder / name).exists():
            write_part(folder / name, "empty", schema.empty_table())
    return summary_of(totals, questions, gaps)


def tables_of(questions: Sequence[Question]) -> dict[str, pa.Schema]:
    """The tables that answer these questions."""
    tables = {"quarantine": QUARANTINE}
    for question in questions:
        tables |= question.tables
    return tables


def summary_of(totals: Counter[str], questions: Sequence[Question], gaps: str = REFUSE) -> dict[str, Any]:
    counted = (*COUNTED, *OF_WINDOWS) if gaps == RENUMBER else COUNTED
    summary: dict[str, Any] = {name: totals[name] for name in counted}
    for question in questions:
        summary |= question.summarise(totals)
    return summary


def is_wide(events: pa.Table, writes_vectors: bool = False) -> bool:
    """Whether a computation has too many processes to be taken whole. It has no more of them than events."""
    return bool(large_computations(events, writes_vectors))


def large_computations(
    events: pa.Table, writes_vectors: bool = False, most_events: int | None = None
) -> list[str]:
    """The computations that are too large to be taken whole, by their processes, or by `most_events`."""
    if events.num_rows**2 <= MOST_CELLS and events.num_rows <= (most_events or events.num_rows):
        return []
    sizes = sizes_of(events)
    large = too_wide(sizes, writes_vectors)
    if most_events is not None:
        large = pc.or_(large, pc.greater(sizes["events"], most_events))
    names: list[str] = sizes["computation"].filter(large).to_pylist()
    return names


def too_wide(sizes: pa.Table, writes_vectors: bool = False) -> pa.ChunkedArray:
    """Of each computation, whether it has too many processes for its events to be taken whole.

    sizes            at least the columns events, processes and messages of `sizes_of`
    writes_vectors   whether whole vectors are asked for, where there are up to MANY_PROCESSES

    Without messages, vectors are only needed to be written: see `questions.Subject.is_wide`.
    """
    events, processes = (sizes[name].cast(pa.float64()) for name in ("events", "processes"))
    words = pc.multiply(events, pc.min_element_wise(processes, pc.divide(events, float(WORD))))
    needs_vectors = pc.or_(pc.greater(sizes["messages"], 0), pc.greater(words, float(MOST_WORDS)))
    if writes_vectors:
        needs_vectors = pc.or_(needs_vectors, pc.less_equal(sizes["processes"], MANY_PROCESSES))
    return pc.and_(needs_vectors, pc.greater(pc.multiply(events, processes), float(MOST_CELLS)))


def sizes_of(events: pa.Table) -> pa.Table:
    """Of each computation: its events, the processes that act in it, its rows of kind `deliver`, and those
    that are about messages."""
    flags = {
        "delivers": pc.equal(events["kind"], "deliver").cast(pa.int64()),
        "messages": pc.not_equal(events["kind"], "internal").cast(pa.int64()),
    }
    flagged = pa.table({"computation": events["computation"], "process": events["process"]} | flags)
    added = [("process", "count"), ("process", "count_distinct"), ("delivers", "sum"), ("messages", "sum")]
    table = flagged.group_by("computation").aggregate(added)
    names = ["computation", "process_count", "process_count_distinct", "delivers_sum", "messages_sum"]
    return table.select(names).rename_columns(["computation", "events", "processes", "delivers", "messages"])


def whole_computations(table: pa.Table) -> Iterator[pa.Table]:
    """The rows in tables of about EVENTS_PER_BATCH, cut only between computations."""
    if table.num_rows <= EVENTS_PER_BATCH:
        yield table
        return
    table = table.sort_by("computation")
    ends = pc.run_end_encode(table["computation"].combine_chunks()).run_ends.to_pylist()
    begin = 0
    for end, following in pairwise([*ends, None]):
        if following is None or following - begin > EVENTS_PER_BATCH:
            yield table.slice(begin, end - begin)
            begin = end
