"""`happened topology last-to-fail`: says whose journal to start from if all members of a group have
failed."""

import argparse

from ..core.errors import CausalityError
from ..core.exit_codes import ExitCode
from .options import option
from .parser import Parser
from .terminal import local_path, print_json

DESCRIPTION = """\
Find out which process failed last, from the journals that are available. A process that was declared
failed, and succeeded by another, must not be started again: its journal is out of date, and the others
refuse it. Start from the journal of the process that failed last (Skeen, 1985).
"""
EPILOG = """\
example:
  happened topology last-to-fail site/lx1.journal --members lx1,lx2       lx2 may have outlived lx1: undecided

exit codes: 0 known, 2 bad usage or input, 3 journals of other members are needed
"""


def add_arguments(parser: Parser) -> None:
    parser.add_argument("journals", type=local_path, nargs="+", metavar="JOURNAL", help="not in use")
    parser.add_argument("--members", metavar="A,B", help="all members (default: the owners of the journals)")
    option(parser, "--json")


def run(arguments: argparse.Namespace) -> int:
    from ..net.site_failures import last_of, read_record

    records = [read_record(path) for path in arguments.journals]
    owners = [record.name for record in records]
    if len(set(owners)) < len(owners):
        raise CausalityError(
            f"two of these are journals of {max(owners, key=owners.count)!r}: give the newest"
        )
    members = arguments.members.split(",") if arguments.members else owners
    last, awaited = last_of(records, members)
    if arguments.json:
        recorded = {record.name: sorted(record.failed) for record in records}
        print_json({"last": last, "awaited": awaited, "recorded": recorded})
    elif awaited:
        print(f"not known before the journal of {', '.join(awaited)} is here; perhaps {', '.join(last)}")
    else:
        print(f"{', '.join(last)} failed last: start from that journal")
    return ExitCode.UNDECIDED if awaited else ExitCode.HOLDS
