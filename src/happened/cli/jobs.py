"""One question of `happened analyze` by itself: `happened stamp`, `happened order`, and so on."""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from .analyze import add_options, run_on_spark
from .terminal import print_json

JOBS = {
    "epochs": "consistent cuts, how far the clocks disagree, and every event's time corrected",
    "stamp": "exact vector timestamps of every event",
    "verify-clocks": "the vector clocks a source logged, against the ones that follow from its events",
    "predecessors": "immediate predecessors: the transitive reduction of happened-before",
    "order": "deliveries that came too early, with witnesses; messages lost, doubled or astray",
    "necessary": "what the optimal protocol would have had to carry on each message",
    "measures": "depth, width, traffic and latencies",
}


def add_parser(subparsers: Any) -> None:
    for name, meaning in JOBS.items():
        parser = subparsers.add_parser(
            name,
            help=f"{meaning} (on Spark)",
            description=f"From a trace of any size, on Spark: {meaning}. The tables, and summary.json, are "
            "those of `happened analyze`.",
        )
        add_options(parser)
        parser.set_defaults(run=partial(_run, name))


def _run(name: str, arguments: argparse.Namespace) -> int:
    summary = run_on_spark(arguments, questions=[name])
    if arguments.json:
        print_json(summary)
    else:
        _show(summary, arguments.out)
    return 1 if summary.get("causal_violations") else 0


def _show(summary: dict[str, Any], out: Path) -> None:
    for what, value in summary.items():
        shown = "-" if value is None else f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
        print(f"  {what.replace('_', ' '):34}{shown:>16}")
    print(f"tables and summary.json are in {out}")
