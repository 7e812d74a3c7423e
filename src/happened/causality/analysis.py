"""Ask questions of a table of whole computations, and return the answers as tables.

In    rows of trace.SCHEMA, all rows of each computation
Out   AnswerTables: the tables of the questions, and totals that add up over disjoint tables
Cost  that of the questions: events x processes; computations are independent

A computation whose rows break the contract of a trace (a gap, two different rows of one event), or whose
happened-before has a cycle, is quarantined whole: no answer about it would describe a real run. A cause that
is not in the trace is quarantined alone. A row that repeats another exactly is dropped and counted in
`duplicate_rows`, since it adds nothing.

With gaps="renumber" the rows are a window of a trace (see computation): then gaps in seq and causes outside
the table are no faults.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..core.errors import TraceFormatError
from ..trace.repetitions import without_repetitions
from ..trace.validation import GAP, validate
from .computation import REFUSE, RENUMBER, Computation, check_gaps, unite
from .linearization import SENT_OUTSIDE, Ints
from .names import flatten, nested
from .questions import QUESTIONS, TABLES, Answers, Question, Subject, asked
from .questions.stamp import PROCESSES, STAMPS, TIMESTAMPS, clock_maps, stamps_table

__all__ = [
    "EVERYTHING", "PROCESSES", "QUESTIONS", "STAMPS", "TABLES", "TIMESTAMPS", "AnswerTables", "analyse",
    "clock_maps", "stamps_table",
]  # fmt: skip

EVERYTHING = tuple(QUESTIONS)


class AnswerTables(Answers):
    def table(self, name: str) -> pa.Table:
        """All rows of a table; an empty table still has its schema."""
        return pa.concat_tables([TABLES[name].empty_table(), *self.tables[name]])


def analyse(
    table: pa.Table,
    *,
    timestamps: str = "full",
    questions: Sequence[str | Question] | None = None,
    gaps: str = REFUSE,
) -> AnswerTables:
    """Ask the questions given, by name or as objects, of every sound computation; all questions if None.

    gaps   "refuse": quarantine a computation with a gap in seq. "renumber": the table is a window of a trace;
           the totals `sent_outside` and `causes_outside` count references to events outside the window
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


def sound(
    table: pa.Table, answers: Answers, gaps: str = REFUSE
) -> Iterator[tuple[pa.Table, list[Computation]]]:
    """Yield the rows of the sound computations and their unions; quarantine the others in `answers`.

    Rows are compared with one another only if there is a fault, which is then located by bisection.
    """
    left, is_first = [table], True
    while left:
        part = left.pop()
        if not part.num_rows:
            continue
        try:
            validate(part, gaps_allowed=gaps == RENUMBER)
            unions = unite(part, gaps=gaps)
        except TraceFormatError as error:
            names = pc.unique(part["computation"])
            if is_first:
                part, repeated = without_repetitions(part)
                answers.totals["duplicate_rows"] += repeated
                left.append(part)
            elif error.field == "causes":
                left.append(_without_absent_causes(part, answers, gaps))
            elif len(names) == 1:
                answers.quarantine([(names[0].as_py(), str(error))], part.num_rows)
            else:
                halves = names[len(names) // 2 :], names[: len(names) // 2]
                left += (part.filter(pc.is_in(part["computation"], value_set=half)) for half in halves)
            is_first = False
        else:
            yield part, unions


def sound_whole(
    table: pa.Table,
    answers: Answers,
    encoded: Callable[[pa.Table], Sequence[Computation]],
    gaps: str = REFUSE,
) -> tuple[pa.Table, Sequence[Computation]]:
    """The rows of the sound computations and their encoding; quarantine the others in `answers`."""
    try:
        validate(table, gaps_allowed=gaps == RENUMBER)
        return table, encoded(table)
    except TraceFormatError:
        table = pa.concat_tables([table.slice(0, 0), *(part for part, _ in sound(table, answers, gaps))])
        return table, encoded(table)


def is_gap(reason: str) -> bool:
    """Whether a computation was quarantined for a gap in seq, so that renumbering would make it judgeable."""
    return GAP in reason or "seq has a gap" in reason


def _without_absent_causes(table: pa.Table, answers: Answers, gaps: str) -> pa.Table:
    """The rows without causes that are not in the table. In a window only causes that name no possible event
    are removed: the others may be outside the window."""
    known = set(zip(*(table[name].to_pylist() for name in ("computation", "process", "seq")), strict=True))
    causes, row = flatten(table["causes"])
    absent = []
    for computation, cause in zip(
        table["computation"].take(row).to_pylist(), causes.to_pylist(), strict=True
    ):
        named = (cause["process"], cause["seq"]) if cause else (None, None)
        may_be_outside = gaps == RENUMBER and None not in named
        absent.append(not may_be_outside and (computation, *named) not in known)
    return without_causes(table, np.array(absent, bool), answers)


def without_causes(table: pa.Table, absent: Ints, answers: Answers) -> pa.Table:
    """The rows without some of their causes; each removed cause is quarantined as absent.

    absent   for each cause of each row, row after row, whether to remove it
    """
    causes, row = flatten(table["causes"])
    reasons = []
    for k in np.flatnonzero(absent).tolist():
        computation, process, seq = (table[name][row[k]] for name in ("computation", "process", "seq"))
        cause = causes[k].as_py() or {"process": None, "seq": None}
        told = f"names the cause {cause['process']}#{cause['seq']}, which is not in the trace"
        reasons.append((computation.as_py(), f"{process}#{seq} {told}"))
    answers.quarantine(reasons)
    at = table.schema.get_field_index("causes")
    kept = np.flatnonzero(~absent)
    counts = np.bincount(row[kept], minlength=table.num_rows)
    lists = nested(counts, causes.take(pa.array(kept)), table.schema.field(at).type)
    return table.set_column(at, table.schema.field(at), lists)
