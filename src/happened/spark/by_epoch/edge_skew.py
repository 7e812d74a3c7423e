"""Estimate how far the clocks of one large computation disagree, and correct its times.

In    the edges between its processes (see edges), with their gaps and sending times
Out   offsets and drifts as causality.skew estimates them; the gaps and times corrected by them
Cost  two aggregations of the edges by pair of processes, some more where offsets alone do not explain the
      times; what reaches the driver is a row per pair (and window of time)
"""

from dataclasses import dataclass, replace

import numpy as np
from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from ...causality.linearization import Ints
from ...causality.skew import Skew, correct, solve_drifts, window_width
from ..schemas import only_row


@dataclass(frozen=True)
class Clocks:
    """The skew of each process, and the earliest time of any, from which drift is counted."""

    skew: Skew
    origin: int


def estimate(edges: DataFrame, n: int, origin: int) -> Clocks:
    """Estimate the clocks of n processes as causality.skew.estimate does, but by aggregations on Spark.

    edges   those that have both ends
    """
    timed = edges.where("gap is not null").withColumn("since", F.col("sent") - origin)
    skew = _offsets(timed, n, F.col("gap"))
    if skew.feasible.all():
        return Clocks(skew, origin)
    drifts = _drifts(timed, n)
    if drifts is not None:
        drifting = replace(skew, offsets=np.zeros(n, np.int64), drifts=drifts)
        left = with_skew(timed, drifting)
        better = replace(_offsets(left, n, F.col("corrected")), drifts=drifts)
        if _backwards(timed, better) < _backwards(timed, skew):
            skew = better
    return Clocks(skew, origin)


def _offsets(edges: DataFrame, n: int, gap: Column) -> Skew:
    least = edges.groupBy("source", "target").agg(F.min(gap).alias("gap")).collect()
    return correct(np.zeros(n, np.int64), *_columns(least, "source", "target", "gap"))


def _drifts(edges: DataFrame, n: int) -> Ints | None:
    last = only_row(edges.agg(F.max("since")))[0]
    of_window = F.expr(f"since div {window_width(last)}").alias("window")
    least = edges.groupBy("source", "target", of_window).agg(F.min("gap").alias("gap")).collect()
    source, target, window, gap = _columns(least, "source", "target", "window", "gap")
    return solve_drifts(n, source, target, window, gap, window_width(last))


def _backwards(edges: DataFrame, skew: Skew) -> int:
    return with_skew(edges, skew).where("corrected < 0").count()


def _columns(rows: list[Row], *names: str) -> list[Ints]:
    return [np.array([row[name] for row in rows], np.int64) for name in names]


def with_skew(edges: DataFrame, skew: Skew) -> DataFrame:
    """The edges with their `corrected` gap; they have a column `since`, the sending time from the origin."""
    spark = edges.sparkSession
    rows = list(zip(range(len(skew.offsets)), *(part.tolist() for part in skew.parts()[:2]), strict=True))
    table = spark.createDataFrame(rows, "p int, offset long, drift double")
    for end in ("source", "target"):
        names = {"p": end, "offset": f"{end}_offset", "drift": f"{end}_drift"}
        edges = edges.join(F.broadcast(table.withColumnsRenamed(names)), end)
    given = F.col("since") + F.col("gap")
    there = F.col("target_offset") + F.rint(F.col("target_drift") * given).cast("long")
    here = F.col("source_offset") + F.rint(F.col("source_drift") * F.col("since")).cast("long")
    return edges.withColumn("corrected", F.col("gap") - there + here)


def backwards(events: DataFrame) -> dict[str, int]:
    """How often the clock of each process went back from one event that has a time to the next."""
    before = F.lag("time").over(Window.partitionBy("process").orderBy("seq"))
    timed = events.where(F.col("time").isNotNull()).select("process", "seq", "time")
    back = timed.withColumn("before", before).where(F.col("time") < F.col("before"))
    return {row["process"]: row["count"] for row in back.groupBy("process").count().collect()}


def corrected_times(events: DataFrame, skew: DataFrame) -> DataFrame:
    """Rows of TIMES (causality.questions.epochs), from the events of one computation and its rows of SKEW."""
    known = F.broadcast(skew.drop("feasible", "backwards"))
    ahead = F.col("offset") + F.rint(F.col("drift") * (F.col("time") - F.col("origin"))).cast("long")
    return (
        events.where(F.col("time").isNotNull())
        .join(known, ["computation", "process"])
        .select("computation", "process", "seq", "time", (F.col("time") - ahead).alias("corrected"))
    )
