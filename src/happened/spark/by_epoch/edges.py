"""The edges of happened-before between processes, as integers, and the fate of every message.

In    the events of one computation
Out   `edges`: source process and seq, target process and seq, the time sent and the gap, and whether it is a
      slot: the first delivery at a destination. Slots and misdeliveries carry an edge; so does every
      recorded cause. A destination that was never reached is a row too, without a target seq: a slot, but
      no edge.
      `fates`: one row of totals
Cost  one shuffle join of the sends' destinations with the first deliveries, by message

Deliveries are `deliver` rows, or `receive` rows where the computation records no deliveries at all.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def with_index(events: DataFrame, names: DataFrame, column: str, index: str) -> DataFrame:
    """The events with the process named in `column` as a number in `index`."""
    lookup = F.broadcast(names.select(F.col("process").alias("__name"), F.col("p").alias(index)))
    return events.join(lookup, F.col(column) == F.col("__name")).drop("__name")


def handover(events: DataFrame) -> str:
    """The kind of row that hands a message to the application in this computation."""
    return "receive" if events.where(F.col("kind") == "deliver").isEmpty() else "deliver"


def deliveries(events: DataFrame, names: DataFrame, kind: str) -> DataFrame:
    """Every (message, destination) that was addressed or delivered: who sent it, and what came of it.

    Columns: message, source, source_seq, source_time (null: never sent), target, target_seq, target_time
    (null: lost), copies, addressed.
    """
    sends = with_index(events.where(F.col("kind") == "send"), names, "process", "source")
    sends = sends.select(
        "message", "source", F.col("seq").alias("source_seq"), F.col("time").alias("source_time"), "to"
    )
    addressed = with_index(
        sends.withColumn("name", F.explode(F.array_distinct("to"))), names, "name", "target"
    ).drop("to", "name")
    given = with_index(events.where(F.col("kind") == kind), names, "process", "target")
    first = given.groupBy("message", "target").agg(
        F.min(F.struct("seq", "time")).alias("first"), F.count(F.lit(1)).alias("copies")
    )
    met = addressed.withColumn("addressed", F.lit(True)).join(first, ["message", "target"], "full_outer")
    strays = met.where(F.col("addressed").isNull()).drop("source", "source_seq", "source_time")
    strays = strays.join(sends.drop("to"), "message", "left")
    columns: list[Column | str] = [
        "message",
        "source",
        "source_seq",
        "source_time",
        "target",
        F.col("first.seq").alias("target_seq"),
        F.col("first.time").alias("target_time"),
        "copies",
        F.col("addressed").isNotNull().alias("addressed"),
    ]
    return met.where(F.col("addressed").isNotNull()).select(*columns).union(strays.select(*columns))


def fates(met: DataFrame, messages: DataFrame) -> DataFrame:
    def count(condition: Column) -> Column:
        return F.count(F.when(condition, 1))

    sent, given = F.col("source").isNotNull(), F.col("target_seq").isNotNull()
    totals = met.agg(
        count(F.col("addressed") & ~given).alias("lost"),
        F.coalesce(F.sum(F.col("copies") - 1), F.lit(0)).alias("duplicated"),
        count(~F.col("addressed") & sent).alias("misdelivered"),
        count(~sent).alias("never_sent"),
        count(F.col("addressed") & given).alias("deliveries_judged"),
    )
    return totals.crossJoin(messages.agg(F.count(F.lit(1)).alias("messages")))


def message_edges(met: DataFrame) -> DataFrame:
    sent = met.where(F.col("source").isNotNull())
    return sent.select(
        "source",
        "source_seq",
        "target",
        "target_seq",
        F.col("source_time").alias("sent"),
        (F.col("target_time") - F.col("source_time")).alias("gap"),
        F.col("addressed").alias("slot"),
    )


def cause_edges(events: DataFrame, names: DataFrame) -> DataFrame:
    """The recorded causes as edges, whether or not the trace has the event they name."""
    caused = with_index(events.where(F.col("causes").isNotNull()), names, "process", "target")
    each = caused.select(
        "target", F.col("seq").alias("target_seq"), F.explode("causes").alias("cause")
    ).withColumn("name", F.col("cause.process"))
    return with_index(each, names, "name", "source").select(
        "source",
        F.col("cause.seq").alias("source_seq"),
        "target",
        "target_seq",
        F.lit(None).cast("long").alias("sent"),
        F.lit(None).cast("long").alias("gap"),
        F.lit(False).alias("slot"),
    )
