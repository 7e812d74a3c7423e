"""The events that an analysis tells of: a trace rebuilt from the tables that `happened analyze` wrote.

`stamps` and `processes` say which events there are and what each knew, `messages` which of them sent and
delivered what, and `times` when. Labels, attributes, arrivals and second copies are in none of them: those
need the trace itself. An event is relevant if it is in `predecessors`. Happened-before is exactly that of the
tables.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..causality import encode
from ..core.errors import LocalProtocolError
from ..trace.store import AnyPath, arrow_dataset, matching
from ..trace.validation import validate
from ..trace.writer import table_from_rows
from .prepared import Prepared
from .slicing import slice_table

NEEDED = ("stamps", "processes", "messages")
MOST_EVENTS = 300_000

Row = dict[str, Any]


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
    names = {(row["computation"], row["p"]): row["process"] for row in _rows(folder, "processes", only)}
    rows = {_key(row): _event(row) for row in _rows(folder, "stamps", only)}
    _add_causes(rows, _rows(folder, "stamps", only), names)
    _add_messages(rows, _rows(folder, "messages", only))
    if matching(folder / "times", "*.parquet"):
        for time in _rows(folder, "times", only):
            rows[_key(time)]["time"] = time["clock_time"]
    if matching(folder / "predecessors", "*.parquet"):
        for edge in _rows(folder, "predecessors", only):
            rows[_key(edge)]["relevant"] = True
            rows[edge["computation"], edge["cause_process"], edge["cause_seq"]]["relevant"] = True
    # In one order, whatever that of the tables: the same answers are the same picture.
    whole = table_from_rows([rows[key] for key in sorted(rows)])
    validate(whole)  # seqs of a window that was renumbered have gaps, and are not shown from answers
    parts = [Prepared(c, whole) for c in encode(whole)]
    # Everything that an event knew anew is among its causes; of those the immediate ones are kept.
    return pa.concat_tables([whole.slice(0, 0), *(slice_table(each, each.c.seq > 0) for each in parts)])


def _rows(folder: AnyPath, table: str, only: pc.Expression | None) -> list[Row]:
    found: list[Row] = arrow_dataset(folder / table).to_table(filter=only).to_pylist()
    return found


def _key(row: Row) -> tuple[str, str, int]:
    return row["computation"], row["process"], row["seq"]


def _event(row: Row) -> Row:
    named = {name: row[name] for name in ("computation", "process", "seq")}
    return named | {"kind": "internal", "relevant": False}


def _add_causes(
    rows: dict[tuple[str, str, int], Row], stamps: list[Row], names: dict[tuple[str, int], str]
) -> None:
    clocks = {_key(row): row["clock"] for row in stamps}
    for row in stamps:
        computation, process, seq = _key(row)
        if row["clock"] is not None:
            before = clocks.get((computation, process, seq - 1)) or [0] * len(row["clock"])
            known = [
                (p, new) for p, (new, old) in enumerate(zip(row["clock"], before, strict=True)) if new > old
            ]
        else:
            known = [(entry["p"], entry["seq"]) for entry in row["entries"] or ()]
        causes = [{"process": names[computation, p], "seq": seq} for p, seq in known if seq]
        rows[_key(row)]["causes"] = [cause for cause in causes if cause["process"] != process] or None


def _add_messages(rows: dict[tuple[str, str, int], Row], messages: list[Row]) -> None:
    for row in sorted(messages, key=lambda row: (row["computation"], row["message"], row["receiver"] or "")):
        computation, message = row["computation"], row["message"]
        if row["sent_seq"] is not None:
            send = rows[computation, row["sender"], row["sent_seq"]]
            send |= {"kind": "send", "message": message, "to": send.get("to") or []}
            if row["fate"] != "misdelivered":
                send["to"].append(row["receiver"])
        if row["received_seq"] is not None:
            rows[computation, row["receiver"], row["received_seq"]] |= {"kind": "deliver", "message": message}
