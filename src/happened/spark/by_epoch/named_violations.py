"""Violations of order and lost causes by name, with their witnesses.

In    the early deliveries and lost causes that stamped epochs showed, as integers (see
      causality.questions.order); the cycles of total order
Out   rows of VIOLATIONS and LOST_CAUSES. The first MOST_PATHS of each come with the causal path between the
      two sends
Cost  two joins of the violations with the sends, which Spark broadcasts or shuffles as the violations are few
      or many; of lost causes, before that, one aggregation of at most lost messages x epochs rows; see
      causal_paths
"""

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ...causality.computation import Event
from ...causality.questions.order import LOST_CAUSES, VIOLATIONS, total_row
from ..schemas import spark_schema
from .causal_paths import Step, causal_paths
from .epoch_layout import Layout
from .total_at_scale import Leg

MOST_PATHS = 100
STEP = "struct<process: string, seq: bigint, kind: string, message: string>"


def name_violations(events: DataFrame, layout: Layout) -> DataFrame:
    """Early deliveries, in FIFO and in causal order."""
    early = _kept(events, layout, "early")
    if early is None:
        return events.sparkSession.createDataFrame([], spark_schema(VIOLATIONS))
    named = _named(events, layout, early, ("overtaken", "early"), ["dest", "early_seq"])
    orders = F.when(F.col("fifo") == 1, F.array(F.lit("fifo"), F.lit("causal"))).otherwise(
        F.array(F.lit("causal"))
    )
    return named.select(
        F.lit(layout.computation).alias("computation"),
        F.explode(orders).alias("order"),
        "process",
        "early",
        "early_seq",
        "overtaken",
        "overtaken_seq",
        "path",
    )


def name_lost_causes(events: DataFrame, layout: Layout) -> DataFrame:
    """Lost causes in FIFO and in causal order, each with the first delivery that shows it."""
    shown = _kept(events, layout, "shown")
    if shown is None:
        return events.sparkSession.createDataFrame([], spark_schema(LOST_CAUSES))
    lost = ["fifo", "dest", "lost_p", "lost_sent"]
    first = F.min(F.struct("delivered_seq", "delivered_p", "delivered_sent")).alias("first")
    found = shown.groupBy(lost).agg(first).select(*lost, "first.*")
    order = F.when(F.col("fifo") == 1, "fifo").otherwise("causal").alias("order")
    return _named(events, layout, found, ("lost", "delivered"), lost).select(
        F.lit(layout.computation).alias("computation"),
        order,
        "process",
        "lost",
        "delivered",
        "delivered_seq",
        "path",
    )


def _kept(events: DataFrame, layout: Layout, name: str) -> DataFrame | None:
    """What the epochs kept under a name; None if nothing."""
    files = sorted(str(path) for path in (layout.store / name).glob("*.parquet"))
    return events.sparkSession.read.parquet(*files) if files else None


def _named(
    events: DataFrame, layout: Layout, rows: DataFrame, ends: tuple[str, str], key: Sequence[str]
) -> DataFrame:
    """The rows with the `process` at `dest`, the messages sent at both ends, and the path between the sends.

    ends   two roles, in causal order of their sends: columns role_p and role_sent name the send of each
    key    the columns that tell rows apart
    """
    names = events.sparkSession.createDataFrame(list(enumerate(layout.names)), "p int, name string")
    rows = rows.join(F.broadcast(_paths(events, layout, rows, ends, key)), list(key), "left")
    for role in ends:
        sender = F.broadcast(
            names.select(F.col("p").alias(f"{role}_p"), F.col("name").alias(f"{role}_process"))
        )
        sent = events.where(F.col("kind") == "send").select(
            F.col("process").alias(f"{role}_process"),
            F.col("seq").alias(f"{role}_sent"),
            F.col("message").alias(role),
        )
        rows = rows.join(sender, f"{role}_p").join(sent, [f"{role}_process", f"{role}_sent"])
    here = F.broadcast(names.select(F.col("p").alias("dest"), F.col("name").alias("process")))
    return rows.join(here, "dest")


def _paths(
    events: DataFrame, layout: Layout, rows: DataFrame, ends: tuple[str, str], key: Sequence[str]
) -> DataFrame:
    spark = events.sparkSession
    first = rows.orderBy(*key).limit(MOST_PATHS).collect()
    before, after = ([(row[f"{role}_p"], row[f"{role}_sent"]) for row in first] for role in ends)
    paths = causal_paths(spark, layout, list(zip(before, after, strict=True)))
    steps = name_steps(events, layout, {step for path in paths for step in path})
    table = [
        (*(row[name] for name in key), [steps[step]._asdict() for step in path])
        for row, path in zip(first, paths, strict=True)
    ]
    columns = ", ".join(f"{name} long" for name in key)
    return spark.createDataFrame(table, f"{columns}, path array<{STEP}>")


def name_cycles(events: DataFrame, layout: Layout, found: list[list[Leg]]) -> pa.Table:
    """Cycles of total order, disagreements of two processes among them, as rows of VIOLATIONS."""
    steps = name_steps(events, layout, {step for legs in found for leg in legs for step in leg})
    rows = [total_row(layout.computation, [(steps[a], steps[b]) for a, b in legs]) for legs in found]
    return pa.Table.from_pylist(rows, schema=VIOLATIONS)


def name_steps(events: DataFrame, layout: Layout, steps: set[Step]) -> dict[Step, Event]:
    """What the events at these steps are; few, for they are collected."""
    spark = events.sparkSession
    places = {(layout.names[process], seq): (process, seq) for process, seq in steps}
    wanted = spark.createDataFrame([*places], "process string, seq long")
    found = events.select("process", "seq", "kind", "message").join(F.broadcast(wanted), ["process", "seq"])
    return {
        places[row["process"], row["seq"]]: Event(
            layout.computation, row["process"], row["seq"], row["kind"], row["message"]
        )
        for row in found.collect()
    }
