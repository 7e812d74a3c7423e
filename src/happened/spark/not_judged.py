"""Errors and warnings about rows that could not be judged, so that an empty answer never hides bad input.

Rows that are not events, computations whose rows contradict the contract of a trace, and causes that are not
in the frame are quarantined (causality.analysis). A function that returns one table then raises NotJudged,
or it warns and returns the answers for the other rows; the caller chooses by `on_bad`.
"""

import sys
import warnings
from collections.abc import Iterator

from pyspark.sql import DataFrame

from ..causality.analysis import is_gap
from ..core.errors import CausalityError

RAISE, LEAVE_OUT = "raise", "quarantine"
ON_BAD = (RAISE, LEAVE_OUT)

MOST_REASONS = 20
"""The most reasons that an exception carries."""

SHOWN = 3
"""The most reasons that the exception's text names."""


class NotJudged(CausalityError):
    """Part of the input was quarantined, so that an answer would not cover all of it.

    rows          how many rows, and recorded causes of other rows, were not judged
    computations  how many computations these rows belong to
    reasons       the first (computation, reason) pairs by name; at most MOST_REASONS
    renumbers     whether the function that raised it takes gaps="renumber"
    """

    def __init__(
        self, rows: int, computations: int, reasons: tuple[tuple[str, str], ...], renumbers: bool = True
    ) -> None:
        self.rows = rows
        self.computations = computations
        self.reasons = reasons
        self.renumbers = renumbers
        super().__init__("\n".join(self._lines()))

    def __reduce__(self) -> tuple[type["NotJudged"], tuple[object, ...]]:
        return type(self), (self.rows, self.computations, self.reasons, self.renumbers)

    def _lines(self) -> Iterator[str]:
        more = self.computations - len({computation for computation, _ in self.reasons[:SHOWN]})
        yield f"{_rows(self.rows)} of {_computations(self.computations)} could not be judged:"
        for name, reason in self.reasons[:SHOWN]:
            yield f"  computation {name!r}: {reason}"
        if more > 0:
            yield f"  and {_computations(more)} more"
        if self.renumbers and any(is_gap(reason) for _, reason in self.reasons):
            yield 'if the frame is a window of a longer trace, or was filtered, give gaps="renumber"'
        yield 'correct these rows; or give on_bad="quarantine" for the answers about the others'


def check_on_bad(on_bad: str) -> None:
    if on_bad not in ON_BAD:
        raise CausalityError(f"on_bad can be {', '.join(ON_BAD)}; not {on_bad!r}")


def raise_or_warn(on_bad: str, rows: int, quarantine: DataFrame) -> None:
    """Raise NotJudged or warn, as `on_bad` says, if rows were quarantined; `quarantine` has the reasons."""
    if on_bad == LEAVE_OUT:
        _warn(rows)
        return
    first = quarantine.orderBy("computation", "reason").limit(MOST_REASONS).collect()
    computations = quarantine.select("computation").distinct().count()
    raise NotJudged(rows, computations, tuple((row["computation"], row["reason"]) for row in first))


def _warn(rows: int) -> None:
    """Warn; the warning shows the line of the user's code that called this package."""
    caller, level = sys._getframe(1), 2
    while caller.f_back is not None and caller.f_globals.get("__name__", "").startswith("happened."):
        caller, level = caller.f_back, level + 1
    warnings.warn(
        f"{_rows(rows)} could not be judged, and the answers are about the others; "
        "happened.spark.quarantine(…) of what was returned has them and why",
        stacklevel=level,
    )


def _rows(count: int) -> str:
    return "1 row or cause" if count == 1 else f"{count:,} rows or causes"


def _computations(count: int) -> str:
    return "1 computation" if count == 1 else f"{count:,} computations"
