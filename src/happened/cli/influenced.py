"""`happened ask influenced`: the requests that influenced a request, or that it influenced."""

import argparse
from collections.abc import Iterator

from .. import ask
from ..ask.history import printable
from ..core.errors import LocalProtocolError
from ..core.exit_codes import ExitCode
from .asking import chain_lines, history_of_request, is_for_spark, plain
from .terminal import print_answer


def run(arguments: argparse.Namespace) -> int:
    if arguments.clock_order and is_for_spark(arguments):
        raise LocalProtocolError(
            "--clock-order needs all computations in one process: give --local, which takes the memory that "
            "the trace takes, or a part of the trace"
        )
    history, request = history_of_request(arguments, arguments.request)
    answer = ask.influenced(history, request, direction=arguments.direction, by_clock=arguments.clock_order)
    print_answer(arguments, lambda: plain(answer), _lines(answer, arguments.limit))
    return ExitCode.HOLDS if answer.requests > 1 else ExitCode.UNDECIDED


def _lines(answer: ask.Influences, limit: int) -> Iterator[str]:
    name = printable(answer.request) or "the computation without a name"
    others = answer.requests - 1
    if not others:
        yield f"undecided: {name} is the only request of the trace"
        return
    verb = "influenced it" if answer.direction == "past" else "it influenced"
    yield f"{name} ({answer.root}): {len(answer.others):,} of {others:,} other requests {verb}"
    for other in answer.others[:limit]:
        yield ""
        yield f"{printable(other.request)} ({other.root}), with {other.events:,} of its events:"
        yield from chain_lines(other.chain)
    if len(answer.others) > limit:
        yield f"\n… and {len(answer.others) - limit:,} more; --limit shows them"
