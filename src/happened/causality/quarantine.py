"""Tell computations that can be analysed from those that cannot, which are quarantined with their reasons.

A computation whose rows break the contract of a trace, or whose happened-before has a cycle, is quarantined
whole: nothing that could be said of it would be about something that happened. A cause that is not in the
trace is quarantined by itself. A row that repeats another one exactly is dropped and counted: it says nothing
new. Two different rows of one event are a fault.

With gaps="renumber" the rows are a window of a trace (see computation): gaps in seq and causes that are not
there are no faults.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from ..core.errors import TraceFormatError
from ..trace import validate
from ..trace.repetitions import without_repetitions
from ..trace.validation import GAP
from .computation import REFUSE, RENUMBER, Computation, unite
from .questions import Answers


def sound(
    table: pa.Table, answers: Answers, gaps: str = REFUSE
) -> Iterator[tuple[pa.Table, list[Computation]]]:
    """Yield the rows of the sound computations, and the same as unions; quarantine the others in `answers`.

    Only where something is wrong, rows are compared with one another, and what is wrong is found by halving.
    """
    if not table.num_rows:
        return
    try:
        unions = _unions(table, gaps)
    except TraceFormatError:
        table, repeated = without_repetitions(table)
        answers.totals["duplicate_rows"] += repeated
        yield from _sound_parts(table, answers, gaps)
    else:
        yield table, unions


def _unions(table: pa.Table, gaps: str) -> list[Computation]:
    validate(table, gaps_allowed=gaps == RENUMBER)
    return unite(table, gaps=gaps)


def _sound_parts(
    table: pa.Table, answers: Answers, gaps: str
) -> Iterator[tuple[pa.Table, list[Computation]]]:
    if not table.num_rows:
        return
    try:
        unions = _unions(table, gaps)
    except TraceFormatError as error:
        names = pc.unique(table["computation"])
        if error.field == "causes":
            parts = [_quarantine_absent_causes(table, answers, gaps)]
        elif len(names) == 1:
            answers.quarantine([(names[0].as_py(), str(error))], table.num_rows)
            return
        else:
            halves = names[: len(names) // 2], names[len(names) // 2 :]
            parts = [table.filter(pc.is_in(table["computation"], value_set=half)) for half in halves]
    else:
        yield table, unions
        return
    for part in parts:
        yield from _sound_parts(part, answers, gaps)


def is_gap(reason: str) -> bool:
    """Whether a computation was quarantined for a gap in seq, so that renumbering would let it be judged."""
    return GAP in reason or "seq has a gap" in reason


def _quarantine_absent_causes(table: pa.Table, answers: Answers, gaps: str) -> pa.Table:
    """Return the rows without the causes that are not in the table; those are quarantined one by one.

    In a window only those that name no event: the others may be outside of it.
    """
    known = set(zip(*(table[name].to_pylist() for name in ("computation", "process", "seq")), strict=True))
    rows = table.select(["computation", "process", "seq", "causes"]).to_pylist()
    absent = []
    for row in rows:
        present = []
        for cause in row["causes"] or ():
            cause = cause or {"process": None, "seq": None}
            may_be_outside = gaps == RENUMBER and None not in cause.values()
            if may_be_outside or (row["computation"], cause["process"], cause["seq"]) in known:
                present.append(cause)
                continue
            reason = (
                f"{row['process']}#{row['seq']} names the cause {cause['process']}#{cause['seq']}, "
                "which is not in the trace"
            )
            absent.append((row["computation"], reason))
        row["causes"] = present
    answers.quarantine(absent)
    at = table.schema.get_field_index("causes")
    kept = pa.array([row["causes"] for row in rows], table.schema.field(at).type)
    return table.set_column(at, table.schema.field(at), kept)
