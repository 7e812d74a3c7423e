"""One question of `happened analyze` by itself: `happened stamp`, `happened order`, and so on; and
`happened rebuild`, which turns timestamps stored in less into full vectors."""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from .analyze import add_options, refuse_early, run_on_spark, show_totals, verdict
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
    rebuild = subparsers.add_parser(
        "rebuild",
        help="full vector clocks from dependency vectors, sparse stamps or immediate predecessors (on Spark)",
        description="Rebuild full vector clocks from timestamps that were stored in less: what `analyze "
        "--timestamps sparse` or `predecessors` wrote, or a table of dependency vectors with the columns of "
        "`stamps`. Where only relevant events have a clock, an entry is the seq of the newest of those.",
    )
    rebuild.add_argument("stamps", type=Path, metavar="STAMPS", help="a table of stamps, or its directory")
    rebuild.add_argument("--out", type=Path, required=True, metavar="DIR", help="must not exist")
    rebuild.add_argument("--master", help="Spark master (default: local[*])")
    rebuild.add_argument("--json", action="store_true", help="print the summary as JSON")
    rebuild.set_defaults(run=_rebuild)


def _rebuild(arguments: argparse.Namespace) -> int:
    refuse_early(arguments.stamps, arguments.out)
    from ..spark.rebuild import rebuild
    from ..spark.session import session

    spark = session(arguments.master)
    try:
        _print(rebuild(spark, arguments.stamps, arguments.out), arguments)
    finally:
        spark.stop()
    return 0


def _run(name: str, arguments: argparse.Namespace) -> int:
    summary = run_on_spark(arguments, questions=[name])
    _print(summary, arguments)
    return 1 if summary.get("causal_violations") else 0


def _print(summary: dict[str, Any], arguments: argparse.Namespace) -> None:
    if arguments.json:
        print_json(summary)
        return
    if "causal_violations" in summary:
        print(verdict(summary))
    show_totals(summary)
    print(f"tables and summary.json are in {arguments.out}")
