"""What does an import cost, in one process and on Spark?

    python bench/importing.py [--megabytes 70] [--master 'local[2]']

A table of spans (CSV, as the Nezha data sets have it) is imported in one run:

plain     in one process
session   an empty Spark session, started and stopped
spark     on Spark

Prints CPU seconds of all processes involved, the largest resident set of any process, and the ratios. The
bench adopts orphaned descendants (Linux only), so that the JVM and the Python workers are counted too.
"""

import argparse
import contextlib
import ctypes
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
HEADER = "TraceID,SpanID,ParentID,PodName,OperationName,StartTimeUnixNano,EndTimeUnixNano,Duration\n"

PLAIN = """
import sys
from pathlib import Path
from happened.trace.importing import import_files
print(import_files([Path(sys.argv[1])], Path(sys.argv[2])).summary["events"])
"""
SESSION = """
import sys
from happened.spark.session import session
session(sys.argv[3], brief=True).stop()
"""
ON_SPARK = """
import sys
from pathlib import Path
from happened.spark.log_import import run
from happened.spark.session import session
spark = session(sys.argv[3], brief=True)
print(run(spark, [Path(sys.argv[1])], Path(sys.argv[2])).summary["events"])
spark.stop()
"""


def make(path: Path, size: int, seed: int = 1) -> int:
    """Write requests of a dozen spans over a few pods, with nested calls."""
    dice = random.Random(seed)
    spans, trace = 0, 0
    with path.open("w") as file:
        file.write(HEADER)
        while file.tell() < size:
            trace += 1
            begin = 1_661_145_517_000_000_000 + trace * 1_000_000
            open_spans = [("root", "", begin, 10_000_000)]
            for number in range(dice.randint(6, 18)):
                parent, _, start, length = dice.choice(open_spans[-3:])
                start, length = start + dice.randint(1, 1000), max(length - dice.randint(2000, 900_000), 1000)
                pod, id = f"service-{dice.randint(0, 40):02d}-668d5f85fb-wckp8", f"{trace:010x}{number:06x}"
                times = f"{start},{start + length},{length // 1000}"
                file.write(f"{trace:032x},{id},{parent},{pod},shop.Service/Get,{times}\n")
                open_spans.append((id, pod, start, length))
                spans += 1
    return spans


def measure(code: str, *arguments: str) -> tuple[float, float, int]:
    """CPU seconds, wall-clock seconds and the largest resident set (bytes) of a program and its descendants.

    Read from /proc while these run: the kernel's sums lack children whose parents do not wait for them.
    """
    start = time.perf_counter()
    program = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.DEVNULL)
    ticks: dict[int, int] = {}
    most = 0
    while (running := descendants()) or program.poll() is None:
        for pid in running:
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                ticks[pid] = int(fields[11]) + int(fields[12])
                most = max(most, int(fields[21]) * resource.getpagesize())
        with contextlib.suppress(ChildProcessError):
            while program.poll() is not None and os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.1)
    if program.returncode:
        raise SystemExit(f"it failed with exit code {program.returncode}")
    return sum(ticks.values()) / os.sysconf("SC_CLK_TCK"), time.perf_counter() - start, most


def descendants() -> list[int]:
    """The ids of all descendants of this process."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if fields[0] != "Z":
                    parents[int(entry.name)] = int(fields[1])
    found, below = [], {os.getpid()}
    while below:
        below = {pid for pid, parent in parents.items() if parent in below and pid not in found}
        found += below
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=70)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--plain-only", action="store_true")
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "spans.csv"
        spans = make(log, options.megabytes << 20)
        print(f"{spans:,} spans, {log.stat().st_size / 1e6:.0f} MB")
        cpu = {}
        for name, code in (("plain", PLAIN), ("session", SESSION), ("spark", ON_SPARK)):
            if name != "plain" and options.plain_only:
                continue
            cpu[name], seconds, most = measure(code, str(log), f"{folder}/{name}", options.master)
            size = f"largest process {most / 1e6:,.0f} MB"
            print(f"{name:<8} {cpu[name]:7.1f} CPU s {seconds:7.1f} s   {size}", flush=True)
        if "spark" in cpu:
            print(f"spark / plain {cpu['spark'] / cpu['plain']:.2f}", end="")
            print(f", without an empty session {(cpu['spark'] - cpu['session']) / cpu['plain']:.2f}")


if __name__ == "__main__":
    main()
