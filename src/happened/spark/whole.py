"""Analyse the computations that each fit into a task, many of them to a task.

In    events; the files that hold them, if any do; the questions
Out   their tables, as parts under `out`; the totals
Cost  one scan by tasks that read the files themselves; what lies across pieces of files is shuffled by
      computation and crosses to Python once, a batch of computations at a time
"""

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ..causality.analysis import analyse
from ..causality.questions import Question
from ..trace import SCHEMA
from .pieces import Piece, pieces_of
from .schemas import only_row
from .splits import Split
from .storage import write_part
from .tasks import on_tasks

EVENTS_PER_BATCH = 200_000

MOST_CELLS = 50_000_000
"""Events x processes of a computation that is taken whole: at 10 bytes each, the kernel's peak, 500 MB."""


@dataclass(frozen=True)
class Whole:
    """What is asked of each computation, and where the answers go."""

    out: Path
    timestamps: str
    questions: Sequence[str | Question]

    def analyse(self, table: pa.Table, part: str) -> Counter[str]:
        """Write the answers for a table as the part `part` of each table; returns the totals.

        A task that runs again gives the same `part`, so that it replaces what it wrote before.
        """
        analysis = analyse(table, timestamps=self.timestamps, questions=self.questions)
        for name, rows in analysis.filled():
            write_part(self.out / name, part, rows)
        return analysis.totals

    def shuffled(self, events: DataFrame, partitions: int) -> Counter[str]:
        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            totals: Counter[str] = Counter()
            context = TaskContext.get()
            assert context is not None
            for number, table in enumerate(_whole_computations(batches)):
                part = f"shuffled-{context.partitionId():05d}-{number:05d}"
                totals += self.analyse(table.select(SCHEMA.names).cast(SCHEMA), part)
            yield pa.RecordBatch.from_pydict({"totals": [json.dumps(totals)]})

        grouped = events.repartition(partitions, "computation").sortWithinPartitions("computation")
        rows = grouped.mapInArrow(run, "totals string").collect()
        return sum((Counter(json.loads(row["totals"])) for row in rows), Counter())

    def in_place(self, spark: SparkSession, pieces: list[Piece], others: Path) -> Counter[str]:
        """The computations that lie in one piece each: all but those named in `others`."""

        def run(number: int) -> Counter[str]:
            table = pieces[number].read()
            theirs = pq.read_table(others)["computation"]
            mine = table.filter(pc.invert(pc.is_in(table["computation"], value_set=theirs)))
            return self.analyse(mine, f"whole-{number:06d}")

        return sum(map(Counter, on_tasks(spark, len(pieces), run)), Counter())


def analyse_alone(
    spark: SparkSession, splits: Sequence[Split], whole: Whole, most_events: int
) -> Counter[str] | None:
    """Analyse a trace that fits a task, in one; None if it does not."""
    if not splits:
        return Counter()
    (split, *more) = splits
    if more or (split.rows or 0) > most_events:
        return None

    def run(_: int) -> Counter[str] | None:
        events, quarantined = split.read()
        if events.num_rows > most_events or _is_wide(events):
            return None
        if quarantined.num_rows:
            write_part(whole.out / "quarantine", "rows", quarantined)
        return whole.analyse(events, "alone") + Counter(quarantined=quarantined.num_rows)

    (totals,) = on_tasks(spark, 1, run)
    return None if totals is None else Counter(totals)


def _is_wide(events: pa.Table) -> bool:
    """Whether a computation has too many processes for a task; at most as many act as there are events."""
    if events.num_rows**2 <= MOST_CELLS:
        return False
    sizes = events.group_by("computation").aggregate([("process", "count"), ("process", "count_distinct")])
    cells = pc.multiply(sizes["process_count"], sizes["process_count_distinct"])
    return bool(pc.max(cells).as_py() > MOST_CELLS)


class Sizes:
    """How large each computation is and over how many pieces it is spread; the names stay on disk.

    `large` has the events of those that a task should not take whole, having more than `threshold` of them
    or too many for their processes; few, by definition.
    """

    def __init__(
        self, spark: SparkSession, events: DataFrame, files: Sequence[str], store: Path, threshold: int
    ) -> None:
        self._spark, self._store = spark, store
        self.pieces = pieces_of(files)
        if self.pieces:
            self._count_in_files()
            counted = spark.read.parquet(str(store / "counted"))
            self._sizes = counted.groupBy("computation").agg(
                F.sum("events").alias("events"), F.count(F.lit(1)).alias("pieces")
            )
        else:
            counts = events.groupBy("computation").agg(F.count(F.lit(1)).alias("events"))
            self._sizes = counts.withColumn("pieces", F.lit(2))
        self._sizes = self._sizes.persist()
        self._is_large = F.col("events") > threshold
        if wide := self._wide(events, threshold):
            self._is_large |= F.col("computation").isin(wide)
        self.large: dict[str, int] = {
            row["computation"]: row["events"] for row in self._sizes.where(self._is_large).collect()
        }

    def _count_in_files(self) -> None:
        pieces, store = self.pieces, self._store

        def count(number: int) -> int:
            counts = pieces[number].computations().combine_chunks().value_counts()
            columns = [counts.field("values"), counts.field("counts")]
            table = pa.table(columns, names=["computation", "events"])
            write_part(store / "counted", f"{number:06d}", table)
            return len(counts)

        on_tasks(self._spark, len(pieces), count)

    def _wide(self, events: DataFrame, threshold: int) -> list[str]:
        """Those of at most `threshold` events that have too many processes for a task.

        At most as many act as there are events, so processes are counted of few computations, if of any.
        """
        suspects = self._sizes.where(F.col("events").between(math.isqrt(MOST_CELLS) + 1, threshold))
        if suspects.isEmpty():
            return []
        widths = (
            events.join(suspects.select("computation"), "computation", "left_semi")
            .groupBy("computation")
            .agg(F.count(F.lit(1)).alias("events"), F.countDistinct("process").alias("processes"))
        )
        rows = widths.where(F.col("events") * F.col("processes") > MOST_CELLS).collect()
        return [row["computation"] for row in rows]

    def crossing(self) -> DataFrame:
        """The names and sizes of the small computations whose rows lie in several pieces."""
        return self._sizes.where(~self._is_large & (F.col("pieces") > 1))

    def not_in_place(self) -> Path:
        """Write the names of the computations that cannot be taken whole from one piece; returns the path."""
        path = self._store / "elsewhere"
        rows = self._sizes.where(self._is_large | (F.col("pieces") > 1))
        rows.select("computation").coalesce(1).write.mode("overwrite").parquet(str(path))
        return path

    def close(self) -> None:
        self._sizes.unpersist()


def analyse_whole(events: DataFrame, sizes: Sizes, whole: Whole) -> Counter[str]:
    """Analyse every computation that is not large; returns the totals."""
    spark = events.sparkSession
    totals: Counter[str] = Counter()
    if sizes.pieces:
        totals += whole.in_place(spark, sizes.pieces, sizes.not_in_place())
    crossing = sizes.crossing()
    count = only_row(crossing.agg(F.sum("events")))[0]
    if count:
        theirs = events.join(crossing.select("computation"), "computation", "left_semi")
        totals += whole.shuffled(theirs, partitions_for(count, spark.sparkContext.defaultParallelism))
    return totals


def _whole_computations(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows in tables of about EVENTS_PER_BATCH, cut only between computations."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if rows >= EVENTS_PER_BATCH and batch.num_rows:
            last = held[-1]["computation"][-1]
            names = batch["computation"].to_pylist()
            same = next((i for i, name in enumerate(names) if name != last.as_py()), len(names))
            if same < len(names):
                yield pa.Table.from_batches([*held, batch.slice(0, same)])
                held, rows, batch = [], 0, batch.slice(same)
        held.append(batch)
        rows += batch.num_rows
    if held:
        yield pa.Table.from_batches(held)


def partitions_for(events: int, parallelism: int) -> int:
    return max(1, min(parallelism * 4, events // 50_000 + 1))
