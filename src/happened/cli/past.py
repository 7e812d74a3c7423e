"""`happened past` and `happened future`: all that happened before an event, or after it because of it."""

import argparse
from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from .. import ask
from ..ask.history import printable
from ..core.exit_codes import ExitCode
from .asking import EVENT_HELP, Clock, add_question, history_about, shown
from .terminal import positive, print_json

SHOWN = 50
ASKS = {"past": ask.past, "future": ask.future}


def add_parser(subparsers: Any) -> None:
    words = {
        "past": ("all that happened before an event", "nearest last"),
        "future": ("all that an event happened before", "nearest first"),
    }
    for name, (help, order) in words.items():
        description = (
            f"{help[0].upper()}{help[1:]}: how many events of each process, and the events, {order}."
        )
        parser = add_question(subparsers, name, help, description)
        parser.add_argument("event", metavar="EVENT", help=EVENT_HELP)
        parser.add_argument(
            "--limit",
            type=positive,
            metavar="N",
            help=f"events that are listed, the nearest ones (default: {SHOWN}; with --json, all)",
        )
        parser.set_defaults(run=partial(run, name))


def run(name: str, arguments: argparse.Namespace) -> int:
    history = history_about(arguments, arguments.event, past_only=name == "past")
    found = ASKS[name](history, arguments.event)
    limit = arguments.limit or (found.num_rows if arguments.json else SHOWN)
    at = max(0, found.num_rows - limit) if name == "past" else 0
    listed = found.slice(at, limit)
    if arguments.json:
        counts = dict(_counts(found))
        print_json({"events": found.num_rows, "processes": counts, "listed": listed.to_pylist()})
    else:
        print("\n".join(_lines(name, arguments.event, found, listed)))
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
