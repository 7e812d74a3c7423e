"""Many computations that each fit into a task, many to a task.

In    events; every computation in it small enough for one Python worker
Out   all tables of causality.analysis, as parts under `out`; the totals
Cost  one shuffle by computation; the rows cross to Python once, a batch of computations at a time
"""

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..causality.analysis import TABLES, analyse
from ..trace import SCHEMA
from .storage import write_part

EVENTS_PER_BATCH = 200_000


def analyse_whole(events: DataFrame, partitions: int, out: Path, timestamps: str) -> Counter[str]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        totals: Counter[str] = Counter()
        for table in _whole_computations(batches):
            analysis = analyse(table.select(SCHEMA.names).cast(SCHEMA), timestamps=timestamps)
            totals += analysis.totals
            part = f"whole-{uuid.uuid4().hex}"
            for name in TABLES:
                if analysis.tables[name]:
                    write_part(out / name, part, analysis.table(name))
        yield pa.RecordBatch.from_pydict({"totals": [json.dumps(totals)]})

    grouped = events.repartition(partitions, "computation").sortWithinPartitions("computation")
    rows = grouped.mapInArrow(run, "totals string").collect()
    return sum((Counter(json.loads(row["totals"])) for row in rows), Counter())


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


def large_computations(events: DataFrame, threshold: int) -> dict[str, int]:
    """The computations with more events than a task should take whole; few, by definition."""
    sizes = events.groupBy("computation").agg(F.count(F.lit(1)).alias("events"))
    return {row["computation"]: row["events"] for row in sizes.where(F.col("events") > threshold).collect()}
