"""The vector clocks a source logged, against the ones that follow from its events."""

from typing import ClassVar

import pyarrow as pa

from ..logged_clocks import verify_clocks
from .question import EVENT, Answers, Question, Subject

CLOCKS = pa.schema([*EVENT, pa.field("fault", pa.string(), nullable=False)])
CLOCK_TOTALS = {
    "mismatch": "clock_mismatches",
    "regression": "clock_regressions",
    "impossible": "clock_impossible",
}
"""The faults of a logged clock, and the totals that count them."""


class VerifyClocks(Question):
    """Of computations cut into epochs the Spark room answers, by a join (spark.by_epoch.steps)."""

    name = "verify-clocks"
    help = "the vector clocks a source logged, against the ones that follow from its events"
    tables: ClassVar = {"clocks": CLOCKS}
    totals = (*CLOCK_TOTALS.values(), "clocks_logged")

    def whole(self, subject: Subject, answers: Answers) -> None:
        logged = verify_clocks(subject.computation, subject.vectors, subject.table)
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


QUESTION = VerifyClocks()
