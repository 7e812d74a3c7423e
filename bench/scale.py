"""Does the pipeline keep up with one process that does the same by hand?

    python bench/scale.py [--events 10000000] [--processes 32] [--master 'local[2]'] [--against CHECKOUT]
                          [--shape one|many|random]

The bench writes rows as Parquet: of one computation, or of many with four events each, in their order or in
random order. Then it runs these on the same files, each in a process of its own:

single    one process: read, encode, ask every question, write every table
spark     everything `happened analyze` does, on a session that is warm
through   the same with io="spark": Spark reads and writes
frame     `hs.analyze` of a frame that Spark reads from those files; Spark shuffles and keeps everything
lay       `frame` up to the shuffle by computation, and for comparison Spark's own writer of the same rows
against   `happened analyze` by another checkout, if one is given (with its own .venv)

Prints wall-clock seconds; CPU seconds of the driver, the JVM and the Python workers; ratios; the memory of
the largest worker; and for `frame` the bytes in Spark's metrics and those that Python wrote to disk itself.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

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


def make_many(path: Path, events: int, shuffled: bool) -> None:
    """Computations of four events: a request, and the reply to it."""
    count = events // 4
    k = np.tile(np.arange(4), count)
    names = pa.array([f"request-{number:09d}" for number in range(count)])
    sends = pa.array([["b"], None, ["a"], None], pa.list_(pa.string()))
    columns = {
        "computation": names.take(pa.array(np.repeat(np.arange(count), 4))),
        "process": pa.array(["a", "b", "b", "a"]).take(pa.array(k)),
        "seq": pa.array(np.array([1, 1, 2, 2])[k]),
        "kind": pa.array(["send", "deliver", "send", "deliver"]).take(pa.array(k)),
        "message": pa.array(["m1", "m1", "m2", "m2"]).take(pa.array(k)),
        "to": sends.take(pa.array(k)),
        "time": pa.array(np.arange(count * 4) * 1000),
    }
    table = pa.table(columns)
    if shuffled:
        table = table.take(pa.array(np.random.default_rng(1).permutation(table.num_rows)))
    path.mkdir(parents=True)
    for part, at in enumerate(range(0, table.num_rows, ROWS_PER_PART // 2)):
        pq.write_table(table.slice(at, ROWS_PER_PART // 2), path / f"part-{part:05d}.parquet")


def single(trace: Path, out: Path, timestamps: str) -> None:
    from happened.causality.analysis import analyse

    analysis = analyse(read(trace), timestamps=timestamps)
    for name, table in analysis.filled():
        (out / name).mkdir(parents=True)
        pq.write_table(table, out / name / "part.parquet")


def time_single(folder: Path, timestamps: str, _: str) -> dict[str, float]:
    single(folder / "warm", folder / "warm-single", timestamps)
    before, start = time.process_time(), time.perf_counter()
    single(folder / "trace", folder / "single", timestamps)
    seconds, cpu = time.perf_counter() - start, time.process_time() - before
    return {"seconds": seconds, "cpu": cpu, "megabytes": most_megabytes()}


def most_megabytes() -> float:
    """The most memory that this process held; not `ru_maxrss`, which may be that of its parent process."""
    status = Path("/proc/self/status").read_text()
    return float(status.split("VmHWM:")[1].split()[0]) / 1024


def time_spark(folder: Path, timestamps: str, master: str, **options: str) -> dict[str, float]:
    from happened.spark.pipeline import analyze_path
    from happened.spark.session import session

    out = Path(tempfile.mkdtemp(dir=folder))
    spark = session(master)
    analyze_path(spark, folder / "warm", out / "warm", timestamps=timestamps, whole_events=10_000, **options)
    before, start = cpu_times(), time.perf_counter()
    analyze_path(spark, folder / "trace", out / "all", timestamps=timestamps, **options)
    seconds, after = time.perf_counter() - start, cpu_times()
    told = {who: after[who] - before[who] for who in before}
    told |= {"seconds": seconds, "cpu": sum(told.values())}
    told["driver_megabytes"] = most_megabytes()
    told["worker_megabytes"] = largest_worker()
    spark.stop()
    return told


def time_through(folder: Path, timestamps: str, master: str) -> dict[str, float]:
    return time_spark(folder, timestamps, master, io="spark")


def time_frame(folder: Path, timestamps: str, master: str) -> dict[str, float]:
    import happened.spark as hs
    from happened.spark.session import session

    spark = session(master)
    warm = hs.read_trace(spark, folder / "warm")
    hs.analyze(warm, timestamps=timestamps, whole_events=10_000)
    events = hs.read_trace(spark, folder / "trace")
    before, start, wrote = cpu_times(), time.perf_counter(), metrics(spark)
    with hs.analyze(events, timestamps=timestamps):
        seconds, after = time.perf_counter() - start, cpu_times()
        told = {who: after[who] - before[who] for who in before}
        told |= {"seconds": seconds, "cpu": sum(told.values())}
        told |= {name: value - wrote[name] for name, value in metrics(spark).items()}
    told["worker_megabytes"] = largest_worker()
    spark.stop()
    return told


def time_lay(folder: Path, timestamps: str, master: str) -> dict[str, float]:
    import happened.spark as hs
    from happened.spark.laid_frames import lay_down
    from happened.spark.session import session

    spark = session(master)
    told = {}
    for name in ("warm", "trace"):
        events = hs.read_trace(spark, folder / name)
        for what, work in (
            ("lay", lambda events=events: lay_down(events).persist().count()),
            (
                "writer",
                lambda events=events, name=name: events.write.parquet(str(folder / f"{name}-written")),
            ),
        ):
            before = cpu_times()
            work()
            after = cpu_times()
            told[what] = sum(after.values()) - sum(before.values())
    spark.stop()
    return told | {"cpu": told["lay"], "ratio": told["lay"] / told["writer"]}


def metrics(spark) -> dict[str, float]:
    """Bytes that Spark's stages count, and what Python workers wrote to disk."""
    store = spark.sparkContext._jsc.sc().statusStore()
    stages = store.stageList(
        None, False, False, spark.sparkContext._gateway.new_array(spark.sparkContext._jvm.double, 0), None
    )
    found = dict.fromkeys(("input", "output", "shuffled"), 0.0)
    for i in range(stages.length()):
        stage = stages.apply(i)
        found["input"] += stage.inputBytes()
        found["output"] += stage.outputBytes()
        found["shuffled"] += stage.shuffleReadBytes() + stage.shuffleWriteBytes()
    written = 0
    for pid in descendants(processes()):
        try:
            io = Path(f"/proc/{pid}/io").read_text()
            name = Path(f"/proc/{pid}/comm").read_text()
        except OSError:
            continue
        if "java" not in name:
            written += int(io.split("write_bytes:")[1].split()[0])
    return found | {"python_wrote": float(written)}


def processes() -> dict[int, tuple[int, str, float]]:
    """For every process: its parent, its command, and the CPU seconds of it and its ended children."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue
        name, rest = stat[stat.index("(") + 1 : stat.rindex(")")], stat[stat.rindex(")") + 2 :].split()
        ticks = sum(map(int, rest[11:15]))
        found[int(entry.name)] = int(rest[1]), name, ticks / os.sysconf("SC_CLK_TCK")
    return found


def descendants(every: dict[int, tuple[int, str, float]]) -> list[int]:
    mine, found = {os.getpid()}, []
    while True:
        more = [pid for pid, (parent, _, _) in every.items() if parent in mine and pid not in mine]
        if not more:
            return found
        mine.update(more)
        found += more


def cpu_times() -> dict[str, float]:
    every = processes()
    told = {"driver": time.process_time(), "jvm": 0.0, "workers": 0.0}
    for pid in descendants(every):
        _, name, seconds = every[pid]
        told["jvm" if name == "java" else "workers"] += seconds
    return told


def largest_worker() -> float:
    peaks = [0]
    for pid in descendants(processes()):
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        if "Name:\tjava" not in status and "VmHWM" in status:
            peaks.append(int(status.split("VmHWM:")[1].split()[0]))
    return max(peaks) / 1024


JOBS = {
    "single": time_single,
    "spark": time_spark,
    "through": time_through,
    "frame": time_frame,
    "lay": time_lay,
}


def run(job: str, python: Path, arguments: argparse.Namespace, folder: Path) -> dict[str, float]:
    """A job in a process of its own, by some checkout's Python."""
    command = [str(python), __file__, "--job", job, "--folder", str(folder)]
    command += ["--master", arguments.master, "--timestamps", arguments.timestamps]
    environment = os.environ | {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=True)
    told: dict[str, float] = json.loads(done.stdout)
    return told


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--processes", type=int, default=32)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--timestamps", default="full")
    parser.add_argument("--skip-single", action="store_true")
    parser.add_argument("--shape", choices=["one", "many", "random"], default="one")
    parser.add_argument("--against", type=Path, metavar="CHECKOUT")
    parser.add_argument("--job", choices=[*JOBS], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        print(json.dumps(JOBS[arguments.job](arguments.folder, arguments.timestamps, arguments.master)))
        return
    folder = Path(tempfile.mkdtemp(prefix="happened-scale-"))
    try:
        if arguments.shape == "one":
            make(folder / "trace", arguments.events, arguments.processes)
        else:
            make_many(folder / "trace", arguments.events, arguments.shape == "random")
        make(folder / "warm", 20_000, arguments.processes)
        here = Path(sys.executable)
        told = {}
        if not arguments.skip_single:
            told["single"] = run("single", here, arguments, folder)
        told["spark"] = run("spark", here, arguments, folder)
        told["through"] = run("through", here, arguments, folder)
        told["frame"] = run("frame", here, arguments, folder)
        told["lay"] = run("lay", here, arguments, folder)
        if arguments.against:
            told["against"] = run("spark", arguments.against / ".venv/bin/python", arguments, folder)
        ratios = {
            f"{what} of {other}": told["spark"][what] / told[other][what]
            for other in ("single", "against")
            if other in told
            for what in ("seconds", "cpu")
        }
        ratios["through of spark, cpu"] = told["through"]["cpu"] / told["spark"]["cpu"]
        ratios["frame of spark, cpu"] = told["frame"]["cpu"] / told["spark"]["cpu"]
        ratios["laying down of Spark's writer, cpu"] = told["lay"]["ratio"]
        ratios["jvm of all cpu"] = told["spark"]["jvm"] / told["spark"]["cpu"]
        size = {"events": arguments.events, "processes": arguments.processes}
        print(json.dumps(size | told | {"ratios": ratios}, indent=2))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
