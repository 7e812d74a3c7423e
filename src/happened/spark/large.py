"""One computation that is cut into epochs, from its events to its part of every table.

In    its events, in any order
Out   its parts of stamps, predecessors, necessary, violations, skew, clocks and quarantine under `folder`
Cost  see layout, stamp, folds; what the layout keeps on disk meanwhile is removed at the end

If it turns out not to be a computation, it is put aside with the reason and leaves no other part.
"""

import math
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..causality.analysis import CLOCK_TOTALS, EPOCHS, EVERYTHING, QUARANTINE, TABLES, skew_table
from ..causality.measures import measure_rows
from ..core.errors import TraceFormatError
from .folds import FOLDS, fold
from .layout import Layout, lay_out
from .skew import Clocks, backwards, corrected_times
from .stamp import stamp
from .storage import write_part, write_rows
from .total import count_disagreements
from .verify_clocks import clock_faults
from .violations import name_disagreements, name_violations

WHOLE_EVENTS = 200_000
"""A computation with more events is cut into epochs."""

CELLS_PER_EPOCH = 20_000_000
"""Events x processes of an epoch: 80 MB of vectors in a task."""

Progress = Callable[[str], object]


@dataclass(frozen=True)
class LargeComputation:
    events: DataFrame
    name: str
    size: int
    folder: Path
    part: str
    timestamps: str
    epoch_events: int | None
    progress: Progress
    files: Sequence[str] = ()  # that hold the events and nothing that was turned away
    questions: Sequence[str] = EVERYTHING

    def run(self) -> Counter[str]:
        store = self.folder / ".work" / self.part
        try:
            return self._run(store)
        except TraceFormatError as error:
            for table in TABLES:
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
        if {"stamp", "order"} & {*self.questions}:
            self.progress(f"stamping {layout.epochs} epochs")
            as_vectors = "stamp" in self.questions and self.timestamps != "predecessors"
            timestamps = self.timestamps if as_vectors else None
            totals += Counter(stamp(spark, layout, self.folder, timestamps, self.progress))
        if "verify-clocks" in self.questions:
            totals += self._verify_clocks(layout)
        self.progress("immediate predecessors and necessary information")
        totals += Counter(fold(spark, layout, self.folder, self._folds()))
        if "order" in self.questions:
            totals += self._violations(layout)
        if "epochs" in self.questions:
            self._epochs(layout)
            if layout.clocks is not None:
                totals += self._skew(layout, layout.clocks)
        if "measures" in self.questions:
            self._measures(layout)
        self._quarantine(layout.rejected)
        totals["computations"] += 1
        totals["concurrent_pairs"] += self.size * (self.size - 1) // 2 - totals["ordered_pairs"]
        return totals

    def _folds(self) -> list[str]:
        """What is folded, by the tables it fills."""
        stamps = "stamp" in self.questions and self.timestamps == "predecessors"
        folds = [question for question in self.questions if question in FOLDS]
        return [*folds, "stamps"] if stamps else folds

    def _epoch_events(self) -> int:
        processes = max(1, self.events.select("process").distinct().count())
        return max(1000, min(WHOLE_EVENTS, CELLS_PER_EPOCH // processes))

    def _verify_clocks(self, layout: Layout) -> Counter[str]:
        """Only full timestamps can be compared with logged ones; made for this alone if need be."""
        logged = self.events.where(F.col("clock").isNotNull())
        if logged.isEmpty():
            return Counter()
        self.progress("logged clocks")
        spark = self.events.sparkSession
        folder = self.folder
        if self.timestamps != "full" or "stamp" not in self.questions:
            folder = layout.store / "full"
            stamp(spark, layout, folder, "full")
        stamps = spark.read.parquet(str(folder / "stamps")).where(F.col("computation") == self.name)
        faults = clock_faults(logged, stamps)
        self._write(faults, "clocks")
        counts = {row["fault"]: row["count"] for row in faults.groupBy("fault").count().collect()}
        totals = {total: counts.get(fault, 0) for fault, total in CLOCK_TOTALS.items()}
        return Counter({"clocks_logged": logged.count(), **totals})

    def _write(self, rows: DataFrame, table: str) -> None:
        write_rows(rows, self.folder / table, self.part, self.folder / ".work" / f"{self.part}-{table}")

    def _violations(self, layout: Layout) -> Counter[str]:
        self.progress("witnesses, and total order")
        self._write(name_violations(self.events, layout), "violations")
        count, found = count_disagreements(self.events.sparkSession, self.events, layout)
        if found:
            table = name_disagreements(self.events, layout, found)
            write_part(self.folder / "violations", f"{self.part}-total", table)
        return Counter({"total_violations": count})

    def _epochs(self, layout: Layout) -> None:
        n = len(layout.names)
        columns = [
            pa.repeat(self.name, n * layout.epochs),
            pa.array(np.repeat(np.arange(layout.epochs, dtype=np.int32), n)),
            pa.array(layout.names * layout.epochs, pa.string()),
            pa.array(layout.cuts.ravel()),
        ]
        write_part(self.folder / "epochs", self.part, pa.table(columns, schema=EPOCHS))

    def _skew(self, layout: Layout, clocks: Clocks) -> Counter[str]:
        n = len(layout.names)
        names = pa.repeat(layout.computation, n), pa.array(layout.names, pa.string())
        back = backwards(self.events)
        counts = np.array([back.get(name, 0) for name in layout.names], np.int64)
        table = skew_table(*names, clocks.skew, np.full(n, clocks.origin), counts)
        write_part(self.folder / "skew", self.part, table)
        rows = self.events.sparkSession.createDataFrame(table.to_pandas())
        self._write(corrected_times(self.events, rows), "times")
        return Counter({"times_backwards": int(counts.sum())})

    def _measures(self, layout: Layout) -> None:
        """Events per process and traffic per pair; the folds have written depth and width."""
        names = np.array(layout.names, dtype=object)
        counts = layout.cuts[-1]
        rows = [measure_rows(self.name, "events", counts[counts > 0], names[counts > 0])]
        for measure in ("messages", "latency_min", "latency_mean"):
            pairs = [row for row in layout.pairs if row[measure]] if measure == "messages" else layout.pairs
            pairs = [row for row in pairs if row[measure] is not None]
            ends = (names[[row[end] for row in pairs]] for end in ("source", "target"))
            rows.append(measure_rows(self.name, measure, np.array([row[measure] for row in pairs]), *ends))
        write_part(self.folder / "measures", self.part, pa.concat_tables(rows))

    def _quarantine(self, reasons: list[str]) -> None:
        rows = [{"computation": self.name, "reason": reason} for reason in reasons]
        if rows:
            write_part(self.folder / "quarantine", self.part, pa.Table.from_pylist(rows, schema=QUARANTINE))
