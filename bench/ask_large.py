"""What do questions cost on a trace that is too large for one process?

    python bench/ask_large.py [--events 6000000] [--shape requests|one] [--questions why,critical-path]
                              [--master 'local[2]'] [--local]

The bench makes a trace: `requests` has a computation for each request, in which a gateway calls two services;
`one` is a single computation of 32 processes (bench/scale.py). Then it asks each question on Spark, in a
command of its own, and with --local in one process too. Prints CPU seconds of all processes, wall-clock
seconds, and the largest resident set of any process; Linux only (see bench/importing.py).
"""

import argparse
import ctypes
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from happened.trace import SCHEMA
from importing import PR_SET_CHILD_SUBREAPER, measure
from scale import make as make_one

REQUESTS_PER_PART = 40_000
ASK = "import sys; from happened.cli import main; raise SystemExit(main(sys.argv[1:]))"

EVENTS = (
    ("gateway", 1, "internal", None, None, "POST /checkout", 0),
    ("gateway", 2, "send", "reserve", "stock", "reserve", 5),
    ("stock", 1, "deliver", "reserve", None, "POST /reserve", 8),
    ("stock", 2, "send", "reserved", "gateway", "POST /reserve (end)", 22),
    ("gateway", 3, "deliver", "reserved", None, "reserve (end)", 25),
    ("gateway", 4, "send", "charge", "payment", "charge", 26),
    ("payment", 1, "deliver", "charge", None, "POST /charge", 30),
    ("payment", 2, "send", "charged", "gateway", "POST /charge (end)", 70),
    ("gateway", 5, "deliver", "charged", None, "charge (end)", 72),
    ("gateway", 6, "internal", None, None, "POST /checkout (end)", 80),
)
"""The events of a request: process, seq, kind, message, destination, label, ms since the request began."""


def make_requests(path: Path, events: int, seed: int = 1) -> None:
    dice = np.random.default_rng(seed)
    path.mkdir(parents=True)
    requests = events // len(EVENTS)
    process, seq, kind, message, to, label, offset = (list(column) for column in zip(*EVENTS, strict=True))
    for part, first in enumerate(range(0, requests, REQUESTS_PER_PART)):
        count = min(REQUESTS_PER_PART, requests - first)
        rows = pa.array(np.tile(np.arange(len(EVENTS)), count))
        request = np.repeat(np.arange(first, first + count), len(EVENTS))
        names = pa.array([f"{number:032x}" for number in range(first, first + count)])
        name = names.take(pa.array(request - first))
        took = np.tile(np.array(offset), count) * dice.integers(800_000, 1_200_000, count).repeat(len(EVENTS))
        services = pa.array(process).take(rows)
        keys = pa.array(["service", "trace"] * len(rows))
        values = pa.concat_arrays([services, name]).take(
            pa.array(np.arange(2 * len(rows)).reshape(2, -1).T.reshape(-1))
        )
        offsets = pa.array(np.arange(len(rows) + 1, dtype=np.int32) * 2)
        columns = {
            "computation": name,
            "process": services,
            "seq": pa.array(seq).take(rows),
            "kind": pa.array(kind).take(rows),
            "message": pa.array(message).take(rows),
            "to": pa.array([None if each is None else [each] for each in to]).take(rows),
            "time": pa.array(request * 10_000_000 + took),
            "relevant": pa.repeat(False, len(rows)),
            "label": pa.array(label).take(rows),
            "attributes": pa.MapArray.from_arrays(offsets, keys, values),
        }
        fields = pa.schema([field for field in SCHEMA if field.name in columns])
        table = pa.table(columns).select(fields.names).cast(fields)
        pq.write_table(table, path / f"part-{part:05d}.parquet", compression="zstd")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=6_000_000)
    parser.add_argument("--shape", choices=("requests", "one"), default="requests")
    parser.add_argument("--questions", default="why,path,past,future,influenced,critical-path")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--local", action="store_true")
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory(prefix="happened-ask-large-") as folder:
        trace = Path(folder) / "trace"
        if options.shape == "one":
            make_one(trace, options.events, 32)
            first, last, request = "p003#5", f"p007#{options.events // 64}", "big"
        else:
            make_requests(trace, options.events)
            request = f"{options.events // len(EVENTS) // 2:032x}"
            first, last = f"{request}:gateway#1", f"{request}:gateway#6"
        words = {"why": [last], "path": [first, last], "past": [last], "future": [first]}
        words |= {"influenced": [request], "critical-path": []}
        print(f"{options.events:,} events, {options.shape}")
        for question in options.questions.split(","):
            for where in (["--master", options.master], ["--local"])[: 1 + options.local]:
                cpu, seconds, most = measure(ASK, question, str(trace), *words[question], *where)
                size = f"largest process {most / 1e6:,.0f} MB"
                print(f"{question:<14} {where[-1]:<9} {cpu:7.1f} CPU s {seconds:7.1f} s   {size}", flush=True)


if __name__ == "__main__":
    main()
