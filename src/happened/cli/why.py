"""`happened ask why`: shows the causes of an event, and which it waited for last."""

import argparse
from collections.abc import Iterator

from .. import ask
from ..ask.causes import ABOVE, DEEP, FIRST
from ..ask.history import printable
from ..core.exit_codes import ExitCode
from ..view.texts import duration
from .asking import Clock, chain_lines, history_about, plain
from .terminal import print_answer

ENDS = {ABOVE: "told above", FIRST: "the first event there", DEEP: "--depth shows more"}


def run(arguments: argparse.Namespace) -> int:
    history = history_about(arguments, arguments.event, past_only=True)
    answer = ask.why(history, arguments.event, depth=arguments.depth)
    print_answer(arguments, lambda: plain(answer), _lines(answer))
    return ExitCode.HOLDS


def _lines(answer: ask.Why) -> Iterator[str]:
    told = [answer.event, *(cause.event for cause in _every(answer.causes)), *(s.event for s in answer.late)]
    clock = Clock(told)
    yield f"{answer.event}  {clock.at(answer.event)}".rstrip()
    if answer.is_arrival:
        yield _arrival(answer)
    if not answer.causes:
        yield "nothing happened before it"
        return
    yield from _tree(answer.causes, clock, "")
    if answer.cut:
        yield "… and more, which are left out"
    yield ""
    if not answer.late:
        yield "why so late: it has no time"
        return
    first, last = answer.late[0].event, answer.late[-1].event
    yield f"why so late: {duration((last.time or 0) - (first.time or 0))} since {printable(first.id)}"
    yield from chain_lines(answer.late)


def _arrival(answer: ask.Why) -> str:
    """Why a receive has no causes: its message takes effect only when it is delivered."""
    reason = "its send is no cause of it: a message takes effect when it is delivered"
    if answer.delivery is None:
        return f"{reason}, and this one was not"
    return f"{reason}, by {printable(answer.delivery.id)}; ask for that"


def _every(causes: tuple[ask.Cause, ...]) -> Iterator[ask.Cause]:
    for cause in causes:
        yield cause
        yield from _every(cause.causes)


def _tree(causes: tuple[ask.Cause, ...], clock: Clock, indent: str) -> Iterator[str]:
    for cause in causes:
        is_last = cause is causes[-1]
        yield f"{indent}{'└─' if is_last else '├─'}{'*' if cause.last else ' '}{_cause(cause, clock)}"
        yield from _tree(cause.causes, clock, indent + ("   " if is_last else "│  "))


def _cause(cause: ask.Cause, clock: Clock) -> str:
    how = {"process": "before it there", "message": "sent its message", "cause": "a cause of it"}[cause.edge]
    if cause.between:
        how += ", 1 event between" if cause.between == 1 else f", {cause.between:,} events between"
    if cause.waited is not None:
        how += f", {duration(cause.waited)} earlier"
    ends = f" ({ENDS[cause.end]})" if cause.end in ENDS else ""
    return "  ".join(filter(None, (str(cause.event), clock.at(cause.event), how))) + ends
