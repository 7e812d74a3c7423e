"""The answers of `happened analyze --local`, computed in this process: for traces that fit its memory.

In    a trace at a path or URL
Out   the same tables and summary.json as `pipeline` writes, and whatever `finish` adds
Cost  reading the trace once, and the cost of each question; needs neither Spark nor Java

Every computation is analysed whole, so that it has one epoch.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from ..causality.computation import REFUSE
from ..causality.judgement import refuse_complete_window
from ..causality.questions import Question, asked
from ..causality.stamps import MOST_CELLS
from ..causality.written import Whole, conclude, is_wide
from ..core.errors import CausalityError
from ..trace import SCHEMA, locate
from ..trace.atomic import whole_directory
from ..trace.location import Location
from ..trace.parts import write_part
from ..trace.store import AnyPath, any_path
from .splits import splits_of

MOST_EVENTS = 5_000_000
"""The most events of a trace that is analysed in this process."""


def analyze_here(
    trace: AnyPath,
    out: AnyPath,
    *,
    timestamps: str = "full",
    questions: Sequence[str | Question] | None = None,
    complete: bool | None = None,
    gaps: str = REFUSE,
    finish: Callable[[AnyPath, dict[str, Any]], object] = lambda folder, summary: None,
) -> dict[str, Any]:
    """Answer questions about the trace at a path in `out`, which must not exist; returns the summary.

    questions  by name or themselves; all there are if None
    complete   whether the trace has everything that happened; None: as recorded with the trace, else False
    gaps       "renumber" if the trace is a window of a longer one, or filtered
    finish     called before the directory appears; it may add files, such as a report
    """
    complete = refuse_complete_window(complete, gaps)
    at = locate(any_path(trace).absolute())
    events, quarantined = SCHEMA.empty_table(), []
    with whole_directory(out) as folder:
        for split in splits_of(at):
            rows = split.read()
            events = pa.concat_tables([events, rows.events])
            quarantined.append(rows.quarantined)
            _refuse_large(trace, events)
        left_out = pa.concat_tables(quarantined) if quarantined else None
        totals = Counter(quarantined=0 if left_out is None else left_out.num_rows)
        if left_out is not None and left_out.num_rows:
            write_part(folder / "quarantine", "rows", left_out)
        chosen = asked(questions)
        totals += Whole(folder, timestamps, chosen, gaps).analyse_in_batches(events, "alone")
        summary = conclude(folder, totals, chosen, gaps)
        write_summary(folder, summary, at, complete)
        finish(folder, summary)
    return summary


def write_summary(folder: AnyPath, summary: dict[str, Any], at: Location, complete: bool | None) -> None:
    """Add the facts about the trace as a whole to the summary, and write it as summary.json."""
    summary["complete"] = at.is_complete if complete is None else complete
    summary |= at.import_losses
    (folder / "summary.json").write_text(json.dumps(summary, indent=2, sort_keys=True) + "\n")


def _refuse_large(trace: AnyPath, events: pa.Table) -> None:
    advice = f"analyse it on Spark: `happened analyze {trace} --out DIR`"
    if events.num_rows > MOST_EVENTS:
        raise CausalityError(f"{trace}: {events.num_rows:,} events are too many for one process; {advice}")
    if is_wide(events):
        raise CausalityError(
            f"{trace}: a computation of more than {MOST_CELLS:,} events x processes is too large for one "
            f"process; {advice}"
        )
