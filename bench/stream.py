"""Does causal order in a stream cost less than as much again, and does its state stay small?

    python bench/stream.py [--messages 1000000] [--destinations 64] [--events 2000000] [--only delivery]

delivery   messages over some destinations, each of which names the two before it at its destination, arrive
           shuffled within a window, in ten batches. `deliver` is compared with a transformWithState that
           passes rows through, on the same files, in turns; the first batch of a query, in which Spark starts
           its workers and compiles, does not count. The state is looked at after every batch.
stamping   a trace in ten parts, by `happened stream` (stamps, predecessors and early deliveries) and by
           `happened analyze` with the same three questions, Spark being up already in both cases.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from happened.spark.live.live_job import follow, stretches
from happened.spark.live.trace_tail import TraceTail
from happened.spark.pipeline import analyze_path
from happened.spark.session import session
from happened.streaming import ByIds, deliver
from happened.streaming.operator import PROVIDER, ROCKSDB
from scale import make

BATCHES = 10
REMEMBERED = 1024
"""Ids of a destination, where the state is looked at: few, so that what is held can be seen beside them."""
COLUMNS = "destination string, id string, after array<string>, payload string"


def write_messages(folder: Path, messages: int, destinations: int, window: int) -> None:
    """Ten files of shuffled messages, the oldest first."""
    folder.mkdir()
    dice = np.random.default_rng(1)
    number = np.arange(messages)
    order = np.argsort(number + dice.uniform(0, window, messages), kind="stable")
    for batch, part in enumerate(np.array_split(order, BATCHES)):
        ids = [f"m{n}" for n in part.tolist()]
        after = [[f"m{n - destinations * k}" for k in (1, 2) if n >= destinations * k] for n in part.tolist()]
        columns = {
            "destination": [f"d{n % destinations}" for n in part.tolist()],
            "id": ids,
            "after": after,
            "payload": ["hello, this is a message of some length"] * len(ids),
        }
        path = folder / f"{batch:02d}.parquet"
        pq.write_table(pa.table(columns), path)
        os.utime(path, (batch, batch))


class PassThrough(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self._seen = handle.getValueState("seen", "rows long")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        yield from rows

    def close(self) -> None:
        pass


def timed(stream: DataFrame, checkpoint: Path, spark: SparkSession | None = None) -> tuple[float, list[Any]]:
    """Rows per second of all batches but the first; and, if a session is given, the state after each."""
    states = []

    def look(frame: DataFrame, batch: int) -> None:
        frame.write.format("noop").mode("append").save()

    writer = stream.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = (writer.foreachBatch(look) if spark is not None else writer.format("noop")).start()
    query.awaitTermination()
    batches = [each for each in query.recentProgress if each["numInputRows"]]
    if spark is not None:
        for each in batches:

            def state(name: str, batch: int = each["batchId"]) -> DataFrame:
                reader = spark.read.format("statestore").option("stateVarName", name)
                return reader.option("batchId", batch).load(str(checkpoint))

            counts = F.sum("value.held"), F.sum("value.delivered"), F.sum(F.length("value.directories"))
            held, passed, heads = state("head").agg(*counts).head()
            pages = state("pages").agg(F.sum(F.length("user_map_value.data"))).head()
            states.append({"held": held, "passed": passed, "bytes": heads + (pages[0] or 0)})
    rows = sum(each["numInputRows"] for each in batches[1:])
    return rows / (sum(each["batchDuration"] for each in batches[1:]) / 1000), states


def delivery(
    spark: SparkSession, work: Path, messages: int, destinations: int, rounds: int
) -> dict[str, Any]:
    window = messages // 50
    write_messages(work / "messages", messages, destinations, window)

    def source() -> DataFrame:
        reader = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(work / "messages"))

    passed, ordered = [], []
    for number in range(rounds):
        through = (
            source()
            .groupBy("destination")
            .transformWithStateInPandas(PassThrough(), source().schema, "append", "processingTime")
        )
        passed.append(timed(through, work / f"through-{number}")[0])
        print(f"passing through: {passed[-1]:,.0f} rows/s", file=sys.stderr, flush=True)
        stream = deliver(source(), ByIds(), patience=3600)
        ordered.append(timed(stream, work / f"ordered-{number}")[0])
        print(f"deliver: {ordered[-1]:,.0f} rows/s", file=sys.stderr, flush=True)
    stream = deliver(source(), ByIds(), patience=3600, remember=REMEMBERED)
    _, states = timed(stream, work / "looked", spark)
    return {
        "messages": messages,
        "destinations": destinations,
        "window": window,
        "pass_through_rows_per_second": [round(each) for each in passed],
        "deliver_rows_per_second": [round(each) for each in ordered],
        "ratio": round(max(ordered) / max(passed), 3),
        "states": states,
    }


def stamping(spark: SparkSession, work: Path, events: int, processes: int) -> dict[str, Any]:
    make(work / "whole", events, processes)
    table = pq.read_table(work / "whole")
    (work / "trace").mkdir()
    order = np.argsort(table["time"].to_numpy(), kind="stable")
    for number, part in enumerate(np.array_split(order, BATCHES)):
        pq.write_table(table.take(pa.array(part)), work / "trace" / f"part-{number:03d}.parquet")
    size = max(path.stat().st_size for path in (work / "trace").iterdir())
    seconds = {}
    for number in range(2):  # the first time, Spark and the kernels are compiled
        began = time.perf_counter()
        questions = ["stamp", "predecessors", "order"]
        analyze_path(spark, work / "trace", work / f"answers-{number}", questions=questions)
        seconds["batch"] = time.perf_counter() - began
        began = time.perf_counter()
        out = work / f"live-{number}"
        query, tables = follow(
            stretches(spark, work / "trace", size),
            out,
            checkpoint=str(out / "checkpoint"),
            tail=TraceTail(str(work / "trace")),
            once=True,
        )
        query.awaitTermination()
        tables.finish()
        seconds["stream"] = time.perf_counter() - began
        assert tables.totals["events"] == events, tables.totals
    return {
        "events": events,
        "processes": processes,
        "batches": tables.last,
        "batch_events_per_second": round(events / seconds["batch"]),
        "stream_events_per_second": round(events / seconds["stream"]),
        "ratio": round(seconds["batch"] / seconds["stream"], 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--destinations", type=int, default=64)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--processes", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", default="delivery,stamping")
    arguments = parser.parse_args()
    spark = session("local[2]")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    spark.conf.set(PROVIDER, ROCKSDB)
    with TemporaryDirectory() as folder:
        if "delivery" in arguments.only:
            sizes = arguments.messages, arguments.destinations, arguments.rounds
            print(json.dumps(delivery(spark, Path(folder), *sizes), indent=1), flush=True)
        if "stamping" in arguments.only:
            print(json.dumps(stamping(spark, Path(folder), arguments.events, arguments.processes), indent=1))
    spark.stop()


if __name__ == "__main__":
    main()
