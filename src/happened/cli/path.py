"""`happened ask path`: how two events are related, and the chain between them."""

import argparse

from .. import ask
from ..ask.history import printable
from ..core.exit_codes import ExitCode
from .asking import chain_lines, history_about, plain
from .terminal import print_answer


def run(arguments: argparse.Namespace) -> int:
    history = history_about(arguments, arguments.first, arguments.second, past_only=True)
    answer = ask.path(history, arguments.first, arguments.second)
    reason = ("concurrent: " if answer.relation == "concurrent" else "") + printable(answer.reason)
    print_answer(arguments, lambda: plain(answer), [reason, *chain_lines(answer.steps)])
    return ExitCode.HOLDS
