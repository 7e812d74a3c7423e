"""One judgement of a whole trace: the order of its deliveries, and what became of every message."""

import os
from dataclasses import dataclass

from .. import trace as traces
from ..core.exit_codes import ExitCode
from .computation import Trace, encode
from .delivery import Deliveries, check_delivery
from .order import DEFAULT_LIMIT, check_order
from .verdict import Verdict, Witness


@dataclass(frozen=True, slots=True)
class Judgement:
    """What `check` found. Printed, it is the sentence and the first witness."""

    verdict: Verdict
    deliveries: Deliveries

    @property
    def holds(self) -> bool | None:
        """False if the order is violated or a delivery is duplicated, misdelivered or of a message that
        was never sent; None if the trace has no deliveries that could show the order; True otherwise."""
        if self._wrong() or self.verdict.holds is False:
            return False
        return self.verdict.holds

    @property
    def sentence(self) -> str:
        wrong = [f"{count:,} {fate}" for fate, count in self._wrong()]
        return f"{self.verdict}; deliveries {', '.join(wrong)}" if wrong else str(self.verdict)

    @property
    def exit_code(self) -> ExitCode:
        if self.holds is None:
            return ExitCode.UNDECIDED
        return ExitCode.HOLDS if self.holds else ExitCode.VIOLATED

    @property
    def witnesses(self) -> tuple[Witness, ...]:
        """One for each violation of the order, as many as were asked for."""
        return self.verdict.witnesses

    def __str__(self) -> str:
        return "\n".join([self.sentence, *map(str, self.witnesses[:1])])

    def _wrong(self) -> list[tuple[str, int]]:
        d = self.deliveries
        fates = (
            ("duplicated", d.duplicated),
            ("misdelivered", d.misdelivered),
            ("never sent", d.never_sent),
        )
        return [(fate, count) for fate, count in fates if count]


def check(
    trace: Trace | str | os.PathLike[str], order: str = "causal", *, limit: int = DEFAULT_LIMIT
) -> Judgement:
    """Judge a trace: what `read_trace` returned, or the path of one.

    `order` is "causal", "fifo" or "total"; at most `limit` witnesses are worked out. A violation is part of
    the answer, not an error; TraceFormatError means that the path holds no trace.
    """
    computations = encode(traces.read(trace) if isinstance(trace, str | os.PathLike) else trace)
    return Judgement(check_order(computations, order, limit=limit), check_delivery(computations))
