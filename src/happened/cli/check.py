"""Judge a recorded trace: did deliveries keep the order, did every message arrive once and only where it was
sent, did messages carry no more than necessary?
"""

from .options import add_completeness, add_gaps, add_judged_order, option
from .parser import Parser, later

EPILOG = "exit codes: 0 holds, 1 violated, 2 not a trace, or parts of it quarantined, 3 undecided"
NECESSARY = (
    "work out the information that every message had to carry, and compare it with the recorded units if the "
    "trace has them"
)

run = later("checking")


def add_arguments(parser: Parser) -> None:
    about = "a run of `happened simulate --out`, a .parquet file or a directory of them, or JSON lines"
    option(parser, "path TRACE", about)
    add_judged_order(parser)
    add_completeness(parser)
    add_gaps(parser)
    option(parser, "--necessary", NECESSARY)
    option(parser, "--json")
