"""A table of the events with their vector timestamps, one row each, in a topological order.

Texts are quoted and numbers are not; lists and maps are JSON. `event`, `level`, `before` (how many happened
before it) and `timestamp` are ours, the other columns those of the trace: `happened import` reads it back.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from ...trace.schema import SCHEMA
from ..prepared import Prepared
from .event_texts import told

COLUMNS = ("event", *SCHEMA.names, "level", "before", "timestamp")


def write(computations: Sequence[Prepared]) -> Iterator[str]:
    yield ",".join(COLUMNS) + "\n"
    for each in computations:
        c, vectors = each.c, each.vectors
        for event in told(each):
            e = event.number
            clock = None if vectors is None else _clock(c.process_names, vectors[e].tolist())
            before = None if vectors is None else int(vectors[e].sum()) - 1
            row = (
                event.name,
                *(event.row[name] for name in SCHEMA.names),
                int(each.levels[e]),
                before,
                clock,
            )
            yield ",".join(map(_cell, row)) + "\n"


def _clock(names: Sequence[str], counts: list[int]) -> dict[str, int]:
    return {name: count for name, count in zip(names, counts, strict=True) if count}


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return '"' + text.replace('"', '""') + '"'
