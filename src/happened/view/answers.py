"""What the viewer shows of an analysis: a trace rebuilt from the tables that `happened analyze` wrote.

An event is relevant if it is in `predecessors`. Labels and attributes need the trace itself.
"""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from ..causality import encode
from ..causality.written import analysed_events
from ..core.errors import LocalProtocolError
from ..trace.store import AnyPath, arrow_dataset, matching
from ..trace.validation import validate
from .prepared import Prepared
from .slicing import slice_table

NEEDED = ("stamps", "processes", "messages")
MOST_EVENTS = 300_000


def are_answers(path: Path) -> bool:
    return (path / "summary.json").is_file() and bool(matching(path / "stamps", "*.parquet"))


def events_of_answers(folder: AnyPath, computations: Sequence[str] | None = None) -> pa.Table:
    """A trace with the events of an analysis, or of some of its computations. LocalProtocolError if tables
    are missing or too large."""
    only = None if computations is None else pc.field("computation").isin(pa.array(computations, pa.string()))
    missing = [name for name in NEEDED if not matching(folder / name, "*.parquet")]
    if missing:
        raise LocalProtocolError(
            f"{folder} has no table {missing[0]!r}; look at the trace it was made from, or run `happened "
            "analyze` without choosing questions"
        )
    count = arrow_dataset(folder / "stamps").count_rows(filter=only)
    if count > MOST_EVENTS:
        raise LocalProtocolError(
            f"{folder} tells of {count:,} events, more than the {MOST_EVENTS:,} that are shown from answers; "
            "look at the trace it was made from, with --serve"
        )
    wanted = None if computations is None else dict.fromkeys(computations)
    # In one order, whatever that of the tables: the same answers are the same picture.
    whole = analysed_events(folder, wanted, time="clock_time", relevant=True)
    validate(whole)  # seqs of a window that was renumbered have gaps, and are not shown from answers
    parts = [Prepared(c, whole) for c in encode(whole)]
    # Everything that an event knew anew is among its causes; of those the immediate ones are kept.
    return pa.concat_tables([whole.slice(0, 0), *(slice_table(each, each.c.seq > 0) for each in parts)])
