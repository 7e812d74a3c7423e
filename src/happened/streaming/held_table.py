"""The messages that a running or stopped delivery query holds, read from its checkpoint by Spark's state
reader.

In    the checkpoint of a query that `deliver` is in, as of its last finished batch
Out   one row for each held message: destination, message, since, waits_for (every cause that is missing)
Cost  reads the whole state; the query itself is not disturbed
"""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ..spark.session import supply
from .arrivals import Rule
from .destination import Destination, Head

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
