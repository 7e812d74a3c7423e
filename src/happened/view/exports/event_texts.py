"""What an export says of an event, on one line."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from ..prepared import Prepared
from ..texts import cut

LONGEST = 500


class EventText(NamedTuple):
    """An event: its number in the computation, its name, its row of the table, and a description."""

    number: int
    name: str
    row: dict[str, Any]
    deed: str


def told(prepared: Prepared) -> Iterator[EventText]:
    """The events in a topological order."""
    c = prepared.c
    rows = prepared.table.take(pa.array(c.row)).to_pylist(maps_as_pydicts="strict")
    for e, row in enumerate(rows):
        deed = row["kind"] if row["message"] is None else f"{row['kind']} {row['message']}"
        if row["label"]:
            deed = row["label"] if row["kind"] == "internal" else f"{deed}: {row['label']}"
        yield EventText(e, c.event(e).id, row, one_line(deed))


def one_line(text: str) -> str:
    return " ".join(cut(text, LONGEST).split()) or "-"
