"""Violations of order by name, with their witnesses.

In    the early deliveries that stamping found, as integers (see stamp); the disagreements on total order
Out   rows of causality.analysis.VIOLATIONS. The first MOST_PATHS early deliveries come with the causal path
      between the two sends
Cost  two joins of the violations with the sends, which Spark broadcasts or shuffles as the violations are few
      or many; see paths
"""

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..causality.analysis import VIOLATIONS
from .layout import Layout
from .paths import Step, causal_paths
from .schemas import spark_schema
from .total import Disagreement

MOST_PATHS = 100
KEY = ["dest", "early_seq"]
"""Of an early delivery."""


def name_violations(events: DataFrame, layout: Layout) -> DataFrame:
    """Early deliveries, in FIFO and in causal order."""
    spark, schema = events.sparkSession, spark_schema(VIOLATIONS)
    files = sorted(str(path) for path in layout.store.glob("early/*.parquet"))
    if not files:
        return spark.createDataFrame([], schema)
    names = spark.createDataFrame(list(enumerate(layout.names)), "p int, name string")
    early = spark.read.parquet(*files)
    early = early.join(F.broadcast(_paths(events, layout, early)), KEY, "left")
    for role in ("early", "overtaken"):
        sender = F.broadcast(
            names.select(F.col("p").alias(f"{role}_p"), F.col("name").alias(f"{role}_process"))
        )
        sent = events.where(F.col("kind") == "send").select(
            F.col("process").alias(f"{role}_process"),
            F.col("seq").alias(f"{role}_sent"),
            F.col("message").alias(role),
        )
        early = early.join(sender, f"{role}_p").join(sent, [f"{role}_process", f"{role}_sent"])
    here = F.broadcast(names.select(F.col("p").alias("dest"), F.col("name").alias("process")))
    orders = F.when(F.col("fifo") == 1, F.array(F.lit("fifo"), F.lit("causal"))).otherwise(
        F.array(F.lit("causal"))
    )
    return early.join(here, "dest").select(
        F.lit(layout.computation).alias("computation"),
        F.explode(orders).alias("order"),
        "process",
        "early",
        "early_seq",
        "overtaken",
        "overtaken_seq",
        "path",
    )


def _paths(events: DataFrame, layout: Layout, early: DataFrame) -> DataFrame:
    spark = events.sparkSession
    rows = early.orderBy(KEY).limit(MOST_PATHS).collect()
    ends = [((r["overtaken_p"], r["overtaken_sent"]), (r["early_p"], r["early_sent"])) for r in rows]
    paths = causal_paths(spark, layout, ends)
    steps = name_steps(events, layout, {step for path in paths for step in path})
    table = [
        (row["dest"], row["early_seq"], [steps[step] for step in path])
        for row, path in zip(rows, paths, strict=True)
    ]
    step = "struct<process: string, seq: bigint, kind: string, message: string>"
    return spark.createDataFrame(table, f"dest long, early_seq long, path array<{step}>")


def name_disagreements(events: DataFrame, layout: Layout, found: list[Disagreement]) -> pa.Table:
    """At `process` the two messages came in one order; the path has their deliveries in the other."""
    steps = name_steps(events, layout, {step for pair in found for step in pair})
    rows = []
    for first, second, early, overtaken in found:
        rows.append(
            {
                "computation": layout.computation,
                "order": "total",
                "process": layout.names[early[0]],
                "early": steps[early]["message"],
                "early_seq": early[1],
                "overtaken": steps[overtaken]["message"],
                "overtaken_seq": overtaken[1],
                "path": [steps[first], steps[second]],
            }
        )
    return pa.Table.from_pylist(rows, schema=VIOLATIONS)


def name_steps(events: DataFrame, layout: Layout, steps: set[Step]) -> dict[Step, dict[str, object]]:
    """What the events at these steps are; few, for they are collected."""
    spark = events.sparkSession
    places = {(layout.names[process], seq): (process, seq) for process, seq in steps}
    wanted = spark.createDataFrame([*places], "process string, seq long")
    found = events.select("process", "seq", "kind", "message").join(F.broadcast(wanted), ["process", "seq"])
    return {places[row["process"], row["seq"]]: row.asDict() for row in found.collect()}
