"""`happened ask past` and `happened ask future`: what happened before an event, or because of it."""

import argparse
from collections.abc import Iterator

import pyarrow as pa

from .. import ask
from ..ask.history import printable
from ..core.exit_codes import ExitCode
from .asking import Clock, history_about, shown
from .terminal import print_answer

SHOWN = 50
ASKS = {"past": ask.past, "future": ask.future}


def run(arguments: argparse.Namespace) -> int:
    name = arguments.form
    history = history_about(arguments, arguments.event, past_only=name == "past")
    found = ASKS[name](history, arguments.event)
    limit = arguments.limit or (found.num_rows if arguments.json else SHOWN)
    at = max(0, found.num_rows - limit) if name == "past" else 0
    listed = found.slice(at, limit)
    counted = {"events": found.num_rows, "processes": dict(_counts(found))}
    lines = _lines(name, arguments.event, found, listed)
    print_answer(arguments, lambda: counted | {"listed": listed.to_pylist()}, lines)
    return ExitCode.HOLDS


def _counts(found: pa.Table) -> Iterator[tuple[str, int]]:
    counts = found.group_by("process", use_threads=False).aggregate([([], "count_all")])
    yield from sorted(zip(counts["process"].to_pylist(), counts["count_all"].to_pylist(), strict=True))


def _lines(name: str, event: str, found: pa.Table, listed: pa.Table) -> Iterator[str]:
    many = "1 event" if found.num_rows == 1 else f"{found.num_rows:,} events"
    yield f"{many} in the {name} of {printable(event)}"
    for process, count in _counts(found):
        yield f"  {printable(process):<24} {count:>12,}"
    if not listed.num_rows:
        return
    yield ""
    events = [
        ask.Occurrence(
            row["computation"],
            row["process"],
            row["seq"],
            row["kind"],
            row["message"],
            row["label"],
            row["time"],
        )
        for row in listed.to_pylist()
    ]
    left = found.num_rows - len(events)
    if left and name == "past":
        yield f"  … {left:,} more before"
    clock = Clock(events)
    times = [clock.at(each) for each in events]
    for time, text in zip(times, shown(events), strict=True):
        yield f"  {time:>{max(map(len, times))}}  {text}" if any(times) else f"  {text}"
    if left and name == "future":
        yield f"  … {left:,} more after"
