"""`happened ask`: questions about single events and requests of a trace. The module of a question is imported
when that question is asked."""

from typing import Any

from .options import add_where, option
from .parser import Parser, add_command, later
from .terminal import positive, stored_path

DESCRIPTION = "Ask a trace about single events and requests."
EVENT_HELP = "`process#seq`, the id of a span, a message, or a label or a part of one"
FORM_EPILOG = """\
`happened help events` explains how events are named. TRACE is a trace, or the directory that `happened
analyze` left, which knows events as process#seq and by their messages.

exit codes: 0 answered, 2 bad input or no such event, 3 undecided"""


class Form:
    """One question: its help texts and its arguments."""

    def __init__(
        self, module: str, help: str, description: str, add: Any, *, epilog: str = FORM_EPILOG
    ) -> None:
        self.help, self.DESCRIPTION, self.EPILOG = help, description, epilog
        self.run, self.add_arguments = later(module), add


def add_arguments(parser: Parser) -> None:
    subparsers = parser.add_subparsers(title="forms", metavar="FORM", required=True)
    for name, form in FORMS.items():
        add_command(subparsers, name, form.help, form).set_defaults(form=name)


def _about_trace(parser: Parser) -> None:
    parser.add_argument(
        "trace", type=stored_path, metavar="TRACE", help="a trace, or the tables of an analysis"
    )
    option(parser, "--json")
    add_where(parser, "5 million events")
    option(parser, "--work")


def _why(parser: Parser) -> None:
    _about_trace(parser)
    parser.add_argument("event", metavar="EVENT", help=EVENT_HELP)
    parser.add_argument("--depth", type=positive, metavar="N", help="show N levels of causes, at any process")


def _path(parser: Parser) -> None:
    _about_trace(parser)
    parser.add_argument("first", metavar="A", help=EVENT_HELP)
    parser.add_argument("second", metavar="B", help="likewise")


def _cone(parser: Parser) -> None:
    _about_trace(parser)
    parser.add_argument("event", metavar="EVENT", help=EVENT_HELP)
    option(parser, "--limit", "the nearest events (default: 50; with --json, all)")


def _influenced(parser: Parser) -> None:
    _about_trace(parser)
    parser.add_argument(
        "request", metavar="REQUEST", help="the id of a request, the beginning of one, or an event of it"
    )
    parser.add_argument(
        "--whom",
        dest="direction",
        action="store_const",
        const="future",
        default="past",
        help="show the requests that it influenced, instead",
    )
    add_clock_order(parser, "of a process that dealt with several computations")
    option(parser, "--limit", "chains", default=10)


def add_clock_order(parser: Any, here: str) -> None:
    parser.add_argument(
        "--clock-order", action="store_true", help=f"let the clock of a process order its events; {here}"
    )


def _critical_path(parser: Parser) -> None:
    _about_trace(parser)
    parser.add_argument("--request", metavar="REQUEST", help="only this request: its id, or an event of it")
    parser.add_argument(
        "--by",
        choices=("service", "process"),
        default="service",
        help="whose time is shown: services' (processes' where none are recorded; default), or processes'",
    )


def _diff(parser: Parser) -> None:
    parser.add_argument("first", type=stored_path, metavar="RUN1", help="a trace")
    parser.add_argument("second", type=stored_path, metavar="RUN2", help="another one")
    option(parser, "--json")


def _unit(parser: Parser) -> None:
    parser.add_argument("path", metavar="TRACE", help="a trace, as `happened check` takes it")
    parser.add_argument("unit", metavar="UNIT", help="MESSAGE>DESTINATION, such as 'p0:1>p2'")
    option(parser, "--computation")
    option(parser, "--json")


UNIT_EPILOG = """\
A unit says that a message was sent to a destination and may not have been delivered there yet:

  happened simulate --processes 4 --messages 40 --units --out run
  happened ask unit run 'p0:1>p2'      message p0:1, destination p2

It is necessary at a process until PC1 it knows that the message was delivered, or PC2 it knows of a later
message to the same destination, which waits for it (Kshemkalyani & Singhal 1998).

exit codes: 0 answered, 2 bad usage or input
"""

FORMS = {
    "why": Form(
        "why",
        "why an event happened, and why so late",
        "The causes of an event as a tree, back to relevant events and to other services, and the chain of "
        "causes that it waited for. In the tree, * marks the cause that was waited for last.",
        _why,
    ),
    "path": Form(
        "path",
        "the causal chain between two events, or why they are concurrent",
        "The chain of causes from one event to the other, whichever happened before; or the word concurrent, "
        "and why. A span or a message stands for its first event as the cause, and its last as the effect.",
        _path,
    ),
    "past": Form(
        "past",
        "all that happened before an event",
        "All that happened before an event: how many events of each process, and the events, nearest last.",
        _cone,
    ),
    "future": Form(
        "past",
        "all that an event happened before",
        "All that an event happened before: how many events of each process, and the events, nearest first.",
        _cone,
    ),
    "influenced": Form(
        "influenced",
        "which requests influenced a request, each with a chain that shows it",
        "The requests that influenced one, through messages, links, or a process that dealt with both. A "
        "request is a value of the attribute `trace`, or a computation where no event has one.",
        _influenced,
    ),
    "critical-path": Form(
        "critical_path",
        "where the time of requests went, by service, and what would be saved",
        "The chain of causes that the last event of a request waited for, with the time at each service and "
        "between them; for many requests the distribution. What would be saved is how much sooner the "
        "requests would end if a service took no time and everything else as long as it did.",
        _critical_path,
    ),
    "diff": Form(
        "diff",
        "what is caused in one run and not in another",
        "What two runs do not have in common: events, and causes between events that both have. An event is "
        "known by its service or process, its kind, its label or message, and, of several like that, by what "
        "led to it and what followed.",
        _diff,
        epilog="exit codes: 0 answered, 2 bad input, or nothing in common",
    ),
    "unit": Form(
        "unit",
        "why messages had to carry a unit of information, and what ended that",
        "Follow one unit of necessary information through a trace: which processes had to know it, from when "
        "until when, on which messages it had to travel, and what made it redundant.",
        _unit,
        epilog=UNIT_EPILOG,
    ),
}
