"""`make demo`: run a system, record what happened, and have the trace judged by independent code."""

import shutil
import subprocess
import sys
from pathlib import Path

OUT = Path("demo-output")


def step(title: str, command: str) -> None:
    print(f"\n== {title}\n$ happened {command}", flush=True)
    subprocess.run([sys.executable, "-m", "happened", *command.split()], check=True)


def main() -> None:
    shutil.rmtree(OUT, ignore_errors=True)
    run = OUT / "run"
    step(
        "Ten processes multicast over a network that reorders and duplicates",
        f"simulate --processes 10 --messages 2000 --duplicate 0.02 --units --seed 1 --out {run}",
    )
    step("What caused what? On Spark, from the trace alone", f"analyze {run} --out {OUT / 'answers'}")
    step("Was anything delivered before its cause, or carried in vain?", f"check {run} --necessary")
    step("Every interleaving of every program of 3 processes and 2 multicasts", "explore --messages 2")
    print(f"\nOpen {OUT / 'answers' / 'report.html'} in a browser. Next: .venv/bin/happened --help")


if __name__ == "__main__":
    main()
