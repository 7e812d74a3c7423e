"""What does a small trace cost beyond starting and stopping Spark?

    python bench/small.py [--rounds 3]

Alternates, in processes of their own, between a session that does nothing and `happened analyze` of 39
events; prints the wall-clock seconds of each and the CPU seconds of all its processes (bench/importing.py;
Linux only), and the differences of the medians. On a busy machine, look at the CPU seconds.
"""

import argparse
import ctypes
import json
import statistics
import tempfile
from pathlib import Path

from importing import PR_SET_CHILD_SUBREAPER, measure

MESSAGES = 13
EMPTY = "from happened.spark.session import session; session('local[2]').stop()"
ANALYZE = """
import sys
from happened.cli import main
raise SystemExit(main(["analyze", sys.argv[1], "--out", sys.argv[2], "--master", "local[2]"]))
"""


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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    told: dict[str, list[tuple[float, float]]] = {"empty": [], "analyze": []}
    with tempfile.TemporaryDirectory(prefix="happened-small-") as folder:
        trace = Path(folder) / "trace.jsonl"
        write(trace)
        for number in range(arguments.rounds):
            told["empty"].append(measure(EMPTY)[:2])
            told["analyze"].append(measure(ANALYZE, str(trace), f"{folder}/out{number}")[:2])
    for what, costs in told.items():
        print(f"{what:8}", *(f"{seconds:6.1f} s ({cpu:.1f} CPU)" for cpu, seconds in costs))
    cpu, seconds = (
        statistics.median(cost[k] for cost in told["analyze"])
        - statistics.median(cost[k] for cost in told["empty"])
        for k in range(2)
    )
    print(f"analyze takes {seconds:.1f} s and {cpu:.1f} CPU s more")


if __name__ == "__main__":
    main()
