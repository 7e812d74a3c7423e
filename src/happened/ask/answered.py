"""The tables of an analysis as a trace to ask questions of: what is too large to be read whole.

In    a directory that `happened analyze` or `happened analyze --local` left, and names of events
Out   rows of trace.SCHEMA: the computations of those events, or only their past

Labels and attributes are not in the tables, so events go by `process#seq` and by messages here.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ..causality.analysed import Known, analysed_events
from ..core.errors import CausalityError
from ..trace.store import AnyPath, arrow_dataset, matching
from .naming import UnknownName, halves

NEEDED = ("stamps", "processes", "messages", "times")


def is_answered(path: AnyPath) -> bool:
    """Whether a path is that of an analysis's tables. CausalityError if it has only some of those needed."""
    if not path.is_dir() or not matching(path / "stamps", "*.parquet"):
        return False
    lacking = [name for name in NEEDED if not matching(path / name, "*.parquet")]
    if lacking:
        raise CausalityError(
            f"{path} has no table {', '.join(lacking)}: it is the answer to some questions only; ask what "
            "`happened analyze` or `happened analyze --local` leave, or the trace itself"
        )
    return True


def answered_events(
    folder: AnyPath, about: Sequence[str], *, past_only: bool = False
) -> tuple[pa.Table, bool]:
    """The events of the computations in which these names occur, or their past; and whether that is not all.

    Without names, all events. UnknownName if one does not occur.
    """
    wanted = _wanted(folder, about, past_only) if about else None
    return analysed_events(folder, wanted), past_only and wanted is not None


def _wanted(folder: AnyPath, about: Sequence[str], past_only: bool) -> Known:
    wanted: Known = {}
    processes = arrow_dataset(folder / "processes").to_table()
    stamps = arrow_dataset(folder / "stamps")
    for text in about:
        named = pc.field("event") == text
        for computation, event in halves(text):
            named |= (pc.field("computation") == computation) & (pc.field("event") == event)
        found = stamps.to_table(columns=["computation", "clock"], filter=named)
        for row in found.to_pylist():
            known = None
            if past_only and row["clock"] is not None:
                mine = processes.filter(pc.field("computation") == row["computation"])
                names = zip(mine["p"].to_pylist(), mine["process"].to_pylist(), strict=True)
                known = {name: row["clock"][p] for p, name in names if row["clock"][p]}
            _want(wanted, row["computation"], known)
        of_message = pc.field("message") == text
        messages = arrow_dataset(folder / "messages").to_table(columns=["computation"], filter=of_message)
        for computation in pc.unique(messages["computation"]).to_pylist():
            _want(wanted, computation, None)
        if not found.num_rows and not messages.num_rows:
            raise UnknownName(
                f"nothing in {folder} is called {text!r}: an analysis has no labels or spans, only "
                "process#seq and messages; ask the trace itself for those"
            )
    return wanted


def _want(wanted: Known, computation: str, known: dict[str, int] | None) -> None:
    before = wanted.setdefault(computation, known)
    if before is None or known is None:
        wanted[computation] = None
        return
    for process, count in known.items():
        before[process] = max(before.get(process, 0), count)
