"""Delete leftovers of interrupted runs: unfinished outputs and their intermediate files, at a path or URL, in
it or beside it. Finished outputs stay, and so do files that a running process of this machine writes. Files
of other machines stay until nothing was written to them for some hours, since their process may still run.
"""

import argparse

from ..core.errors import CausalityError
from ..trace.atomic import HOURS, remove_abandoned
from .options import option, stored_path
from .parser import Parser
from .terminal import print_answer


def add_arguments(parser: Parser) -> None:
    option(parser, "path DIR", "an --out, a --work, or a directory that has outputs", type=stored_path)
    option(parser, "--hours H", "of silence", type=_hours, default=HOURS)
    option(parser, "--json")


def run(arguments: argparse.Namespace) -> None:
    removed = [str(path) for path in remove_abandoned(arguments.path, arguments.hours)]
    told = removed or [f"nothing: no unfinished directory is left at {arguments.path}"]
    print_answer(arguments, lambda: {"removed": removed}, (f"removed {path}" for path in told))


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = -1.0
    if not 0 <= hours < float("inf"):
        raise CausalityError(f"--hours needs a number that is not negative, not {text!r}")
    return hours
