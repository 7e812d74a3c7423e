"""What the table of stamps costs: seconds of CPU to build it and to write it as Parquet, and its size.

    python bench/stamps.py [--events 300000] [--processes 32] [--timestamps full]

Unicasts between random processes, as in scale.py; compare the costs with the kernel that computes vectors.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from happened.causality.analysis import stamps_table
from happened.causality.computation import encode
from happened.causality.stamps import stamp_computation
from happened.spark.storage import write_part
from happened.trace import read
from scale import make

T = TypeVar("T")


def fastest(action: Callable[[], T]) -> tuple[float, T]:
    """Seconds of CPU of the fastest of four runs, the first of which may compile; and the last result."""
    best = float("inf")
    for _ in range(4):
        began = time.process_time()
        result = action()
        best = min(best, time.process_time() - began)
    return best, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=300_000)
    parser.add_argument("--processes", type=int, default=32)
    parser.add_argument("--timestamps", default="full")
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        work = Path(folder)
        make(work / "trace", arguments.events, arguments.processes)
        (computation,) = encode(read(work / "trace"))
        seconds, vectors = fastest(lambda: stamp_computation(computation))
        print(f"kernel {seconds:.3f} s")
        seconds, table = fastest(lambda: stamps_table(computation, vectors, arguments.timestamps))
        print(f"build  {seconds:.3f} s, {table.nbytes / 1e6:.0f} MB")
        seconds, _ = fastest(lambda: write_part(work / "stamps", "part", table))
        size = (work / "stamps" / "part.parquet").stat().st_size
        print(f"write  {seconds:.3f} s, {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
