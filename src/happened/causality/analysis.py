"""Questions asked of a table of whole computations, and the answers as tables.

In    rows of trace.SCHEMA, all there are of each computation
Out   AnswerTables: the tables of the questions and the totals that add up over disjoint tables
Cost  as the questions: events x processes; computations are independent

A computation that is none (a cycle, a gap, two different rows of one event) is quarantined with its
reason, and the others are analysed. Rows that repeat another exactly are dropped, and counted as
`duplicate_rows`.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from .computation import REFUSE, check_gaps
from .linearization import SENT_OUTSIDE
from .quarantine import sound
from .questions import QUESTIONS, TABLES, Answers, Question, Subject, asked
from .questions.stamp import PROCESSES, STAMPS, TIMESTAMPS, clock_maps, stamps_table

__all__ = [
    "EVERYTHING",
    "PROCESSES",
    "QUESTIONS",
    "STAMPS",
    "TABLES",
    "TIMESTAMPS",
    "AnswerTables",
    "analyse",
    "clock_maps",
    "stamps_table",
]

EVERYTHING = tuple(QUESTIONS)


class AnswerTables(Answers):
    def table(self, name: str) -> pa.Table:
        """All rows of a table. It has its schema even where it has no rows."""
        return pa.concat_tables([TABLES[name].empty_table(), *self.tables[name]])


def analyse(
    table: pa.Table,
    *,
    timestamps: str = "full",
    questions: Sequence[str | Question] | None = None,
    gaps: str = REFUSE,
) -> AnswerTables:
    """Ask the questions given, by name or as objects, of every sound computation; all questions if None.

    gaps   "refuse": a computation with a gap in seq is quarantined. "renumber": the table is a window of a
           trace; totals `sent_outside` and `causes_outside` count what refers to events outside of it
    """
    check_gaps(gaps)
    analysis = AnswerTables()
    wanted = asked(questions)
    for part, unions in sound(table, analysis, gaps):
        for c in unions:
            analysis.totals["computations"] += len(c.computation_names)
            analysis.totals["events"] += c.events
            analysis.totals["processes"] += c.processes
            if c.is_window:
                analysis.totals["sent_outside"] += int(np.count_nonzero(c.fate == SENT_OUTSIDE))
                analysis.totals["causes_outside"] += c.causes_outside
            subject = Subject(c, part, timestamps)
            for question in wanted:
                question.whole(subject, analysis)
    return analysis
