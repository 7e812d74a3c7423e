"""Logged vector clocks against recomputed ones.

In    events with a logged clock; full stamps of the same computation
Out   rows of CLOCKS (causality.questions.verify_clocks), with the faults of causality.logged_clocks
Cost  one join by event, and one window by process
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

KEY = ["computation", "process", "seq"]


def clock_faults(logged: DataFrame, stamps: DataFrame) -> DataFrame:
    claimed = logged.select(*KEY, _without_zeros(F.col("clock")).alias("claimed"))
    lengths = stamps.groupBy("process").agg(F.max("seq").alias("events"))
    lengths = lengths.agg(F.map_from_entries(F.collect_list(F.struct("process", "events"))).alias("lengths"))
    both = claimed.join(stamps.select(*KEY, "clock"), KEY).crossJoin(F.broadcast(lengths))
    impossible = F.exists(
        F.map_entries("claimed"),
        lambda entry: F.coalesce(entry["value"] > F.col("lengths")[entry["key"]], F.lit(True)),
    )
    differs = _entries(F.col("claimed")) != _entries(F.col("clock"))
    before = F.lag("claimed").over(Window.partitionBy("computation", "process").orderBy("seq"))
    own_before = F.coalesce(F.col("before")[F.col("process")], F.lit(0))
    shrinks = F.exists(
        F.map_entries("before"),
        lambda entry: F.coalesce(F.col("claimed")[entry["key"]], F.lit(0)) < entry["value"],
    )
    stands = F.coalesce(F.col("claimed")[F.col("process")], F.lit(0)) <= own_before
    follows = claimed.withColumn("before", before).where(F.col("before").isNotNull())
    regressions = follows.where(shrinks | stands)
    return (
        both.where(differs | impossible)
        .select(*KEY, F.lit("mismatch").alias("fault"))
        .union(both.where(impossible).select(*KEY, F.lit("impossible").alias("fault")))
        .union(regressions.select(*KEY, F.lit("regression").alias("fault")))
    )


def _without_zeros(clock: Column) -> Column:
    return F.map_filter(clock, lambda _, count: count != 0)


def _entries(clock: Column) -> Column:
    return F.array_sort(F.map_entries(clock))
