"""`happened ask path`: how two events are related, and the chain between them."""

import argparse

from .. import ask
from ..ask.history import printable
from ..core.exit_codes import ExitCode
from .asking import chain_lines, history_about, plain
from .terminal import print_json


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
