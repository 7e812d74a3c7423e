"""Total order of one large computation: whether one order of messages fits the deliveries of all processes.

In    a Layout, and the edges it was made of
Out   how many violations there are, and the legs of some of them: a process and two of its deliveries each
Cost  a shuffle of the deliveries of messages with several destinations; then deliveries x processes, spread
      over tasks that each hold those deliveries as 16 bytes; then one such task that looks for cycles of more
      than two processes, linear in the deliveries (see causality.total_order)
"""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ...causality.epochs import event_keys
from ...causality.questions.order import TOTAL_WITNESSES
from ...causality.total_order import Sequences
from ..storage import read_arrays, write_arrays
from ..tasks import on_tasks
from .causal_paths import Step
from .epoch_layout import Layout

Leg = tuple[Step, Step]
"""Two deliveries of one process, in their order."""


def count_disagreements(
    spark: SparkSession, events: DataFrame, layout: Layout
) -> tuple[int, list[list[Leg]]]:
    """How many violations of total order there are, and some of them: each leg ends with the message the next
    begins with, and the last with the first one's."""
    casts = events.where((F.col("kind") == "send") & (F.size(F.array_distinct("to")) > 1))
    if casts.isEmpty():
        return 0, []
    shared = layout.store / "shared"
    _write_shared(spark, layout, shared)
    n = len(layout.names)
    tasks = min(n, 2 * spark.sparkContext.defaultParallelism)
    found = on_tasks(spark, tasks, lambda number: _compare(shared, n, number, tasks))
    (cycles,) = on_tasks(spark, 1, lambda number: _cycles(shared, n, tasks))
    told = [legs for _, some in found for legs in some] + cycles
    legs = [[_leg(leg) for leg in each] for each in told[:TOTAL_WITNESSES]]
    return sum(count for count, _ in found) + len(cycles), legs


def _leg(told: list[list[int]]) -> Leg:
    """As it was before it went through JSON."""
    (p, first), (_, second) = told
    return (p, first), (p, second)


def _write_shared(spark: SparkSession, layout: Layout, path: Path) -> None:
    """The deliveries of messages that reached several destinations, each process's in order."""
    slots = spark.read.parquet(str(layout.store / "edges")).where("slot and target_seq is not null")
    of_message = ["source", "source_seq"]
    several = slots.groupBy(of_message).agg(F.count(F.lit(1)).alias("reached")).where("reached > 1")
    slots.join(several.drop("reached"), of_message, "left_semi").select(
        *of_message, "target", "target_seq"
    ).write.parquet(str(path))


class _Shared:
    """Those deliveries, by process and seq."""

    def __init__(self, path: Path, n: int) -> None:
        table = pq.read_table(path)
        columns = [table[name].to_numpy().astype(np.int64) for name in table.column_names]
        order = np.lexsort((columns[3], columns[2]))
        source, source_seq, self.target, self.target_seq = (column[order] for column in columns)
        keys, message = np.unique(event_keys(source, source_seq), return_inverse=True)
        ends = np.cumsum(np.bincount(self.target, minlength=n))
        self.sequences = Sequences(message.astype(np.int64), ends, keys.size)

    def place(self, message: int, process: int) -> int:
        """Where a process delivered a message."""
        ends = self.sequences.dest_ends
        start = int(ends[process - 1]) if process else 0
        return start + int(np.argmax(self.sequences.message[start : ends[process]] == message))

    def legs(self, places: list[tuple[int, int]]) -> list[list[list[int]]]:
        return [[[int(self.target[d]), int(self.target_seq[d])] for d in leg] for leg in places]


def _compare(path: Path, n: int, number: int, tasks: int) -> tuple[int, list[list[list[list[int]]]]]:
    """Disagreements of some processes with those before them; the messages they are about go to a file."""
    shared = _Shared(path, n)
    of = shared.sequences
    everyone = np.zeros(n, np.int64)
    count, pairs, marked = of.disagreements(
        everyone, np.arange(number, n, tasks), TOTAL_WITNESSES // tasks + 1
    )
    write_arrays(_marked(path, number), marked=np.flatnonzero(marked))
    told = []
    for first, second, other in pairs.tolist():
        there = shared.place(of.message[second], other), shared.place(of.message[first], other)
        told.append(shared.legs([(first, second), there]))
    return count, told


def _cycles(path: Path, n: int, tasks: int) -> list[list[list[list[int]]]]:
    shared = _Shared(path, n)
    marked = np.zeros(shared.sequences.messages, bool)
    for number in range(tasks):
        marked[read_arrays(_marked(path, number))["marked"]] = True
    return [shared.legs(cycle) for cycle in shared.sequences.cycles(marked)]


def _marked(path: Path, number: int) -> Path:
    return path.with_name(f"disagreeing-{number:04d}.npz")
