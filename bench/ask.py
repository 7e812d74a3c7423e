"""Are questions answered within seconds, and what does an analysis without Spark save?

    python bench/ask.py [--events 100000] [--spans 10000] [--rounds 3] [--spark]

Runs each command in a process of its own, from start to end, after a run that is not counted (it compiles the
kernels). Prints the wall-clock and CPU seconds of the fastest round, and the ratio of its CPU to that of a
process that only reads the same trace. With --spark, it also runs `happened analyze` of the same spans; look
at its wall-clock seconds, since the JVM is not a child process and its CPU is not seen.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

SPANS_PER_TRACE = 10
READ = "import sys; from happened import read_trace; read_trace(sys.argv[1])"


class Cost(NamedTuple):
    cpu: float
    seconds: float


def timed(words: Sequence[str]) -> Cost:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    if done.returncode not in (0, 3):
        raise SystemExit(done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(cpu, time.perf_counter() - start)


def happened(*words: str) -> list[str]:
    return ["-m", "happened", *words]


def spans(count: int) -> str:
    """OTLP of overlapping requests, in each of which a gateway calls nine other services one by one."""
    told: dict[str, list[dict[str, object]]] = {}
    for number in range(count):
        trace, place = divmod(number, SPANS_PER_TRACE)
        begin = trace * 20_000_000 + place * 1_000_000
        end = begin + (30_000_000 if place == 0 else 900_000)
        told.setdefault(f"service-{place}", []).append(
            {
                "traceId": f"{trace + 1:032x}",
                "spanId": f"{number + 1:016x}",
                "parentSpanId": "" if place == 0 else f"{trace * SPANS_PER_TRACE + 1:016x}",
                "name": f"GET /{place}",
                "kind": 2,
                "startTimeUnixNano": str(begin),
                "endTimeUnixNano": str(end),
            }
        )
    resources = [
        {
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]},
            "scopeSpans": [{"spans": of}],
        }
        for service, of in told.items()
    ]
    return json.dumps({"resourceSpans": resources})


def compare(title: str, trace: Path, commands: dict[str, list[str]], rounds: int) -> None:
    every = {"only reading it": ["-c", READ, str(trace)], **commands}
    for words in every.values():
        timed(words)
    costs = {name: min(timed(words) for _ in range(rounds)) for name, words in every.items()}
    least = costs["only reading it"].cpu
    print(title)
    for name, cost in costs.items():
        print(f"  {name:<32} {cost.seconds:6.2f} s  {cost.cpu:6.2f} CPU  {cost.cpu / least:5.1f} x")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--spans", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--spark", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="happened-ask-") as name:
        folder = Path(name)
        run, answers = folder / "run", folder / "answers"
        messages = str(max(1, arguments.events // 21))  # a send, and ten receives and ten deliveries each
        timed(
            happened(
                "simulate", "--processes", "20", "--messages", messages, "--seed", "1", "--out", str(run)
            )
        )
        timed(happened("analyze", str(run), "--local", "--out", str(answers)))
        questions = {
            "why": ["p3#2000"],
            "path": ["p3#5", "p7#2000"],
            "past": ["p3#2000"],
            "future": ["p3#200"],
            "critical-path": [],
            "influenced": ["p3#2000"],
        }
        commands = {name: happened("ask", name, str(run), *words) for name, words in questions.items()}
        commands["diff"] = happened("ask", "diff", str(run), str(run))
        commands["why, from the tables"] = happened("ask", "why", str(answers), "p3#2000")
        events = json.loads((answers / "summary.json").read_text())["events"]
        compare(f"{events:,} events of 20 processes", run, commands, arguments.rounds)

        (folder / "spans.json").write_text(spans(arguments.spans))
        shop, tables, page = folder / "shop", str(folder / "tables"), str(folder / "page.html")
        timed(happened("import", str(folder / "spans.json"), "--out", str(shop)))
        commands = {
            "critical-path": happened("ask", "critical-path", str(shop)),
            "analyze --local --report": happened(
                "analyze", str(shop), "--local", "--out", tables, "--report", page, "--force"
            ),
        }
        if arguments.spark:
            commands["analyze"] = happened("analyze", str(shop), "--out", str(folder / "spark"), "--force")
        compare(f"{arguments.spans:,} spans", shop, commands, arguments.rounds)


if __name__ == "__main__":
    main()
