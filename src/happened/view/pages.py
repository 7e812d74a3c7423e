"""Choose what a view of a trace, or of an analysis, shows: which computations, in which order, and how much
of them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..causality import check, check_delivery, encode
from ..causality.judgement import Checked, check_path
from ..causality.reach import everything
from ..causality.written import analysed_events
from ..core.errors import LocalProtocolError
from ..trace.store import AnyPath, arrow_dataset, matching
from ..trace.validation import validate
from .prepared import Prepared
from .scene import as_text, scene
from .slicing import Slice, slice_table
from .texts import cut
from .viewer_page import html

NEEDED = ("stamps", "processes", "messages")  # tables of an analysis that a view needs
MOST_EVENTS = 300_000
"""Events on a page: more take long to open, and `--serve` shows them window by window."""
MOST_COMPUTATIONS = 500
MOST_WITNESSES = 200
MOST_REASONS = 20


def are_answers(path: Path) -> bool:
    return (path / "summary.json").is_file() and bool(matching(path / "stamps", "*.parquet"))


def events_of_answers(folder: AnyPath, computations: Sequence[str] | None = None) -> pa.Table:
    """Rebuild a trace from an analysis's tables, or from some of its computations; LocalProtocolError if
    tables are missing or too large. Events in `predecessors` count as relevant. Labels and attributes are
    only in the original trace."""
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
    # Sort the rows, so that the same answers give the same picture, whatever the order in the tables.
    whole = analysed_events(folder, wanted, time="clock_time", relevant=True)
    validate(whole)  # seqs of a window that was renumbered have gaps, and are not shown from answers
    parts = [Prepared(c, whole) for c in encode(whole)]
    # A rebuilt event lists everything it newly knew as causes; slice_table keeps the immediate ones.
    return pa.concat_tables([whole.slice(0, 0), *(slice_table(each, each.c.seq > 0) for each in parts)])


@dataclass(frozen=True, slots=True)
class Viewed:
    """A trace that was read and judged; computations with faults come first, then the largest."""

    title: str
    checked: Checked
    computations: list[Prepared]

    def about(self, shown: int, notes: list[str]) -> dict[str, Any]:
        """What the page says about the trace; it lists the first `shown` computations."""
        judgement = self.checked.judgement
        return {
            "title": cut(self.title, 200),
            "sentence": judgement.sentence,
            "outcome": judgement.outcome.name.lower(),
            "quarantine": [cut(reason, 500) for reason in self.checked.quarantine[:MOST_REASONS]],
            "notes": notes,
            "computations": [
                {"name": cut(each.c.name, 100), "events": each.c.events, "faults": each.fault_count}
                for each in self.computations[:shown]
            ],
        }

    def chosen(self, name: str | None) -> list[Prepared]:
        """The computation of this name, or all of them."""
        found = [each for each in self.computations if name is None or each.c.name == name]
        if name is not None and not found:
            known = ", ".join(repr(each.c.name) for each in self.computations[:10])
            raise LocalProtocolError(f"no computation {name!r} in {self.title}; there are {known or 'none'}")
        return found


def viewed(path: str | os.PathLike[str], *, order: str = "causal", complete: bool | None = None) -> Viewed:
    """Read and judge a trace, or the trace rebuilt from an analysis's answers. TraceFormatError if the path
    has neither."""
    title = Path(path).name
    if are_answers(Path(path)):
        return viewed_table(events_of_answers(Path(path)), title, order=order, complete=complete)
    return _prepared(title, check_path(path, order, complete=complete, limit=MOST_WITNESSES))


def viewed_table(
    table: pa.Table, title: str, *, order: str = "causal", complete: bool | None = None
) -> Viewed:
    """Judge a table of valid events, as `viewed` judges a trace."""
    computations = encode(table)
    judgement = check(computations, order, complete=complete, limit=MOST_WITNESSES)
    return _prepared(title, Checked(judgement, check_delivery(computations), table, tuple(computations)))


def _prepared(title: str, checked: Checked) -> Viewed:
    witnesses = checked.judgement.witnesses
    prepared = [Prepared(c, checked.table, witnesses) for c in checked.computations]
    prepared.sort(key=lambda each: (-min(each.fault_count, 1), -each.c.events, each.c.name))
    return Viewed(title, checked, prepared)


def page(of: Viewed, part: Slice | None = None) -> str:
    """One page with as much of the trace, or of the part, as a browser can open at once."""
    extents = [everything(each.c) if part is None else part.extent(each) for each in of.computations]
    shown, events = 0, 0
    for extent in extents[:MOST_COMPUTATIONS]:
        if shown and events + extent.events > MOST_EVENTS:
            break
        shown, events = shown + 1, events + extent.events
    if events > MOST_EVENTS:
        raise LocalProtocolError(
            f"{events:,} events are too many for a page, which has at most {MOST_EVENTS:,}; see them with "
            "--serve, or at a part of them: --window 1..2000, --past EVENT, --future EVENT"
        )
    notes = []
    left = len(of.computations) - shown
    if left:
        rest = sum(extent.events for extent in extents[shown:])
        notes.append(
            f"{left:,} smaller computations with {rest:,} events are left out; `happened view --serve` shows "
            "them."
        )
    scenes = [as_text(scene(*each)) for each in zip(of.computations[:shown], extents, strict=False)]
    return html(of.about(shown, notes), scenes)
