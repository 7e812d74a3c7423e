"""What does a small trace cost beyond starting and stopping Spark?

    python bench/small.py [--rounds 3]

Alternates, in processes of their own, between a session that does nothing and `happened analyze` of 39
events;
prints the seconds of each, by the clock and of CPU, and the difference of the medians.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MESSAGES = 13
EMPTY = "from happened.spark.session import session; session('local[2]').stop()"


def write(path: Path) -> None:
    """p tells q, who tells r: 39 events."""
    rows, seq = [], dict.fromkeys("pqr", 0)

    def happened(process: str, **what: object) -> None:
        seq[process] += 1
        rows.append({"process": process, "seq": seq[process], "time": len(rows), **what})

    for number in range(MESSAGES):
        happened("p", kind="send", message=f"m{number}", to=["q", "r"])
        happened("q", kind="deliver", message=f"m{number}")
        happened("r", kind="deliver", message=f"m{number}")
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def timed(*command: str) -> tuple[float, float]:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *command], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - start, cpu


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    told: dict[str, list[tuple[float, float]]] = {"empty": [], "analyze": []}
    with tempfile.TemporaryDirectory(prefix="happened-small-") as folder:
        trace = Path(folder) / "trace.jsonl"
        write(trace)
        for number in range(arguments.rounds):
            told["empty"].append(timed("-c", EMPTY))
            out = str(Path(folder) / f"out{number}")
            told["analyze"].append(
                timed("-m", "happened", "analyze", str(trace), "--out", out, "--master", "local[2]")
            )
    for what, times in told.items():
        print(f"{what:8}", *(f"{seconds:6.1f} s ({cpu:.1f} CPU)" for seconds, cpu in times))
    medians = {what: statistics.median(seconds for seconds, _ in times) for what, times in told.items()}
    print(f"analyze takes {medians['analyze'] - medians['empty']:.1f} s more")


if __name__ == "__main__":
    main()
