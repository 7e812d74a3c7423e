"""One computation that is cut into epochs, from its events to its part of every table.

In    its events, in any order; the questions
Out   its parts of their tables, and of quarantine, under `folder`
Cost  see epoch_layout, stamping, walks; what the layout keeps on disk meanwhile is removed at the end

If it turns out not to be a computation, it is quarantined with the reason and leaves no other part.
"""

import math
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from ...causality.questions import QUARANTINE, Question
from ...core.errors import TraceFormatError
from ..storage import write_part
from .epoch_layout import lay_out
from .stamping import stamp
from .steps import STEPS, Laid
from .walks import walk

WHOLE_EVENTS = 200_000
"""A computation with more events is cut into epochs."""

CELLS_PER_EPOCH = 20_000_000
"""Events x processes of an epoch: 80 MB of vectors in a task."""

Progress = Callable[[str], object]


@dataclass(frozen=True)
class LargeComputation:
    """files   that hold the events and nothing that was quarantined; none if no files do"""

    events: DataFrame
    name: str
    size: int
    folder: Path
    part: str
    questions: Sequence[Question]
    timestamps: str
    epoch_events: int | None
    progress: Progress
    files: Sequence[str] = ()

    def run(self) -> Counter[str]:
        store = self.folder / ".work" / self.part
        try:
            return self._run(store)
        except TraceFormatError as error:
            for table in (table for question in self.questions for table in question.tables):
                for part in (self.folder / table).glob(f"{self.part}*.parquet"):
                    part.unlink()
            self._quarantine([str(error)])
            return Counter({"quarantined": self.size})
        finally:
            shutil.rmtree(store, ignore_errors=True)

    def _run(self, store: Path) -> Counter[str]:
        spark = self.events.sparkSession
        per_epoch = self.epoch_events or self._epoch_events()
        self.progress(f"laying out {self.size:,} events, about {math.ceil(self.size / per_epoch)} epochs")
        layout = lay_out(spark, self.events, self.name, store, per_epoch=per_epoch, files=self.files)
        totals = Counter(layout.totals)
        of_stamps = [question for question in self.questions if question.needs_stamps]
        if of_stamps:
            self.progress(f"stamping {layout.epochs} epochs")
            totals += stamp(spark, layout, self.folder, of_stamps, self.timestamps, self.progress)
        self.progress("walks over the epochs")
        totals += walk(spark, layout, self.folder, self.questions, self.timestamps)
        has_full = self.timestamps == "full" and any("stamps" in q.tables for q in self.questions)
        laid = Laid(self.events, layout, self.folder, self.folder if has_full else None)
        for question in self.questions:
            if question.name in STEPS:
                self.progress(question.help)
                totals += STEPS[question.name](laid)
        self._quarantine(layout.quarantined)
        totals["computations"] += 1
        return totals

    def _epoch_events(self) -> int:
        processes = max(1, self.events.select("process").distinct().count())
        return max(1000, min(WHOLE_EVENTS, CELLS_PER_EPOCH // processes))

    def _quarantine(self, reasons: list[str]) -> None:
        rows = [{"computation": self.name, "reason": reason} for reason in reasons]
        if rows:
            write_part(self.folder / "quarantine", self.part, pa.Table.from_pylist(rows, schema=QUARANTINE))
