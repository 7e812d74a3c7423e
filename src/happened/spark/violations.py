"""Early deliveries by name.

In    the early deliveries that stamping an epoch found, as integers (see stamp), and the events
Out   rows of causality.analysis.VIOLATIONS; a path from send to send would cross epochs and is null
Cost  two broadcast joins, the violations being few beside the events
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..causality.analysis import VIOLATIONS
from .layout import Layout
from .schemas import spark_schema


def name_violations(events: DataFrame, layout: Layout) -> DataFrame:
    spark, schema = events.sparkSession, spark_schema(VIOLATIONS)
    files = sorted(str(path) for path in layout.store.glob("early/*.parquet"))
    if not files:
        return spark.createDataFrame([], schema)
    names = spark.createDataFrame(list(enumerate(layout.names)), "p int, name string")
    early = spark.read.parquet(*files)
    for role in ("early", "overtaken"):
        sender = F.broadcast(
            names.select(F.col("p").alias(f"{role}_p"), F.col("name").alias(f"{role}_process"))
        )
        sent = events.where(F.col("kind") == "send").select(
            F.col("process").alias(f"{role}_process"),
            F.col("seq").alias(f"{role}_sent"),
            F.col("message").alias(role),
        )
        early = F.broadcast(early.join(sender, f"{role}_p")).join(sent, [f"{role}_process", f"{role}_sent"])
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
        F.lit(None).cast(schema["path"].dataType).alias("path"),
    )
