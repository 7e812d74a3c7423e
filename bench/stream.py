"""Does causal order at most double the cost of a stream, and does its state stay small?

    python bench/stream.py [--messages 1000000] [--destinations 64] [--events 2000000] [--only delivery]
    python bench/stream.py --only many [--computations 250000] [--batches 50]

delivery   messages over some destinations, each of which names the two before it at its destination, arrive
           shuffled within a window, in ten batches. `deliver` is compared with a transformWithState that
           passes rows through, on the same files, in turns; the first batch of a query, in which Spark starts
           its workers and compiles, does not count. The state is looked at after every batch.
stamping   a trace in ten parts, by `happened stream` (stamps, predecessors and early deliveries) and by
           `happened analyze` with the same three questions, Spark being up already in both cases.
many       small computations of 4 events, a third of which lie across two batches, as `happened stream` reads
           them, against `analyze_path` with the same questions. Each runs in a process of its own, whose CPU
           is counted with that of its JVM and Python workers from its start to its end. Of the stream,
           the CPU of each batch and what is kept after the end are given too
"""

import argparse
import json
import os
import subprocess
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

from happened.causality.live import Rules
from happened.spark.live.live_job import follow, last_manifest, manifests
from happened.spark.live.state_store import PROVIDER, ROCKSDB
from happened.spark.pipeline import analyze_path
from happened.spark.session import session
from happened.streaming import ByIds, deliver
from happened.trace.schema import SCHEMA
from scale import make

BATCHES = 10
REMEMBERED = 1024
"""Remembered ids per destination when the state is measured: few, so that held messages show beside them."""
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
        checkpoint = str(out / "checkpoint")
        query = follow(spark, work / "trace", out, checkpoint=checkpoint, most_bytes=size, once=True)
        query.awaitTermination()
        seconds["stream"] = time.perf_counter() - began
        last = last_manifest(out)
        assert last is not None and last["totals"]["events"] == events, last
    return {
        "events": events,
        "processes": processes,
        "batches": last["batch"] + 1,
        "batch_events_per_second": round(events / seconds["batch"]),
        "stream_events_per_second": round(events / seconds["stream"]),
        "ratio": round(seconds["batch"] / seconds["stream"], 3),
    }


def write_computations(folder: Path, computations: int, batches: int) -> None:
    """Computations of two messages; one in ten delivers them in the wrong order. One part for each batch."""
    folder.mkdir()
    dice = np.random.default_rng(1)
    number, k = np.repeat(np.arange(computations), 4), np.tile(np.arange(4), computations)
    swapped = np.repeat(dice.random(computations) < 0.1, 4)
    message = np.where(k < 2, k, np.where(swapped, 3 - k, k - 2)) + 1
    time_ = number + dice.uniform(0, computations / batches / 3, number.size)
    names = [f"trace-{n:08d}" for n in range(computations)]
    schema = pa.schema([field for field in SCHEMA if field.name in MANY])
    for batch, part in enumerate(np.array_split(np.argsort(time_), batches)):
        sends = k[part] < 2
        columns = {
            "computation": [names[n] for n in number[part].tolist()],
            "process": np.where(sends, "a", "b").tolist(),
            "seq": np.where(sends, k[part] + 1, k[part] - 1),
            "kind": np.where(sends, "send", "deliver").tolist(),
            "message": [f"m{m}" for m in message[part].tolist()],
            "to": [["b"] if sent else None for sent in sends.tolist()],
            "time": (time_[part] * 1000).astype(np.int64),
            "relevant": np.zeros(part.size, bool),
        }
        pq.write_table(pa.table(columns, schema=schema), folder / f"part-{batch:05d}.parquet")


MANY = ("computation", "process", "seq", "kind", "message", "to", "time", "relevant")


def tree_cpu() -> float:
    """CPU seconds of this process and all below it, dead ones included."""
    parent, ticks = {}, {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it has ended
        parent[int(name)], ticks[int(name)] = int(fields[1]), sum(map(int, fields[11:15]))
    mine, new = set[int](), {os.getpid()}
    while new:
        mine |= new
        new = {pid for pid, above in parent.items() if above in new}
    return sum(ticks[pid] for pid in mine) / os.sysconf("SC_CLK_TCK")


def many_by_batch(trace: Path, out: Path) -> dict[str, Any]:
    spark = session("local[2]", brief=True)
    analyze_path(spark, trace, out, questions=["stamp", "predecessors", "order"])
    return {"cpu": tree_cpu()}


def many_by_stream(trace: Path, out: Path) -> dict[str, Any]:
    spark = session("local[2]", brief=True, streams=True)
    query = follow(
        spark,
        trace,
        out,
        most_bytes=1,
        checkpoint=str(out / "checkpoint"),
        rules=Rules(retire=3_600_000),
        once=True,
    )
    seen, costs, before = 0, [], tree_cpu()
    while not query.awaitTermination(0.05):
        found = len(manifests(out))
        if found > seen:
            costs += [(tree_cpu() - before) / (found - seen)] * (found - seen)
            seen, before = found, tree_cpu()
    last = last_manifest(out)
    assert last is not None
    kept = query.recentProgress[-1]["stateOperators"][0]["numRowsTotal"]
    return {"cpu": tree_cpu(), "batches": costs, "totals": last["totals"], "state_rows_at_the_end": kept}


def many(work: Path, computations: int, batches: int) -> dict[str, Any]:
    """The last batch also finishes all computations, so the one before it is compared with the first ones."""
    write_computations(work / "many", computations, batches)
    told: dict[str, Any] = {}
    for name in ("batch", "stream"):
        places = [str(work / "many"), str(work / f"many-{name}")]
        command = [sys.executable, __file__, "--run", name, *places]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        told[name] = json.loads(done.stdout)
        print(f"{name}: {told[name]['cpu']:.1f} CPU s", file=sys.stderr, flush=True)
    costs = told["stream"]["batches"]
    few = max(len(costs) // 10, 1)
    early, late = np.mean(costs[few : 2 * few]), np.mean(costs[-few - 1 : -1])
    totals = told["stream"]["totals"]
    assert totals["events"] == 4 * computations and "quarantined" not in totals, totals
    return {
        "computations": computations,
        "batches": len(costs),
        "batch_cpu_seconds": round(told["batch"]["cpu"], 1),
        "stream_cpu_seconds": round(told["stream"]["cpu"], 1),
        "ratio": round(told["stream"]["cpu"] / told["batch"]["cpu"], 2),
        "cpu_of_an_early_batch": round(float(early), 3),
        "cpu_of_a_late_batch": round(float(late), 3),
        "late_by_early": round(float(late / early), 2),
        "state_rows_at_the_end": told["stream"]["state_rows_at_the_end"],
        "state_bytes_at_the_end": totals["state_bytes"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--destinations", type=int, default=64)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--processes", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--computations", type=int, default=250_000)
    parser.add_argument("--batches", type=int, default=50)
    parser.add_argument("--only", default="delivery,stamping,many")
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)  # in a process of its own
    arguments = parser.parse_args()
    if arguments.run:
        name, trace, out = arguments.run
        job = many_by_batch if name == "batch" else many_by_stream
        print(json.dumps(job(Path(trace), Path(out))))
        return
    if "many" in arguments.only:
        with TemporaryDirectory() as folder:
            print(json.dumps(many(Path(folder), arguments.computations, arguments.batches), indent=1))
    if arguments.only == "many":
        return
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
