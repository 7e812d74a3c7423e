"""Tell computations that can be analysed from those that cannot, which are quarantined with their reasons.

A computation whose rows break the contract of a trace, or whose happened-before has a cycle, is quarantined
whole: nothing that could be said of it would be about something that happened. A cause that is not in the
trace is quarantined by itself.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from ..core.errors import TraceFormatError
from ..trace import validate
from .computation import Computation, unite
from .questions import QUARANTINE, Answers


def sound(table: pa.Table, answers: Answers) -> Iterator[tuple[pa.Table, list[Computation]]]:
    """Yield the rows of the sound computations, and the same as unions; quarantine the others in `answers`.

    Where one is broken, it is found by halving.
    """
    if not table.num_rows:
        return
    try:
        validate(table)
        unions = unite(table)
    except TraceFormatError as error:
        names = pc.unique(table["computation"])
        if error.field == "causes":
            parts = [_quarantine_absent_causes(table, answers)]
        elif len(names) == 1:
            _quarantine(answers, [(names[0].as_py(), str(error))], table.num_rows)
            return
        else:
            halves = names[: len(names) // 2], names[len(names) // 2 :]
            parts = [table.filter(pc.is_in(table["computation"], value_set=half)) for half in halves]
    else:
        yield table, unions
        return
    for part in parts:
        yield from sound(part, answers)


def _quarantine(answers: Answers, reasons: list[tuple[str, str]], rows: int) -> None:
    columns = [{"computation": computation, "reason": reason} for computation, reason in reasons]
    answers.add("quarantine", pa.Table.from_pylist(columns, schema=QUARANTINE))
    answers.totals["quarantined"] += rows


def _quarantine_absent_causes(table: pa.Table, answers: Answers) -> pa.Table:
    """Return the rows without the causes that are not in the table; those are quarantined one by one."""
    known = set(zip(*(table[name].to_pylist() for name in ("computation", "process", "seq")), strict=True))
    rows = table.select(["computation", "process", "seq", "causes"]).to_pylist()
    absent = []
    for row in rows:
        present = []
        for cause in row["causes"] or ():
            cause = cause or {"process": None, "seq": None}
            if (row["computation"], cause["process"], cause["seq"]) in known:
                present.append(cause)
                continue
            reason = (
                f"{row['process']}#{row['seq']} names the cause {cause['process']}#{cause['seq']}, "
                "which is not in the trace"
            )
            absent.append((row["computation"], reason))
        row["causes"] = present
    _quarantine(answers, absent, len(absent))
    at = table.schema.get_field_index("causes")
    kept = pa.array([row["causes"] for row in rows], table.schema.field(at).type)
    return table.set_column(at, table.schema.field(at), kept)
