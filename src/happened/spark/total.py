"""Total order of one large computation: whether any two processes deliver two messages in opposite orders.

In    a Layout, and the edges it was made of
Out   how many deliveries disagree, and some of the disagreements as rows of causality.analysis.VIOLATIONS
Cost  a shuffle of the deliveries of messages with several destinations; then deliveries x processes, spread
      over tasks that each hold those deliveries as 16 bytes
"""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ..causality.analysis import TOTAL_WITNESSES
from ..causality.epochs import event_keys
from ..causality.total import disagreements
from .layout import Layout
from .paths import Step
from .tasks import on_tasks

Disagreement = tuple[Step, Step, Step, Step]
"""The deliveries of two messages at one process, then of the same two, the other way round, at another."""


def count_disagreements(
    spark: SparkSession, events: DataFrame, layout: Layout
) -> tuple[int, list[Disagreement]]:
    """How many deliveries disagree, and some of the disagreements."""
    casts = events.where((F.col("kind") == "send") & (F.size(F.array_distinct("to")) > 1))
    if casts.isEmpty():
        return 0, []
    shared = layout.store / "shared"
    _write_shared(spark, layout, shared)
    tasks = min(len(layout.names), 2 * spark.sparkContext.defaultParallelism)
    found = on_tasks(spark, tasks, lambda number: _compare(shared, len(layout.names), number, tasks))
    pairs = [tuple((process, seq) for process, seq in pair) for _, some in found for pair in some]
    return sum(count for count, _ in found), pairs[:TOTAL_WITNESSES]


def _write_shared(spark: SparkSession, layout: Layout, path: Path) -> None:
    """The deliveries of messages that reached several destinations, each process's in order."""
    slots = spark.read.parquet(str(layout.store / "edges")).where("slot and target_seq is not null")
    of_message = ["source", "source_seq"]
    several = slots.groupBy(of_message).agg(F.count(F.lit(1)).alias("reached")).where("reached > 1")
    slots.join(several.drop("reached"), of_message, "left_semi").select(
        *of_message, "target", "target_seq"
    ).write.parquet(str(path))


def _compare(path: Path, n: int, number: int, tasks: int) -> tuple[int, list[list[list[int]]]]:
    table = pq.read_table(path)
    columns = [table[name].to_numpy().astype(np.int64) for name in table.column_names]
    order = np.lexsort((columns[3], columns[2]))
    source, source_seq, target, target_seq = (column[order] for column in columns)
    keys, message = np.unique(event_keys(source, source_seq), return_inverse=True)
    ends = np.cumsum(np.bincount(target, minlength=n))
    mine = np.arange(number, n, tasks)
    everyone = np.zeros(n, np.int64)
    _, count, pairs = disagreements(message, ends, everyone, mine, keys.size, TOTAL_WITNESSES // tasks + 1)
    rows = []
    for first, second, other in pairs.tolist():
        theirs = slice(ends[other - 1], ends[other])
        again = [ends[other - 1] + int(np.argmax(message[theirs] == message[d])) for d in (second, first)]
        rows.append([[int(target[d]), int(target_seq[d])] for d in (first, second, *again)])
    return int(count), rows
