"""Shows which messages a delivery query holds and how it works, while it runs or after it has stopped.

    held(spark, checkpoint, rule)   a row for each held message, as of the last finished batch: destination,
                                    message, since, waits_for (all missing causes); reads the whole state
    watch = Watch(spark, checkpoint, tell=print, metrics="delivery.json")
    spark.streams.addListener(watch)

After every finished batch of the query with that checkpoint, Watch passes a line to `tell` and replaces the
file `metrics`, if one is named. The number of held messages comes from the heads of the state, one for each
destination, which a small Spark job reads at most every `seconds`.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryListener

from ..spark.session import supply
from .arrivals import Rule
from .destination import Destination, Head


class Sample(NamedTuple):
    batch: int
    rows: int
    rows_per_second: float
    held: int
    oldest_wait_seconds: float
    state_rows: int
    state_bytes: int

    def line(self) -> str:
        waits = f", the oldest for {self.oldest_wait_seconds:,.0f} s" if self.held else ""
        return (
            f"batch {self.batch}: {self.rows:,} rows ({self.rows_per_second:,.0f}/s), "
            f"{self.held:,} held{waits}, {self.state_rows:,} records of state, {self.state_bytes:,} bytes"
        )


class Watch(StreamingQueryListener):
    def __init__(
        self,
        spark: SparkSession,
        checkpoint: str,
        *,
        tell: Callable[[str], object] = lambda line: None,
        metrics: str | os.PathLike[str] | None = None,
        seconds: float = 10.0,
    ) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self._tell = tell
        self._metrics = None if metrics is None else Path(metrics)
        self._seconds = seconds
        self._looked = float("-inf")
        self._held = (0, 0.0)
        self._query: str | None = None
        self.last: Sample | None = None

    def onQueryStarted(self, event: Any) -> None:
        """Does nothing: progress is reported batch by batch."""

    onQueryIdle = onQueryTerminated = onQueryStarted

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        if str(progress.id) != self._watched():
            return
        now = time.monotonic()
        if now - self._looked >= self._seconds:
            self._looked, self._held = now, self._look()
        operators = progress.stateOperators
        sizes = (each.customMetrics.get("rocksdbSstFileSize", 0) for each in operators)
        self.last = Sample(
            batch=progress.batchId,
            rows=progress.numInputRows,
            rows_per_second=progress.processedRowsPerSecond,
            held=self._held[0],
            oldest_wait_seconds=self._held[1],
            state_rows=sum(each.numRowsTotal for each in operators),
            state_bytes=sum(int(size) for size in sizes),
        )
        self._tell(self.last.line())
        if self._metrics is not None:
            unfinished = self._metrics.with_name(f".{self._metrics.name}.unfinished")
            unfinished.write_text(json.dumps(self.last._asdict()))
            unfinished.replace(self._metrics)

    def _watched(self) -> str | None:
        """The id of the query, read from the checkpoint."""
        if self._query is None:
            found = self._spark.read.text(f"{self._checkpoint}/metadata").head()
            self._query = None if found is None else json.loads(found[0])["id"]
        return self._query

    def _look(self) -> tuple[int, float]:
        """How many messages are held, and how long the oldest has been held."""
        heads = self._spark.read.format("statestore").option("stateVarName", "head").load(self._checkpoint)
        held = heads.where("value.held > 0").agg(F.sum("value.held"), F.min("value.oldest")).head()
        if held is None or held[0] is None:
            return 0, 0.0
        return int(held[0]), max(time.time() - held[1] / 1000, 0.0)


SCHEMA = "destination string, message string, since timestamp, waits_for array<string>"


def held(spark: SparkSession, checkpoint: str, rule: Rule) -> DataFrame:
    """The held messages of a query; `rule` is the one that `deliver` was given."""
    supply(spark)

    def state(name: str) -> DataFrame:
        reader = spark.read.format("statestore").option("stateVarName", name)
        return reader.load(checkpoint).select(F.col("key.*"), "*").drop("key", "partition_id")

    def read(key: tuple[Any, ...], heads: pd.DataFrame, pages: pd.DataFrame) -> pd.DataFrame:
        rows = [row for head in heads["value"] for row in _held(rule, head, pages)]
        table = pd.DataFrame(rows, columns=["message", "since", "waits_for"])
        table.insert(0, "destination", key[0])
        table["since"] = pd.to_datetime(table["since"], unit="ms", utc=True)
        return table

    heads, pages = state("head"), state("pages")
    key = heads.columns[0]
    return heads.groupBy(key).cogroup(pages.groupBy(key)).applyInPandas(read, SCHEMA)


class _Stored:
    def __init__(self, pages: pd.DataFrame) -> None:
        numbers = (key["page"] for key in pages["user_map_key"])
        self._pages = dict(zip(numbers, pages["user_map_value"], strict=True))

    def read(self, number: int) -> bytes:
        return bytes(self._pages[number]["data"])

    def write(self, number: int, data: bytes) -> None:
        raise AssertionError("the state is read-only here")

    def remove(self, number: int) -> None:
        raise AssertionError("the state is read-only here")


def _held(rule: Rule, head: Any, pages: pd.DataFrame) -> Iterator[tuple[str, int, list[str]]]:
    stored = Head._make(head[name] for name in Head._fields)
    destination = Destination(rule.kind, _Stored(pages), stored, remember=1)
    for entry, missing in destination.pending():
        yield rule.named(entry.arrival.name), entry.since, [rule.named(cause) for cause in missing]
