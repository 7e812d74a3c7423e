"""Ask a trace about single events and requests."""

from collections.abc import Callable

from .options import EVENT, add_clock_order, add_where, option, positive, stored_path
from .parser import Parser, Run, add_command, add_forms, later

EPILOG = """\
`happened help events` explains how events are named. TRACE is a trace, or the directory that `happened
analyze` left, which knows events as process#seq and by their messages.

exit codes: 0 answered, 2 bad input or no such event, 3 undecided"""
UNIT_EPILOG = """\
A unit says that a message was sent to a destination and may not have been delivered there yet:

  happened simulate --processes 4 --messages 40 --units --out run
  happened ask unit run 'p0:1>p2'      message p0:1, destination p2

It is necessary at a process until PC1 it knows that the message was delivered, or PC2 it knows of a later
message to the same destination, which waits for it (Kshemkalyani & Singhal 1998).

exit codes: 0 answered, 2 bad usage or input
"""


class AskForm:
    """A question: what `--help` says of it, its arguments, and the function that answers it."""

    def __init__(
        self, help: str, description: str, run: Run, add: Callable[[Parser], None], epilog: str = EPILOG
    ) -> None:
        self.help, self.__doc__, self.EPILOG = help, description, epilog
        self.run, self.add_arguments = run, add


def add_arguments(parser: Parser) -> None:
    subparsers = add_forms(parser)
    for name, form in FORMS.items():
        add_command(subparsers, name, form, form.help).set_defaults(form=name)


def _about_trace(parser: Parser) -> None:
    option(parser, "trace TRACE", "a trace, or the tables of an analysis", type=stored_path)
    option(parser, "--json")
    add_where(parser, "5 million events")
    option(parser, "--work")


def _why(parser: Parser) -> None:
    _about_trace(parser)
    option(parser, "event EVENT", EVENT)
    option(parser, "--depth N", "show N levels of causes, at any process", type=positive)


def _path(parser: Parser) -> None:
    _about_trace(parser)
    option(parser, "first A", EVENT)
    option(parser, "second B", "likewise")


def _cone(parser: Parser) -> None:
    _about_trace(parser)
    option(parser, "event EVENT", EVENT)
    option(parser, "--limit", "the nearest events (default: 50; with --json, all)")


def _influenced(parser: Parser) -> None:
    _about_trace(parser)
    option(parser, "request REQUEST", "the id of a request, the beginning of one, or an event of it")
    stored = {"dest": "direction", "action": "store_const", "const": "future", "default": "past"}
    option(parser, "--whom", "show the requests that it influenced, instead", **stored)
    add_clock_order(parser, "of a process that dealt with several computations")
    option(parser, "--limit", "chains", default=10)


def _critical_path(parser: Parser) -> None:
    _about_trace(parser)
    option(parser, "--request REQUEST", "only this request: its id, or an event of it")
    about = "whose time is shown: services' (processes' where none are recorded; default), or processes'"
    option(parser, "--by", about, choices=("service", "process"), default="service")


def _diff(parser: Parser) -> None:
    option(parser, "first RUN1", "a trace", type=stored_path)
    option(parser, "second RUN2", "another one", type=stored_path)
    option(parser, "--json")


def _unit(parser: Parser) -> None:
    option(parser, "path TRACE", "a trace, as `happened check` takes it")
    option(parser, "unit UNIT", "MESSAGE>DESTINATION, such as 'p0:1>p2'")
    option(parser, "--computation")
    option(parser, "--json")


FORMS = {
    "why": AskForm(
        "why an event happened, and why so late",
        "The causes of an event as a tree, back to relevant events and to other services, and the chain of "
        "causes that it waited for. In the tree, * marks the cause that was waited for last.",
        later("asking", "why"), _why,
    ),
    "path": AskForm(
        "the causal chain between two events, or why they are concurrent",
        "The chain of causes from one event to the other, whichever happened before; or the word concurrent, "
        "and why. A span or a message stands for its first event as the cause, and its last as the effect.",
        later("asking", "path"), _path,
    ),
    "past": AskForm(
        "all that happened before an event",
        "All that happened before an event: how many events of each process, and the events, nearest last.",
        later("asking", "cone"), _cone,
    ),
    "future": AskForm(
        "all that an event happened before",
        "All that an event happened before: how many events of each process, and the events, nearest first.",
        later("asking", "cone"), _cone,
    ),
    "influenced": AskForm(
        "which requests influenced a request, each with a chain that shows it",
        "The requests that influenced one, through messages, links, or a process that dealt with both. A "
        "request is a value of the attribute `trace`, or a computation where no event has one.",
        later("asking", "influenced"), _influenced,
    ),
    "critical-path": AskForm(
        "where the time of requests went, by service, and what would be saved",
        "The chain of causes that the last event of a request waited for, with the time at each service and "
        "between them; for many requests the distribution. What would be saved is how much sooner the "
        "requests would end if a service took no time and everything else as long as it did.",
        later("asking", "critical_path"), _critical_path,
    ),
    "diff": AskForm(
        "what is caused in one run and not in another",
        "What two runs do not have in common: events, and causes between events that both have. An event is "
        "known by its service or process, its kind, its label or message, and, of several like that, by what "
        "led to it and what followed.",
        later("asking", "diff"), _diff, "exit codes: 0 answered, 2 bad input, or nothing in common",
    ),
    "unit": AskForm(
        "why messages had to carry a unit of information, and what ended that",
        "Follow one unit of necessary information through a trace: which processes had to know it, from when "
        "until when, on which messages it had to travel, and what made it redundant.",
        later("asking", "unit"), _unit, UNIT_EPILOG,
    ),
}  # fmt: skip
