"""Writes deliveries into one table, and the messages that could not be delivered into another.

In     what `deliver` gives
Out    two directories of Parquet, with a part `batch=N` for each micro-batch: the rows that have a delivery
       number; and the dead letters, with the cause that did not come or what is wrong with the row
Cost   a batch is computed once, kept while it is written, and written twice

A batch that is run again after a crash overwrites its parts with the same rows, so nothing is lost or
repeated. Rows that only report held messages are left out: `held` shows those.
"""

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..core.errors import CausalityError
from ..spark.session import supply
from .operator import ADDED

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

UNDELIVERED = ("dead", "corrupt")


def to_tables(
    ordered: DataFrame, *, deliveries: str, dead_letters: str, checkpoint: str
) -> "DataStreamWriter":
    """A writer that fills two tables; `.trigger(…)` it as any other, and `.start()` it."""
    lacking = [name for name in ADDED if name not in ordered.columns]
    if lacking or not ordered.isStreaming:
        raise CausalityError(
            "to_tables takes the stream that deliver() returns"
            + (f": {lacking[0]!r} is missing" if lacking else "")
        )
    if deliveries.rstrip("/") == dead_letters.rstrip("/"):
        raise CausalityError(f"deliveries and dead letters need two directories, not {deliveries!r} twice")
    supply(ordered.sparkSession)

    def write(batch: DataFrame, number: int) -> None:
        # The operator's state must not be computed once for each table.
        rows = batch.persist()
        try:
            for place, kept in (
                (deliveries, F.col("delivery").isNotNull()),
                (dead_letters, F.col("status").isin(*UNDELIVERED)),
            ):
                part = rows.where(kept)
                if number == 0 or not part.isEmpty():  # the first batch creates the table
                    part.write.mode("overwrite").parquet(f"{place.rstrip('/')}/batch={number}")
        finally:
            rows.unpersist()

    return ordered.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
