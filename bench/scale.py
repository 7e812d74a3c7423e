"""Does the pipeline keep up with one process that does the same by hand?

    python bench/scale.py [--events 10000000] [--processes 32] [--master 'local[2]'] [--timestamps sparse]

One computation is made and written as Parquet. Then, in one run on the same files:

single    one process: read, encode, stamp, write the stamps
spark     happened.spark: lay out by epoch, summarise, scan, stamp, write the same stamps
analyze   everything `happened analyze` does

Prints seconds, the ratios, and the largest Python worker.
"""

import argparse
import json
import resource
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from happened.causality import encode
from happened.causality.analysis import stamps_table
from happened.causality.stamps import stamp_computation
from happened.spark.storage import write_part
from happened.trace import SCHEMA, read

ROWS_PER_PART = 500_000
COLUMNS = ("computation", "process", "seq", "kind", "message", "to", "time", "relevant")


def make(path: Path, events: int, processes: int, seed: int = 1) -> None:
    """Unicasts between random processes, delays long enough that a few thousand are always in flight."""
    dice = np.random.default_rng(seed)
    messages = events // 2
    sender = dice.integers(0, processes, messages)
    receiver = (sender + dice.integers(1, processes, messages)) % processes
    sent = np.sort(dice.integers(0, messages * 1000, messages))
    given = sent + dice.exponential(2_000_000, messages).astype(np.int64)
    time_ = np.concatenate([sent, given])
    order = np.argsort(time_, kind="stable")
    process = np.concatenate([sender, receiver])[order]
    message = np.concatenate([np.arange(messages)] * 2)[order]
    is_send = order < messages
    seq = np.empty(order.size, np.int64)
    for p in range(processes):
        of = np.flatnonzero(process == p)
        seq[of] = np.arange(1, of.size + 1)
    names = pa.array([f"p{p:03d}" for p in range(processes)])
    path.mkdir(parents=True)
    schema = pa.schema([SCHEMA.field(name) for name in COLUMNS])
    for part, at in enumerate(range(0, order.size, ROWS_PER_PART)):
        rows = slice(at, at + ROWS_PER_PART)
        sends = is_send[rows]
        text = pa.array(message[rows]).cast(pa.string())
        offsets = np.concatenate([[0], np.cumsum(sends)]).astype(np.int32)
        to = pa.ListArray.from_arrays(offsets, names.take(pa.array(receiver[message[rows][sends]])))
        columns = [
            pa.repeat("big", len(sends)),
            names.take(pa.array(process[rows])),
            pa.array(seq[rows]),
            pa.array(np.where(sends, "send", "deliver")),
            text,
            pa.ListArray.from_arrays(pa.array(offsets), to.values, mask=pa.array(~sends)),
            pa.array(time_[order][rows]),
            pa.repeat(False, len(sends)),
        ]
        pq.write_table(pa.table(columns, schema=schema), path / f"part-{part:05d}.parquet")


def single(trace: Path, out: Path, timestamps: str) -> None:
    (computation,) = encode(read(trace))
    vectors = stamp_computation(computation)
    write_part(out, "stamps", stamps_table(computation, vectors, timestamps))


def spark_stamp(spark, trace: Path, work: Path, timestamps: str) -> int:
    from happened.causality.questions import QUESTIONS
    from happened.spark.by_epoch.epoch_layout import lay_out
    from happened.spark.by_epoch.job import CELLS_PER_EPOCH, WHOLE_EVENTS
    from happened.spark.by_epoch.stamping import stamp
    from happened.spark.event_rows import local_files, read_events

    events = read_events(spark, trace)
    processes = events.select("process").distinct().count()
    per_epoch = min(WHOLE_EVENTS, CELLS_PER_EPOCH // processes)
    layout = lay_out(spark, events, "big", work / "store", per_epoch=per_epoch, files=local_files(events))
    stamp(spark, layout, work / "out", [QUESTIONS[name] for name in ("stamp", "order")], timestamps)
    return layout.epochs


def worker_megabytes(spark) -> float:
    from happened.spark.tasks import on_tasks

    return max(on_tasks(spark, 16, lambda _: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)) / 1024


def timed(what, result, action):
    start = time.perf_counter()
    value = action()
    result[what] = time.perf_counter() - start
    print(f"  {what:10} {result[what]:8.1f} s", flush=True)
    return value


def main() -> None:
    from happened.spark.analyze import analyze
    from happened.spark.session import session

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--processes", type=int, default=32)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--timestamps", default="sparse")
    parser.add_argument("--skip-single", action="store_true")
    parser.add_argument("--analyze", action="store_true")
    arguments = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="happened-scale-"))
    result: dict[str, float] = {"events": arguments.events, "processes": arguments.processes}
    try:
        timed("make", result, lambda: make(work / "trace", arguments.events, arguments.processes))
        make(work / "warm", 20_000, arguments.processes)  # compiles the kernels, and warms Spark up
        single(work / "warm", work / "warm-single", arguments.timestamps)
        if not arguments.skip_single:
            timed("single", result, lambda: single(work / "trace", work / "single", arguments.timestamps))
        spark = session(arguments.master)
        spark_stamp(spark, work / "warm", work / "warm-spark", arguments.timestamps)
        epochs = timed(
            "spark", result, lambda: spark_stamp(spark, work / "trace", work / "spark", arguments.timestamps)
        )
        result["epochs"] = epochs
        if arguments.analyze:
            timed(
                "analyze",
                result,
                lambda: analyze(spark, work / "trace", work / "all", timestamps=arguments.timestamps),
            )
        result["worker_megabytes"] = worker_megabytes(spark)
        if "single" in result:
            result["spark/single"] = result["spark"] / result["single"]
        print(json.dumps(result, indent=2))
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
