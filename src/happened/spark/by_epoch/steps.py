"""What only Spark can answer for a question about a computation that is cut into epochs.

A question says for itself what its answers are for whole computations, for stamped epochs and for walks over
the epochs. What else it needs (a join with the events, a judgement over all epochs at once) is a step here,
registered by the question's name in STEPS, and runs after all of that. Most questions need none.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ...causality.measures import measure_rows
from ...causality.questions import Question
from ...causality.questions.epochs import EPOCHS, skew_table
from ...causality.questions.stamp import QUESTION as STAMP
from ...causality.questions.verify_clocks import CLOCK_TOTALS
from ...core.errors import CausalityError
from ..storage import write_part, write_rows
from .clock_faults import clock_faults
from .edge_skew import backwards, corrected_times
from .epoch_layout import Layout
from .named_violations import name_cycles, name_lost_causes, name_violations
from .stamping import stamp
from .total_at_scale import count_disagreements


@dataclass(frozen=True)
class Laid:
    """A computation whose epochs are done, and where its parts of the tables go.

    full_stamps   where its full vectors are, if they are among the answers
    """

    events: DataFrame
    layout: Layout
    folder: Path
    full_stamps: Path | None

    @property
    def part(self) -> str:
        return self.layout.store.name

    def write(self, rows: DataFrame, table: str) -> None:
        work = self.folder / ".work" / f"{self.part}-{table}"
        write_rows(rows, self.folder / table, self.part, work)


Step = Callable[[Laid], Counter[str]]


def name_faults_of_order(of: Laid) -> Counter[str]:
    """Names and paths of early deliveries and lost causes; total order."""
    spark = of.events.sparkSession
    of.write(name_violations(of.events, of.layout), "violations")
    totals: Counter[str] = Counter()
    if of.layout.totals.get("lost"):
        lost = name_lost_causes(of.events, of.layout).persist()
        of.write(lost, "lost_causes")
        counts = {row["order"]: row["count"] for row in lost.groupBy("order").count().collect()}
        lost.unpersist()
        totals += Counter(lost_causes=counts.get("causal", 0), fifo_lost_causes=counts.get("fifo", 0))
    count, found = count_disagreements(spark, of.events, of.layout)
    if found:
        table = name_cycles(of.events, of.layout, found)
        write_part(of.folder / "violations", f"{of.part}-total", table)
    return totals + Counter(total_violations=count)


def compare_logged_clocks(of: Laid) -> Counter[str]:
    """Only full timestamps can be compared with logged ones; they are made for this alone if need be."""
    logged = of.events.where(F.col("clock").isNotNull())
    if logged.isEmpty():
        return Counter()
    spark, folder = of.events.sparkSession, of.full_stamps
    if folder is None:
        folder = of.layout.store / "full"
        stamp(spark, of.layout, folder, [STAMP])
    stamps = spark.read.parquet(str(folder / "stamps")).where(F.col("computation") == of.layout.computation)
    faults = clock_faults(logged, stamps)
    of.write(faults, "clocks")
    counts = {row["fault"]: row["count"] for row in faults.groupBy("fault").count().collect()}
    totals = {total: counts.get(fault, 0) for fault, total in CLOCK_TOTALS.items()}
    return Counter({"clocks_logged": logged.count(), **totals})


def tell_cuts_and_times(of: Laid) -> Counter[str]:
    layout = of.layout
    n = len(layout.names)
    columns = [
        pa.repeat(layout.computation, n * layout.epochs),
        pa.array(np.repeat(np.arange(layout.epochs, dtype=np.int32), n)),
        pa.array(layout.names * layout.epochs, pa.string()),
        pa.array(layout.cuts.ravel()),
    ]
    write_part(of.folder / "epochs", of.part, pa.table(columns, schema=EPOCHS))
    clocks = layout.clocks
    if clocks is None:
        return Counter()
    names = [pa.repeat(layout.computation, n), pa.array(layout.names, pa.string())]
    back = backwards(of.events)
    counts = np.array([back.get(name, 0) for name in layout.names], np.int64)
    table = skew_table(names, clocks.skew, np.full(n, clocks.origin), counts)
    write_part(of.folder / "skew", of.part, table)
    rows = of.events.sparkSession.createDataFrame(table.to_pandas())
    of.write(corrected_times(of.events, rows), "times")
    return Counter({"times_backwards": int(counts.sum())})


def measure_traffic(of: Laid) -> Counter[str]:
    """Events per process and traffic per pair; the walk has written depth and width."""
    layout = of.layout
    names = np.array(layout.names, dtype=object)
    counts = layout.cuts[-1]
    rows = [measure_rows(layout.computation, "events", counts[counts > 0], names[counts > 0])]
    for measure in ("messages", "latency_min", "latency_mean"):
        pairs = [row for row in layout.pairs if row[measure]] if measure == "messages" else layout.pairs
        pairs = [row for row in pairs if row[measure] is not None]
        ends = (names[[row[end] for row in pairs]] for end in ("source", "target"))
        values = np.array([row[measure] for row in pairs])
        rows.append(measure_rows(layout.computation, measure, values, *ends))
    write_part(of.folder / "measures", of.part, pa.concat_tables(rows))
    return Counter()


def check_answerable(questions: Iterable[Question]) -> None:
    """Refuse a question that would say nothing of computations cut into epochs."""
    for question in questions:
        kind = type(question)
        has_fold = kind.fold is not Question.fold
        if not question.needs_stamps and not has_fold and question.name not in STEPS:
            raise CausalityError(
                f"the question {question.name!r} has no answer for computations cut into epochs: give it "
                "`stamped` or `fold`, or a step in spark/by_epoch/steps.py"
            )


STEPS: dict[str, Step] = {
    "order": name_faults_of_order,
    "verify-clocks": compare_logged_clocks,
    "epochs": tell_cuts_and_times,
    "measures": measure_traffic,
}
