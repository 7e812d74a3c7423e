"""`happened influenced`: the requests that influenced a request, or that it influenced."""

import argparse
from collections.abc import Iterator
from typing import Any

from .. import ask
from ..ask.history import printable
from ..core.errors import LocalProtocolError
from ..core.exit_codes import ExitCode
from .asking import add_question, chain_lines, history_of_request, is_for_spark, plain
from .terminal import positive, print_json

SHOWN = 10


def add_parser(subparsers: Any) -> None:
    parser = add_question(
        subparsers,
        "influenced",
        "which requests influenced a request, each with a chain that shows it",
        "The requests that influenced one, through messages, links, or a process that dealt with both. A "
        "request is a value of the attribute `trace`, or a computation where no event has one.",
    )
    parser.add_argument(
        "request", metavar="REQUEST", help="the id of a request, the beginning of one, or an event of it"
    )
    parser.add_argument(
        "--whom", dest="direction", action="store_const", const="future", default="past",
        help="the requests that it influenced, instead",
    )  # fmt: skip
    parser.add_argument(
        "--by-clock",
        action="store_true",
        help="of a process that dealt with several computations, take their order from its own clock",
    )
    parser.add_argument(
        "--limit", type=positive, default=SHOWN, metavar="N", help=f"chains that are shown (default: {SHOWN})"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.by_clock and is_for_spark(arguments):
        raise LocalProtocolError(
            "--by-clock needs all computations in one process: give --local, which takes the memory that the "
            "trace takes, or a part of the trace"
        )
    history, request = history_of_request(arguments, arguments.request)
    answer = ask.influenced(history, request, direction=arguments.direction, by_clock=arguments.by_clock)
    if arguments.json:
        print_json(plain(answer))
    else:
        print("\n".join(_lines(answer, arguments.limit)))
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
