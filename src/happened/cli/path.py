"""`happened path`: how two events are related, and the chain between them."""

import argparse
from typing import Any

from .. import ask
from ..ask.history import printable
from ..core.exit_codes import ExitCode
from .asking import EVENT_HELP, add_question, chain_lines, history_about, plain
from .terminal import print_json


def add_parser(subparsers: Any) -> None:
    parser = add_question(
        subparsers,
        "path",
        "the causal chain between two events, or why they are concurrent",
        "The chain of causes from one event to the other, whichever happened before; or the word concurrent, "
        "and why. A span or a message stands for its first event as the cause, and its last as the effect.",
    )
    parser.add_argument("first", metavar="A", help=EVENT_HELP)
    parser.add_argument("second", metavar="B", help="likewise")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    history = history_about(arguments, arguments.first, arguments.second, past_only=True)
    answer = ask.path(history, arguments.first, arguments.second)
    if arguments.json:
        print_json(plain(answer))
    elif answer.relation == "concurrent":
        print(f"concurrent: {printable(answer.reason)}")
    else:
        print("\n".join([printable(answer.reason), *(chain_lines(answer.steps) if answer.steps else ())]))
    return ExitCode.HOLDS
