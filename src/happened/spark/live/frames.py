"""`hs.stream`: answers about events in a streaming DataFrame, as streaming DataFrames.

    answers = hs.stream(spark.readStream.format("happened").load("nodes/trace"), retire=60)
    answers.violations.writeStream.format("delta").option("checkpointLocation", "c1").toTable("early")
    answers.to_tables("s3://answers", checkpoint="c2").start()          # or all tables, in one query

Each frame is a query of its own when it is written, with its own checkpoint and state, and computes only what
its table needs. `to_tables` answers all questions in one query. Spark's guarantees for sinks hold: an
idempotent sink (files, Delta, Kafka with transactions) has each row once.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql.types import TimestampNTZType, TimestampType

from ...causality.live import Rules
from ...causality.live_union import QUESTIONS
from ...core.errors import CausalityError
from ..event_rows import as_events
from ..session import supply
from ..storage import Tables
from .live_operator import OF_QUESTION, answered, buckets_of, pack, rows_of, tables_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from ..library import Columns

RETIRE = 600.0


class Stream(Tables):
    """Answers about a stream; each table is an attribute. `totals` has what each batch adds to counts.

    Assumes   a query that goes on from a checkpoint is made with the same arguments
    """

    def __init__(
        self, packed: DataFrame, rules: Rules, questions: Sequence[str], *, event_time: bool = False
    ) -> None:
        self._packed, self._questions, self._tables = packed, tuple(questions), tables_of(questions)
        self._answered = partial(answered, packed, rules, event_time=event_time)

    @property
    def answers(self) -> DataFrame:
        """All tables in one frame of (table, rows), with the rows packed; `rows_of` unpacks one of them."""
        return self._answered(self._questions)

    def table(self, name: str) -> DataFrame:
        self._refuse_unknown(name, "stream")
        # The tables that every stream has are about all questions.
        asked = [each for each in self._questions if name in OF_QUESTION[each]] or self._questions
        return rows_of(self._answered(asked), name)

    def to_tables(self, where: str, *, checkpoint: str, format: str = "parquet") -> "DataStreamWriter":
        """A writer of one query that fills a directory for each table below `where`, with a part `batch=N`
        for every batch that has rows; `.trigger(…)` it as any other, and `.start()` it. A batch that runs
        again after a crash writes its parts again."""
        names, root = self.tables, where.rstrip("/")

        def write(batch: DataFrame, number: int) -> None:
            kept = batch.persist()  # the state must not be computed once for each table
            try:
                filled = {row["table"] for row in kept.select("table").distinct().collect()}
                for name in names:
                    if name in filled or number == 0:  # the first batch creates the table
                        part = f"{root}/{name}/batch={number}"
                        rows_of(kept, name).write.mode("overwrite").format(format).save(part)
            finally:
                kept.unpersist()

        return self.answers.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)

    def __repr__(self) -> str:
        return f"<Stream: {', '.join(self._tables)}>"


def stream(
    events: DataFrame,
    *,
    columns: "Columns | None" = None,
    questions: Sequence[str] | None = None,
    retire: float = RETIRE,
    event_time: str | None = None,
    receives: bool = False,
    relevant_only: bool = False,
    buckets: int | None = None,
) -> Stream:
    """Answer questions about the events of a streaming frame as they arrive.

    columns        what the trace's columns are called in it, as of `analyze`
    questions      of stamp, predecessors and order; all of them if None
    retire         seconds of silence after which a computation is finished and forgotten
    event_time     a column of timestamps on which the frame has a watermark (`withWatermark`): silence is
                   measured by it, and not by the clock of the cluster
    receives       whether receives stand for deliveries
    relevant_only  whether predecessors are told among the events marked relevant only
    buckets        state keys that the computations are dealt out to; 2 for each partition of a shuffle
    """
    if not events.isStreaming:
        raise CausalityError("stream() takes a streaming frame (spark.readStream); analyze() takes this one")
    if retire <= 0:
        raise CausalityError(f"retire is a number of seconds above 0, not {retire!r}")
    spark = events.sparkSession
    supply(spark)
    number = buckets_of(spark) if buckets is None else buckets
    rules = Rules(retire=max(int(retire * 1000), 1), receives=receives, relevant_only=relevant_only)
    if event_time is not None:
        if not isinstance(events.schema[event_time].dataType, TimestampType | TimestampNTZType):
            raise CausalityError(f"event_time is a column of timestamps, which {event_time!r} is not")
        columns = {**(columns or {}), "time": event_time}
    rows = as_events(events, columns)
    by_event_time = event_time is not None
    packed = pack(rows, number, event_time=by_event_time)
    return Stream(packed, rules, QUESTIONS if questions is None else questions, event_time=by_event_time)
