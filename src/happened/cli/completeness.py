"""--complete, --cut-off, --gaps: whether a trace has all that happened, for the commands that judge one."""

import argparse
from collections.abc import Sequence

from ..causality.computation import GAPS, REFUSE
from ..causality.quarantine import is_gap
from .terminal import note

SHOWN = 5
"""Reasons for a quarantine that are told."""


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


def add_gaps(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--gaps",
        choices=GAPS,
        default=REFUSE,
        help="renumber: the trace is a window of a longer one, or was filtered, and seq has gaps; what it "
        "lacks is unknown, not false (default: a computation with a gap is quarantined)",
    )


def note_quarantined(reasons: Sequence[str], rows: int) -> None:
    """Say why rows were not judged, of the first reasons, and how to go on."""
    for reason in reasons[:SHOWN]:
        note(f"quarantined: {reason}")
    if any(map(is_gap, reasons)):
        note("if the trace is a window of a longer one, or was filtered, judge it with --gaps renumber")
    if rows:
        note(f"{rows:,} row{'' if rows == 1 else 's'} not judged: correct them, or take the rest as it is")
