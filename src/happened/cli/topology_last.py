"""Find out which process failed last, from the journals that are available. A process that was declared
failed, and succeeded by another, must not be started again: its journal is out of date, and the others
refuse it. Start from the journal of the process that failed last (Skeen, 1985).
"""

import argparse

from ..core.errors import CausalityError
from ..core.exit_codes import ExitCode
from .options import local_path, option
from .parser import Parser
from .terminal import print_answer

EPILOG = """\
example:
  happened topology last-to-fail site/lx1.journal --members lx1,lx2       lx2 may have outlived lx1: undecided

exit codes: 0 known, 2 bad usage or input, 3 journals of other members are needed
"""


def add_arguments(parser: Parser) -> None:
    option(parser, "journals JOURNAL", "not in use", type=local_path, nargs="+")
    option(parser, "--members A,B", "all members (default: the owners of the journals)")
    option(parser, "--json")


def run(arguments: argparse.Namespace) -> int:
    from ..net.site_failures import last_of, read_record

    records = [read_record(path) for path in arguments.journals]
    owners = [record.name for record in records]
    if len(set(owners)) < len(owners):
        twice = max(owners, key=owners.count)
        raise CausalityError(f"two of these are journals of {twice!r}: give the newest")
    members = arguments.members.split(",") if arguments.members else owners
    last, awaited = last_of(records, members)
    recorded = {record.name: sorted(record.failed) for record in records}
    told = f"{', '.join(last)} failed last: start from that journal"
    if awaited:
        told = f"not known before the journal of {', '.join(awaited)} is here; perhaps {', '.join(last)}"
    print_answer(arguments, lambda: {"last": last, "awaited": awaited, "recorded": recorded}, [told])
    return ExitCode.UNDECIDED if awaited else ExitCode.HOLDS
