"""The vector clocks a source logged, against the ones that follow from its events."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa

from ..epochs import Frontier, Stamped
from ..linearization import Ints
from ..logged_clocks import compare_logged, verify_clocks
from .question import EVENT, Answers, Arrays, EpochView, Question, Subject

CLOCKS = pa.schema([*EVENT, pa.field("fault", pa.string(), nullable=False)])
CLOCK_TOTALS = {
    "mismatch": "clock_mismatches",
    "regression": "clock_regressions",
    "impossible": "clock_impossible",
}
"""The faults of a logged clock, and the totals that count them."""


class VerifyClocks(Question):
    """Of computations cut into epochs, the Spark room compares each clock with the one logged before it."""

    name = "verify-clocks"
    help = "compares the vector clocks that a source logged with those that follow from its events"
    tables: ClassVar = {"clocks": CLOCKS}
    totals = (*CLOCK_TOTALS.values(), "clocks_logged")

    def whole(self, subject: Subject, answers: Answers) -> None:
        logged = verify_clocks(subject.computation, subject.columns(), subject.table)
        answers.totals["clocks_logged"] += logged.logged
        found = {
            "mismatch": logged.mismatches,
            "regression": logged.regressions,
            "impossible": logged.impossible,
        }
        for fault, events in found.items():
            answers.totals[CLOCK_TOTALS[fault]] += len(events)
            columns = [*subject.names_of(events), pa.repeat(fault, len(events))]
            answers.add("clocks", pa.table(columns, schema=CLOCKS))

    def look(self, view: EpochView, stamped: Stamped, frontier: Frontier) -> Arrays:
        rows = stamped.rows(frontier, view.logged[:, 0], view.logged[:, 1])
        mismatch, impossible = compare_logged(
            view.logged, view.clocks, stamped.vectors, rows, stamped.columns, view.counts
        )
        return {"mismatch": mismatch, "impossible": impossible}

    def tell(self, view: EpochView, seen: Sequence[Arrays], answers: Answers) -> None:
        answers.totals["clocks_logged"] += len(view.logged)
        for fault in ("mismatch", "impossible"):
            found = np.unique(np.concatenate([each[fault] for each in seen]))
            add_clock_faults(view, fault, view.logged[found], answers)


def add_clock_faults(view: EpochView, fault: str, events: Ints, answers: Answers) -> None:
    """Tell of a fault of the clocks logged at these events, given by process and seq."""
    columns = [*view.event_columns(events[:, 0], events[:, 1]), pa.repeat(fault, len(events))]
    answers.add("clocks", pa.table(columns, schema=CLOCKS))
    answers.totals[CLOCK_TOTALS[fault]] += len(events)


QUESTION = VerifyClocks()
