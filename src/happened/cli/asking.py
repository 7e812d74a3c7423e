"""What the commands that ask a trace have in common: their arguments, and how events and times are shown."""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from ..ask import History, Occurrence, Step
from ..ask.history import printable
from ..report.drawings import duration
from ..trace.store import any_path
from .terminal import note

EVENT_HELP = "`process#seq`, the id of a span, a message, or a label or a part of one"
EPILOG = """\
Events are named as you have them: process#seq (or computation:process#seq), a span's id or trace:span, a
message, a label or a part of one; a name that fits several is answered with all of them. TRACE is a trace, or
the directory that `happened analyze` or `happened check --out` left, which knows events as process#seq and by
their messages.

exit codes: 0 answered, 2 bad input or no such event, 3 undecided"""


def add_question(subparsers: Any, name: str, help: str, description: str) -> argparse.ArgumentParser:
    """The parser of a command that asks one trace."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name,
        help=help,
        description=description,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("trace", type=any_path, metavar="TRACE", help="a trace, or the tables of an analysis")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of text")
    return parser


def warn(history: History) -> None:
    """Say what no answer knows of."""
    if history.quarantined:
        rows = "1 row is" if history.quarantined == 1 else f"{history.quarantined:,} rows are"
        note(f"happened: {rows} quarantined and not looked at; `happened check` says why")


class Clock:
    """Times as they are shown: since the first of the events that an answer tells."""

    def __init__(self, events: Iterable[Occurrence]) -> None:
        self._begin = min((event.time for event in events if event.time is not None), default=0)

    def at(self, event: Occurrence) -> str:
        return "" if event.time is None else f"+{duration(event.time - self._begin)}"


def shown(events: Sequence[Occurrence]) -> Sequence[str]:
    """Each event as a line, with its computation where they are of several."""
    several = len({event.computation for event in events}) > 1
    return [f"{printable(event.computation)}: {event}" if several else str(event) for event in events]


EDGES = {
    "begin": "",
    "process": "then",
    "message": "its message arrived",
    "cause": "caused by that",
    "clock": "later by the clock of the process",
}


def chain_lines(steps: Sequence[Step]) -> Iterator[str]:
    """One line for each event of a chain: when, which, how it came about."""
    clock = Clock(step.event for step in steps)
    times = [clock.at(step.event) for step in steps]
    texts = shown([step.event for step in steps])
    wide, far = max(map(len, times)), max(map(len, texts))
    for step, time, text in zip(steps, times, texts, strict=True):
        took = "" if step.took is None else f", {duration(step.took)}"
        how = f"  {EDGES[step.edge]}{took}" if step.edge != "begin" else ""
        yield f"  {time:>{wide}}  {text:<{far}}{how}".rstrip() if wide else f"  {text:<{far}}{how}".rstrip()


def plain(value: Any) -> Any:
    """An answer as JSON has it: objects with named fields; an event has its id too."""
    if isinstance(value, Occurrence):
        return {"event": value.id} | value._asdict()
    if hasattr(value, "_asdict"):
        return {key: plain(member) for key, member in value._asdict().items()}
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, list | tuple):
        return [plain(member) for member in value]
    return value
