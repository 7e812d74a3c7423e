"""`happened check`: judges a recorded trace without knowing which protocol made it."""

from .options import add_completeness, add_gaps, add_judged_order, option
from .parser import Parser, later

DESCRIPTION = (
    "Judge a recorded trace: did deliveries keep the order, did every message arrive once and only where "
    "it was sent, did messages carry no more than necessary?"
)
EPILOG = "exit codes: 0 holds, 1 violated, 2 not a trace, or parts of it quarantined, 3 undecided"


run = later("checking")


def add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "path",
        metavar="TRACE",
        help="a run of `happened simulate --out`, a .parquet file or a directory of them, or JSON lines",
    )
    add_judged_order(parser)
    add_completeness(parser)
    add_gaps(parser)
    parser.add_argument(
        "--necessary",
        action="store_true",
        help="work out the information that every message had to carry, and compare it with the recorded "
        "units if the trace has them",
    )
    option(parser, "--json")
