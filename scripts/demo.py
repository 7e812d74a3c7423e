"""`make demo`: run a system, record what happened, and have the trace judged by code that shares none with it."""

import shutil
import subprocess
import sys
from pathlib import Path

OUT = Path("demo-output")


def step(title: str, *arguments: str) -> None:
    print(f"\n== {title}\n$ happened {' '.join(arguments)}", flush=True)
    subprocess.run([sys.executable, "-m", "happened", *arguments], check=True)


def main() -> None:
    shutil.rmtree(OUT, ignore_errors=True)
    run = str(OUT / "run")
    step(
        "Ten processes multicast over a network that reorders and duplicates",
        *("simulate --processes 10 --messages 2000 --pattern multicast --delay exp:0.1".split()),
        *("--duplicate 0.02 --units --seed 1 --out".split()),
        run,
    )
    step(
        "Was anything delivered before its cause? Was anything carried in vain?", "check", run, "--necessary"
    )
    step("Every interleaving of every program of 3 processes and 2 multicasts", "explore", "--messages", "2")
    print(f"\nThe trace is in {run}; try: {sys.executable} -m happened check --help")


if __name__ == "__main__":
    main()
