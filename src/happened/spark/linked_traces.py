"""Request traces that name spans of one another, or share a channel, are one computation: find which, on
Spark.

In    readers.DRAFTS rows of spans, `computation` being the trace's id
Out   the same rows, `computation` being the smallest id of the traces they are linked with; and how many
      channels carry too many traces to join them (trace/readers/span_joins.py)
Cost  one shuffle join of causes with ids; then rounds over the linked traces alone, usually none

Connected components by the smallest label seen: in each round a trace takes the smallest label of its
neighbours, and then that label's own label, so that paths shorten by half. It ends when no label changes;
`BOUND` rounds would be enough for more traces than can be stored.
"""

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..core.errors import CausalityError
from ..trace.readers.span_joins import MOST_JOINED

BOUND = 200


def join_linked_traces(drafts: DataFrame, store: Path) -> tuple[DataFrame, int]:
    """`store` is where rounds leave their labels, which keeps each round's plan short."""
    carried = _carried(drafts)
    carried.write.parquet(str(store / "channels"))
    carried = drafts.sparkSession.read.parquet(str(store / "channels"))
    too_many = carried.where(F.col("traces") > MOST_JOINED).select("channel").distinct().count()
    shared = carried.where((F.col("traces") <= MOST_JOINED) & (F.col("trace") != F.col("other")))
    neighbours = _neighbours(drafts).union(_both_ways(shared.select("trace", "other"))).distinct()
    neighbours.write.parquet(str(store / "neighbours"))
    neighbours = drafts.sparkSession.read.parquet(str(store / "neighbours"))
    if neighbours.isEmpty():
        return drafts, too_many
    labels = _components(neighbours, store).select(F.col("trace").alias("computation"), "leader")
    joined = F.coalesce("leader", "computation").alias("computation")
    rest = [name for name in drafts.columns if name != "computation"]
    return drafts.join(labels, "computation", "left").select(joined, *rest), too_many


def _carried(drafts: DataFrame) -> DataFrame:
    """(channel, trace, the first trace that the channel carries, how many it carries)."""
    pairs = (
        drafts.where("channel is not null").select("channel", F.col("computation").alias("trace")).distinct()
    )
    first = pairs.groupBy("channel").agg(F.min("trace").alias("other"), F.count("*").alias("traces"))
    return pairs.join(first, "channel")


def _both_ways(pairs: DataFrame) -> DataFrame:
    return pairs.union(pairs.select("other", "trace"))


def _neighbours(drafts: DataFrame) -> DataFrame:
    """(trace, other), both ways, of traces one of which names a span of the other."""
    owner = drafts.select("id", F.col("computation").alias("other")).distinct()
    named = F.explode(F.concat("parents", "links")).alias("id")
    pairs = (
        drafts.select(F.col("computation").alias("trace"), named)
        .join(owner, "id")
        .where("trace <> other")
        .select("trace", "other")
    )
    return _both_ways(pairs)


def _components(neighbours: DataFrame, store: Path) -> DataFrame:
    spark = neighbours.sparkSession
    labels = neighbours.select("trace", F.col("trace").alias("leader")).distinct()
    for round in range(BOUND):
        place = str(store / f"labels-{round}")
        _next(labels, neighbours).write.parquet(place)
        following = spark.read.parquet(place)
        if following.where("changed").isEmpty():
            return following.select("trace", "leader")
        labels = following.select("trace", "leader")
    raise CausalityError(f"linked traces did not settle in {BOUND} rounds")


def _next(labels: DataFrame, neighbours: DataFrame) -> DataFrame:
    heard = (
        neighbours.join(labels.select(F.col("trace").alias("other"), "leader"), "other")
        .groupBy("trace")
        .agg(F.min("leader").alias("heard"))
    )
    nearer = labels.join(heard, "trace").withColumn("nearest", F.least("leader", "heard"))
    of_nearest = labels.select(F.col("trace").alias("nearest"), F.col("leader").alias("further"))
    return nearer.join(of_nearest, "nearest").select(
        "trace",
        F.least("nearest", "further").alias("leader"),
        (F.least("nearest", "further") < F.col("leader")).alias("changed"),
    )
