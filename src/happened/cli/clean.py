"""`happened clean`: deletes leftovers of interrupted runs, and never finished results."""

import argparse

from ..core.errors import CausalityError
from ..core.exit_codes import ExitCode
from ..trace.atomic import HOURS, remove_abandoned
from .options import option
from .parser import Parser
from .terminal import print_json, stored_path

DESCRIPTION = """\
Delete leftovers of interrupted runs: unfinished outputs and their intermediate files, at a path or URL, in
it or beside it. Finished outputs stay, and so do files that a running process of this machine writes. Files
of other machines stay until nothing was written to them for some hours, since their process may still run.
"""


def add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "path", type=stored_path, metavar="DIR", help="an --out, a --work, or a directory that has outputs"
    )
    parser.add_argument(
        "--hours", type=_hours, default=HOURS, metavar="H", help="of silence (default: %(default)s)"
    )
    option(parser, "--json")


def run(arguments: argparse.Namespace) -> int:
    removed = [str(path) for path in remove_abandoned(arguments.path, arguments.hours)]
    if arguments.json:
        print_json({"removed": removed})
    else:
        for path in removed or [f"nothing: no unfinished directory is left at {arguments.path}"]:
            print(f"removed {path}")
    return ExitCode.HOLDS


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = -1.0
    if not 0 <= hours < float("inf"):
        raise CausalityError(f"--hours needs a number that is not negative, not {text!r}")
    return hours
