"""Does a trace of very many small computations cost only what its events cost?

    python bench/many.py [--computations 200000] [--spans 10] [--services 40] [--master 'local[2]']

The computations are like request traces of tracing systems: trees of spans over a few services. In one run:

single    one process: read, analyse, write every table
spark     happened analyze on the same files

Prints seconds, the ratio, the memory of the largest Python worker, and how often Spark passed Python a batch.
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

from happened.causality.analysis import TABLES, analyse
from happened.trace import SCHEMA, read

ROWS_PER_PART = 250_000


def make(path: Path, computations: int, spans: int, services: int, seed: int = 1) -> None:
    """Span k of a trace has a parent among spans 0 … k - 1 and starts after it."""
    dice = np.random.default_rng(seed)
    size = computations * spans
    computation = np.repeat(np.arange(computations), spans)
    place = np.tile(np.arange(spans), computations)
    home = dice.integers(0, services, (computations, 4))  # a request touches at most four services
    service = home[computation, dice.integers(0, 4, size)]
    parent = np.floor(dice.random(size) * np.maximum(place, 1)).astype(np.int64)
    chain = computation * services + service
    order = np.argsort(chain, kind="stable")
    starts = np.flatnonzero(np.diff(chain[order], prepend=-1))
    seq = np.empty(size, np.int64)
    seq[order] = np.arange(size) - np.repeat(starts, np.diff([*starts, size])) + 1
    names = pa.array([f"service-{s:02d}" for s in range(services)])
    traces = pa.array([f"{number:032x}" for number in range(computations)])
    path.mkdir(parents=True)
    for part, at in enumerate(range(0, size, ROWS_PER_PART)):
        rows = np.arange(at, min(at + ROWS_PER_PART, size))
        child = place[rows] > 0
        cause = computation[rows[child]] * spans + parent[rows[child]]
        offsets = np.concatenate([[0], np.cumsum(child)]).astype(np.int32)
        causes = pa.StructArray.from_arrays(
            [names.take(pa.array(service[cause])), pa.array(seq[cause])], ["process", "seq"]
        )
        columns = {
            "computation": traces.take(pa.array(computation[rows])),
            "process": names.take(pa.array(service[rows])),
            "seq": pa.array(seq[rows]),
            "kind": pa.repeat("internal", len(rows)),
            "time": pa.array(computation[rows] * 1_000_000 + place[rows] * 1000),
            "relevant": pa.repeat(False, len(rows)),
            "causes": pa.ListArray.from_arrays(offsets, causes, mask=pa.array(~child)),
        }
        table = pa.table(
            [
                columns[field.name].cast(field.type)
                if field.name in columns
                else pa.nulls(len(rows), field.type)
                for field in SCHEMA
            ],
            schema=SCHEMA,
        )
        pq.write_table(table, path / f"part-{part:05d}.parquet")


def single(trace: Path, out: Path) -> int:
    analysis = analyse(read(trace))
    out.mkdir()
    for name in TABLES:
        pq.write_table(analysis.table(name), out / f"{name}.parquet")
    return analysis.totals["computations"]


def main() -> None:
    from happened.spark.pipeline import analyze_path
    from happened.spark.session import session
    from happened.spark.tasks import on_tasks

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--computations", type=int, default=200_000)
    parser.add_argument("--spans", type=int, default=10)
    parser.add_argument("--services", type=int, default=40)
    parser.add_argument("--master", default="local[2]")
    arguments = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="happened-many-"))
    result: dict[str, float] = {"computations": arguments.computations}
    try:
        make(work / "trace", arguments.computations, arguments.spans, arguments.services)
        make(work / "warm", 500, arguments.spans, arguments.services)
        single(work / "warm", work / "warm-single")
        spark = session(arguments.master)
        analyze_path(spark, work / "warm", work / "warm-spark")
        for what, run in (
            ("single", lambda: single(work / "trace", work / "single")),
            ("spark", lambda: analyze_path(spark, work / "trace", work / "spark")["computations"]),
        ):
            start = time.perf_counter()
            assert run() == arguments.computations
            result[what] = time.perf_counter() - start
            print(f"  {what:8} {result[what]:8.1f} s", flush=True)
        result["spark/single"] = result["spark"] / result["single"]
        result["batches"] = len(list((work / "spark" / "stamps").glob("whole-*.parquet")))
        memory = on_tasks(spark, 16, lambda _: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        result["worker_megabytes"] = max(memory) / 1024
        print(json.dumps(result, indent=2))
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
