"""What became of each message of one large computation at each process, by name.

In    the splits that hold its rows; the names of its processes and how far their clocks disagree
Out   rows of MESSAGES (causality.questions.message_fates)
Cost  one shuffle join of the sends' destinations with the first deliveries, by message
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ...causality.questions.message_fates import MESSAGES
from ...trace import SCHEMA
from ..schemas import event_id, spark_schema
from .epoch_layout import Layout
from .named_violations import Laid

EVENTS = pa.schema([SCHEMA.field(name) for name in ("process", "seq", "kind", "message", "to", "time")])


def message_rows(spark: SparkSession, of: Laid) -> DataFrame:
    events, layout = _events(spark, of), of.layout
    processes = _processes(events, layout)
    met = deliveries(events, processes.select("process", "p"), handover(events))
    for end, role in (("source", "sender"), ("target", "receiver")):
        ahead = F.col("offset") + F.rint(F.col("drift") * (F.col(f"{end}_time") - F.col("origin"))).cast(
            "long"
        )
        met = (
            met.join(F.broadcast(processes.withColumnRenamed("p", end)), end, "left")
            .withColumn(f"{end}_corrected", F.col(f"{end}_time") - ahead)
            .withColumnRenamed("process", role)
            .drop("offset", "drift", "origin")
        )
    told: dict[str, Column] = {
        "computation": F.lit(layout.computation),
        "sent_seq": F.col("source_seq"),
        "sent_event": event_id("sender", "source_seq"),
        "received_seq": F.col("target_seq"),
        "received_event": event_id("receiver", "target_seq"),
        "sent_at": F.col("source_time"),
        "received_at": F.col("target_time"),
        "latency": F.col("target_time") - F.col("source_time"),
        "latency_corrected": F.col("target_corrected") - F.col("source_corrected"),
        "copies": F.coalesce("copies", F.lit(0)).cast("long"),
        "fate": _fate(),
    }
    return met.select(*(told.get(name, F.col(name)).alias(name) for name in MESSAGES.names))


def _events(spark: SparkSession, of: Laid) -> DataFrame:
    splits, computation = of.splits, of.layout.computation

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                table = splits[number].read(["computation", *EVENTS.names]).events
                its = table.filter(pc.equal(table["computation"], computation))
                yield from its.select(EVENTS.names).cast(EVENTS).to_batches()

    return spark.range(0, len(splits), 1, len(splits)).mapInArrow(read, spark_schema(EVENTS))


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


def _fate() -> Column:
    return (
        F.when(F.col("source").isNull(), "never_sent")
        .when(~F.col("addressed"), "misdelivered")
        .when(F.col("copies").isNull(), "lost")
        .when(F.col("copies") > 1, "duplicated")
        .otherwise("delivered")
    )


def _processes(events: DataFrame, layout: Layout) -> DataFrame:
    """The processes by number, and how far the clock of each is ahead."""
    n, clocks = len(layout.names), layout.clocks
    offsets = clocks.skew.offsets.tolist() if clocks else [0] * n
    drifts = clocks.skew.drifts.tolist() if clocks else [0.0] * n
    origin = clocks.origin if clocks else 0
    rows = list(zip(layout.names, range(n), offsets, drifts, [origin] * n, strict=True))
    schema = "process string, p int, offset long, drift double, origin long"
    return events.sparkSession.createDataFrame(rows, schema)
