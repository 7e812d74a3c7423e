"""Notes about quarantined rows, for the commands that judge a trace."""

from collections.abc import Sequence

from ..causality.analysis import is_gap
from .terminal import note

SHOWN = 5
"""How many reasons for a quarantine are printed."""


def note_quarantined(reasons: Sequence[str], rows: int) -> None:
    """Print the first reasons why rows were not judged, and what helps."""
    for reason in reasons[:SHOWN]:
        note(f"quarantined: {reason}")
    if any(map(is_gap, reasons)):
        note("if the trace is a window of a longer one, or was filtered, judge it with --gaps renumber")
    if rows:
        note(f"{rows:,} row{'' if rows == 1 else 's'} not judged: correct them, or take the rest as it is")
