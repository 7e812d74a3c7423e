"""What the commands that ask a trace have in common: their arguments, and how events and times are shown."""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from ..ask import ChainStep, History, Occurrence, load
from ..ask.history import is_answered, printable, why_too_large
from ..core.errors import LocalProtocolError
from ..view.texts import duration
from .spark_sessions import spark_session
from .startup import allow_pandas
from .terminal import note

if TYPE_CHECKING:
    from ..spark.large_traces import LargeTrace


def is_for_spark(arguments: argparse.Namespace) -> bool:
    """Whether a question goes to Spark: if an option says so, otherwise by the size of the trace."""
    path = arguments.trace
    if is_answered(path):
        if arguments.master is not None:
            raise LocalProtocolError(
                f"{path} has the tables of an analysis, which are asked in this process; leave --master out"
            )
        return False
    return not arguments.local and (arguments.master is not None or why_too_large(path) is not None)


@contextmanager
def on_spark(arguments: argparse.Namespace) -> Iterator["LargeTrace"]:
    """The trace to ask on a session that ends with the question."""
    allow_pandas()
    from ..spark.large_traces import asked_on_spark

    with (
        spark_session(arguments.master, "asking", brief=True) as spark,
        asked_on_spark(spark, arguments.trace, arguments.work) as trace,
    ):
        yield trace


def history_about(arguments: argparse.Namespace, *names: str, past_only: bool = False) -> History:
    """The part of the trace that a question about these events needs; prints what is missing in it."""
    if is_for_spark(arguments):
        with on_spark(arguments) as trace:
            history = trace.about(*names)
    else:
        history = load(arguments.trace, names, past_only=past_only, whatever_size=arguments.local)
    warn(history)
    return history


def history_of_request(arguments: argparse.Namespace, request: str) -> tuple[History, str]:
    """The same for a question about a request; also returns the request's full name."""
    if is_for_spark(arguments):
        with on_spark(arguments) as trace:
            history, request = trace.about_request(request)
    else:
        history = load(arguments.trace, whatever_size=arguments.local)
    warn(history)
    return history, request


def warn(history: History) -> None:
    """Print what is missing in the trace, for every answer."""
    if history.quarantined:
        rows = "1 row is" if history.quarantined == 1 else f"{history.quarantined:,} rows are"
        note(f"happened: {rows} quarantined and not looked at; `happened check` says why")


class Clock:
    """Formats times: since the first of the events in an answer."""

    def __init__(self, events: Iterable[Occurrence]) -> None:
        self._begin = min((event.time for event in events if event.time is not None), default=0)

    def at(self, event: Occurrence) -> str:
        return "" if event.time is None else f"+{duration(event.time - self._begin)}"


def shown(events: Sequence[Occurrence]) -> Sequence[str]:
    """Each event as a line, with its computation if there are several."""
    several = len({event.computation for event in events}) > 1
    return [f"{printable(event.computation)}: {event}" if several else str(event) for event in events]


EDGES = {
    "begin": "",
    "process": "then",
    "message": "its message arrived",
    "cause": "caused by that",
    "clock": "later by the clock of the process",
}


def chain_lines(steps: Sequence[ChainStep]) -> Iterator[str]:
    """One line for each event of a chain: when, which, how it came about."""
    clock = Clock(step.event for step in steps)
    times = [clock.at(step.event) for step in steps]
    texts = shown([step.event for step in steps])
    wide, far = max(map(len, times), default=0), max(map(len, texts), default=0)
    for step, time, text in zip(steps, times, texts, strict=True):
        took = "" if step.took is None else f", {duration(step.took)}"
        how = f"  {EDGES[step.edge]}{took}" if step.edge != "begin" else ""
        yield f"  {time:>{wide}}  {text:<{far}}{how}".rstrip() if wide else f"  {text:<{far}}{how}".rstrip()


def plain(value: Any) -> Any:
    """An answer as JSON: objects with named fields; an event has its id too."""
    if isinstance(value, Occurrence):
        return {"event": value.id} | value._asdict()
    if hasattr(value, "_asdict"):
        return {key: plain(member) for key, member in value._asdict().items()}
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, list | tuple):
        return [plain(member) for member in value]
    return value
