"""Questions asked of a table of whole computations, and the answers as tables.

In    rows of trace.SCHEMA, each computation complete
Out   Analysis: the tables of the questions and the totals that add up over disjoint tables
Cost  as the questions: events x processes; computations are independent

A computation that is none (a cycle, a gap, two events of one name) is quarantined with its reason and the
others are analysed.
"""

from collections.abc import Sequence

import pyarrow as pa

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
    "Analysis",
    "analyse",
    "clock_maps",
    "stamps_table",
]

EVERYTHING = tuple(QUESTIONS)


class Analysis(Answers):
    def table(self, name: str) -> pa.Table:
        """All rows of a table. It has its schema even where it has no rows."""
        return pa.concat_tables([TABLES[name].empty_table(), *self.tables[name]])


def analyse(
    table: pa.Table, *, timestamps: str = "full", questions: Sequence[str | Question] | None = None
) -> Analysis:
    """Ask the questions given, by name or as objects, of every sound computation; all questions if None."""
    analysis = Analysis()
    wanted = asked(questions)
    for part, unions in sound(table, analysis):
        for c in unions:
            analysis.totals["computations"] += len(c.computation_names)
            analysis.totals["events"] += c.events
            analysis.totals["processes"] += c.processes
            subject = Subject(c, part, timestamps)
            for question in wanted:
                question.whole(subject, analysis)
    return analysis
