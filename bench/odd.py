"""Does `happened analyze` cope with traces of odd shapes? Each is compared with an ordinary one of its size.

    python bench/odd.py [--events 1000000] [--only files nine] [--master 'local[2]']

files     5,000 small input files, against the same rows in files of ROWS_PER_PART
shuffled  rows in random order across files, against the same rows in the order in which they happened
nine      nine computations just above the limit, against one computation of their total size
lopsided  one process with nine tenths of the events, against processes with equal numbers of events
many      computations of four events each, against one computation of their total size
wide      10,000 processes, against 32

Prints seconds, the ratio, and the CPU of driver, JVM and workers.
"""

import argparse
import json
import logging
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import scale
from happened.spark.pipeline import WHOLE_EVENTS, analyze_path
from happened.spark.session import session

PROCESSES = 32


def table_of(events: int, name: str = "big", processes: int = PROCESSES, seed: int = 1) -> pa.Table:
    with tempfile.TemporaryDirectory() as folder:
        scale.make(Path(folder) / "trace", events, processes, seed)
        table = pq.read_table(Path(folder) / "trace")
    return table.set_column(0, table.schema.field(0), pa.repeat(name, len(table)))


def write(table: pa.Table, path: Path, rows: int = scale.ROWS_PER_PART) -> None:
    path.mkdir(parents=True)
    for number, at in enumerate(range(0, len(table), rows)):
        pq.write_table(table.slice(at, rows), path / f"part-{number:05d}.parquet")


def files(folder: Path, events: int) -> None:
    table = table_of(events)
    write(table, folder / "plain")
    write(table, folder / "odd", max(1, events // 5000))


def shuffled(folder: Path, events: int) -> None:
    table = table_of(events)
    write(table, folder / "plain")
    write(table.take(pa.array(np.random.default_rng(2).permutation(len(table)))), folder / "odd")


def nine(folder: Path, events: int) -> None:
    each = WHOLE_EVENTS + 2
    write(table_of(9 * each), folder / "plain")
    tables = [table_of(each, f"c{number}", seed=number) for number in range(9)]
    write(pa.concat_tables(tables), folder / "odd")


def lopsided(folder: Path, events: int) -> None:
    """Between its communication with the others, one process has many events of its own."""
    table = table_of(events // 10)
    busy = pa.table(
        {
            "computation": pa.repeat("big", events - len(table)),
            "process": pa.repeat("p000", events - len(table)),
            "kind": pa.repeat("internal", events - len(table)),
            "time": np.linspace(0, pc.max(table["time"]).as_py(), events - len(table)).astype(np.int64),
            "relevant": pa.repeat(False, events - len(table)),
        }
    )
    both = pa.concat_tables([table.drop_columns(["seq"]), busy], promote_options="default").sort_by("time")
    of = pc.equal(both["process"], "p000").to_numpy()
    seq = np.zeros(len(both), np.int64)
    seq[of] = np.arange(1, of.sum() + 1)
    for process in pc.unique(both["process"]).to_pylist():
        mine = pc.equal(both["process"], process).to_numpy()
        seq[mine] = np.arange(1, mine.sum() + 1)
    both = both.append_column("seq", pa.array(seq)).select(table.column_names)
    write(both.cast(table.schema), folder / "odd")
    write(table_of(events), folder / "plain")


def many(folder: Path, events: int) -> None:
    """In each computation p sends to q and r, and they answer p."""
    write(table_of(events), folder / "plain")
    count = events // 4
    number = np.repeat(np.arange(count), 4)
    step = np.tile(np.arange(4), count)
    names = pc.binary_join_element_wise("c", pa.array(number).cast(pa.string()), "")
    to = pa.array([["q"], None, ["p"], None]).take(pa.array(step))
    table = pa.table(
        {
            "computation": names,
            "process": pa.array(["p", "q", "q", "p"]).take(pa.array(step)),
            "seq": pa.array(np.array([1, 1, 2, 2])[step]),
            "kind": pa.array(["send", "deliver", "send", "deliver"]).take(pa.array(step)),
            "message": pa.array(["a", "a", "b", "b"]).take(pa.array(step)),
            "to": to,
            "time": pa.array(number * 10 + step),
            "relevant": pa.repeat(False, len(number)),
        }
    )
    write(table, folder / "odd")


def wide(folder: Path, events: int) -> None:
    write(table_of(events), folder / "plain")
    write(table_of(events, processes=10_000), folder / "odd")


SHAPES = {shape.__name__: shape for shape in (files, shuffled, nine, lopsided, many, wide)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--only", nargs="*", choices=[*SHAPES], default=[*SHAPES])
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--verbose", action="store_true", help="print each step, and when it begins")
    arguments = parser.parse_args()
    if arguments.verbose:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    work = Path(tempfile.mkdtemp(prefix="happened-odd-"))
    try:
        scale.make(work / "warm", 20_000, PROCESSES)
        spark = session(arguments.master)
        analyze_path(spark, work / "warm", work / "warm-out", whole_events=10_000)
        for name in arguments.only:
            SHAPES[name](work / name, arguments.events)
            told: dict[str, object] = {"shape": name, "events": arguments.events}
            seconds = {}
            for which in ("plain", "odd"):
                before, start = scale.cpu_times(), time.perf_counter()
                analyze_path(spark, work / name / which, work / name / f"{which}-out")
                seconds[which] = time.perf_counter() - start
                after = scale.cpu_times()
                cpu = {who: round(after[who] - before[who], 1) for who in before}
                told[which] = {"seconds": round(seconds[which], 1)} | cpu
            told["ratio"] = round(seconds["odd"] / seconds["plain"], 2)
            told["worker_megabytes"] = round(scale.largest_worker())
            print(json.dumps(told), flush=True)
            shutil.rmtree(work / name)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
