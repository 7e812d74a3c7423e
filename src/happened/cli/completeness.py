"""--complete and --cut-off: whether a trace has all that happened, for the commands that judge one."""

import argparse


def add_completeness(parser: argparse.ArgumentParser) -> None:
    either = parser.add_mutually_exclusive_group()
    either.add_argument(
        "--complete",
        action="store_true",
        default=None,
        help="the trace has all that happened: a message that is never delivered where one sent causally "
        "after it was, violates causal order (default for what `happened simulate` made)",
    )
    either.add_argument(
        "--cut-off",
        dest="complete",
        action="store_false",
        help="it may end too soon: such a message leaves causal order undecided (default for other traces)",
    )
