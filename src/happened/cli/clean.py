"""`happened clean`: remove what was abandoned, and never what is finished."""

import argparse
from typing import Any

from ..core.errors import CausalityError
from ..core.exit_codes import ExitCode
from ..trace.store import any_path
from ..trace.unfinished import HOURS, remove_abandoned
from .terminal import print_json

DESCRIPTION = """\
Remove what runs left that died: outputs that are not whole, and their intermediates, at a path or URL, in it
or beside it. What is finished, and what a living process of this machine writes, stays. Whether a process of
another machine lives cannot be known: what it writes stays until nothing was written for some hours.
"""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "clean", help="remove what runs left that did not finish", description=DESCRIPTION
    )
    parser.add_argument(
        "path", type=any_path, metavar="DIR", help="what --out or --work was, or where outputs lie"
    )
    parser.add_argument(
        "--hours", type=_hours, default=HOURS, metavar="H", help="of silence; default: %(default)s"
    )
    parser.add_argument("--json", action="store_true", help="print what was removed as JSON")
    parser.set_defaults(run=run)


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
