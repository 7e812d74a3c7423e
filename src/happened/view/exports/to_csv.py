"""A table of the events with their vector timestamps, one row each, in a topological order."""

import csv
import io
import json
from collections.abc import Iterator, Sequence

from ..prepared import Prepared
from .event_texts import told

COLUMNS = (
    "computation", "event", "process", "seq", "kind", "message", "to", "time", "label", "level", "before",
    "timestamp", "attributes",
)  # fmt: skip


def write(computations: Sequence[Prepared]) -> Iterator[str]:
    yield _line(COLUMNS)
    for each in computations:
        c, vectors = each.c, each.vectors
        for event in told(each):
            row, e = event.row, event.number
            clock = "" if vectors is None else _clock(c.process_names, vectors[e].tolist())
            before = "" if vectors is None else int(vectors[e].sum()) - 1
            yield _line(
                (
                    row["computation"], event.name, row["process"], row["seq"], row["kind"], row["message"],
                    None if row["to"] is None else json.dumps(row["to"], ensure_ascii=False),
                    row["time"], row["label"], int(each.levels[e]), before, clock,
                    row["attributes"] and json.dumps(row["attributes"], ensure_ascii=False),
                )
            )  # fmt: skip


def _clock(names: Sequence[str], counts: list[int]) -> str:
    known = {name: count for name, count in zip(names, counts, strict=True) if count}
    return json.dumps(known, ensure_ascii=False)


def _line(values: Sequence[object]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(["" if value is None else value for value in values])
    return out.getvalue()
