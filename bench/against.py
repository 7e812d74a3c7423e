"""Has anything become slower than in another checkout? Runs the same benchmarks in both, alternately.

    python bench/against.py OTHER [--rounds 3] [--only ordering,tracking,net,scale] [--quick] [--json]

OTHER is a checkout with a .venv of its own: `git worktree add ../before COMMIT; make -C ../before install`.
Each round runs a benchmark in the other checkout and then in this one. A line gives how much faster this
checkout is (1 is as fast, below 1 slower), and the medians of both.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent.parent


class Benchmark(NamedTuple):
    command: tuple[str, ...]
    figures: str  # a pattern for the names of the relevant figures
    is_time: bool  # whether the figures are times; otherwise rates


BENCHMARKS = {
    "ordering": Benchmark(("bench/ordering.py", "--json"), r"throughput .* (ks|literal)$", False),
    "tracking": Benchmark(("bench/tracking.py", "--json"), r"^(?!numpy).* µs$", True),
    "net": Benchmark(("bench/net.py", "--json"), r"(node|journal) per_(cpu_)?second$", False),
    "scale": Benchmark(("bench/scale.py", "--events", "2000000", "--analyze"), r"^(spark|analyze)$", True),
}


def measure(checkout: Path, benchmark: Benchmark, quick: bool) -> dict[str, float]:
    shorter = ["--quick"] if quick and "--json" in benchmark.command else []
    command = [checkout / ".venv" / "bin" / "python", *benchmark.command, *shorter]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{checkout}: {' '.join(benchmark.command)} failed:\n{done.stderr[-2000:]}")
    document = json.loads(done.stdout[re.search(r"^\{", done.stdout, re.M).start() :])
    return {name: value for name, value in figures(document) if re.search(benchmark.figures, name)}


def figures(value, name=""):
    """The numbers in a document, each named by its path and by the texts and whole numbers beside it."""
    if isinstance(value, dict):
        own = " ".join(str(each) for each in value.values() if isinstance(each, str | int))
        for key, each in value.items():
            yield from figures(each, f"{name} {own if name else ''} {key}".strip())
    elif isinstance(value, list):
        for each in value:
            yield from figures(each, name)
    elif isinstance(value, float):
        yield re.sub(r"\s+", " ", name), value


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="run their short forms, where they have one")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    result = {}
    for which in arguments.only.split(","):
        benchmark = BENCHMARKS[which]
        rounds = [
            tuple(measure(checkout, benchmark, arguments.quick) for checkout in (arguments.other, HERE))
            for _ in range(arguments.rounds)
        ]
        for name in rounds[0][0]:
            before, now = (statistics.median(each[side][name] for each in rounds) for side in (0, 1))
            ratio = before / now if benchmark.is_time else now / before
            result[f"{which}: {name}"] = {"before": before, "now": now, "ratio": ratio}
            if not arguments.json:
                print(f"{ratio:6.2f}  {before:14,.2f} {now:14,.2f}  {which}: {name}", flush=True)
    if arguments.json:
        print(json.dumps(result, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
