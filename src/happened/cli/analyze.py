"""`happened analyze`: what caused what in a trace of any size, on Spark."""

import argparse
import logging
import sys
from functools import partial
from typing import Any

from ..causality.judgement import Outcome, judge_totals
from ..causality.questions.stamp import TIMESTAMPS
from ..core.errors import LocalProtocolError, TraceFormatError
from ..trace.atomic import refuse_unavailable
from ..trace.location import locate
from ..trace.store import AnyPath, any_path, arrow_dataset, size_of
from .completeness import SHOWN, add_completeness, add_gaps, note_quarantined
from .output import add_force, replacing
from .terminal import note, positive, print_json

DESCRIPTION = """\
Work out on Spark what a trace says: exact causal order of all events, immediate predecessors, deliveries that
came too early, what was lost or doubled, what causal order would have cost, and how far the clocks disagree.
Writes Parquet tables and summary.json to a new directory.
"""
EPILOG = """\
examples:
  happened analyze run --out answers                         a simulated run, on all cores of this machine
  happened analyze s3://traces/run --out s3://answers/run --master spark://host:7077 --timestamps sparse
  happened analyze run --out answers --resume                after it was interrupted

exit codes, as of `happened check`: 0 causal order holds, 1 violated, 2 bad input, or parts of it quarantined,
3 undecided
"""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "analyze",
        help="analyse a trace of any size on Spark",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_options(parser)
    parser.set_defaults(run=run)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "trace", type=any_path, metavar="TRACE", help="what `simulate` or `import` made, or Parquet"
    )
    parser.add_argument(
        "--out", type=any_path, required=True, metavar="DIR", help="a directory that does not exist"
    )
    add_force(parser)
    parser.add_argument(
        "--work",
        type=any_path,
        metavar="DIR",
        help="for intermediates, which every executor must reach (default: within --out)",
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on from what a run left that did not finish"
    )
    parser.add_argument(
        "--split-rows", type=positive, metavar="N", help="events a task reads at once (default: 500,000)"
    )
    parser.add_argument(
        "--epoch-events",
        type=positive,
        metavar="N",
        help="events of an epoch of a large computation (default: at most 200,000, by its processes)",
    )
    parser.add_argument("--master", help="Spark master (default: local[*])")
    parser.add_argument(
        "--io",
        choices=("spark", "direct"),
        help="who reads the trace and writes the tables: Spark, with its connectors and credentials (default "
        "on a cluster), or its tasks by themselves, which is faster (default on this machine)",
    )
    parser.add_argument(
        "--timestamps",
        choices=TIMESTAMPS,
        default="full",
        help="stamps as full vectors, as changes since the previous event, or as predecessors alone",
    )
    add_completeness(parser)
    add_gaps(parser)
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")


def refuse_early(given: AnyPath, out: AnyPath, *, resume: bool = False) -> None:
    """What can be said before Spark is started, which takes a while."""
    if not given.exists():
        raise TraceFormatError("no such file or directory", file=str(given))
    refuse_unavailable(out, resume=resume)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it would tell of every interrupt with a traceback


def run_on_spark(arguments: argparse.Namespace, **options: Any) -> dict[str, Any]:
    if arguments.force and arguments.resume:
        raise LocalProtocolError("--resume goes on with what is there, --force replaces it; give one of them")
    with replacing(arguments.out, force=arguments.force, reads=[arguments.trace]):
        return _answer_on_spark(arguments, **options)


SMALL, FEW = 32 << 20, 100
"""Bytes and files of a trace that takes seconds, most of which a JVM with all its compilers would need for
itself."""


def _is_small(trace: AnyPath) -> bool:
    at = locate(trace)
    files = at.parts or (at.root,)
    return len(files) <= FEW and sum(map(size_of, files)) <= SMALL


def _answer_on_spark(arguments: argparse.Namespace, **options: Any) -> dict[str, Any]:
    refuse_early(arguments.trace, arguments.out, resume=arguments.resume)
    from ..spark.pipeline import analyze_path
    from ..spark.session import session
    from ..spark.splits import ROWS_AT_ONCE
    from ..spark.storage import DIRECT, SPARK
    from ..spark.tasks import is_local

    spark = session(arguments.master, brief=_is_small(arguments.trace))
    io = arguments.io or (DIRECT if is_local(spark) else SPARK)
    try:
        _refuse_without_files(arguments, io)
        return analyze_path(
            spark,
            arguments.trace,
            arguments.out,
            timestamps=arguments.timestamps,
            complete=arguments.complete,
            epoch_events=arguments.epoch_events,
            split_rows=arguments.split_rows or ROWS_AT_ONCE,
            work=arguments.work,
            resume=arguments.resume,
            gaps=arguments.gaps,
            io=io,
            progress=_say if sys.stderr.isatty() else lambda what: None,
            **options,
        )
    finally:
        if sys.stderr.isatty():
            note("")
        spark.stop()


def _refuse_without_files(arguments: argparse.Namespace, io: str) -> None:
    for option in ("work", "resume", "split_rows"):
        if io == "spark" and getattr(arguments, option):
            raise LocalProtocolError(
                f"--{option.replace('_', '-')} is about files that tasks read and write themselves: give it "
                "with --io direct, or leave it out"
            )


def run(arguments: argparse.Namespace) -> int:
    from ..report.page import write_report

    summary = run_on_spark(arguments, finish=partial(write_report, trace=arguments.trace))
    note_quarantine_in(arguments.out, summary)
    return tell(summary, arguments, tables_at(arguments.out))


def note_quarantine_in(folder: AnyPath, summary: dict[str, Any]) -> None:
    """Say on stderr what the tables in a folder are not about, and why."""
    if not summary["quarantined"]:
        return
    rows = arrow_dataset(folder / "quarantine").head(20 * SHOWN).to_pylist()
    reasons = sorted(f"{row['computation']}: {row['reason']}".removeprefix(": ") for row in rows)
    note_quarantined(reasons, summary["quarantined"])


def tables_at(out: AnyPath) -> str:
    return f"tables and summary.json are in {out}; look at {out / 'report.html'}"


def _say(what: str) -> None:
    """On one line of the terminal, each over the one before."""
    print(f"\r\x1b[Khappened: {what} …", end="", file=sys.stderr, flush=True)


NAMED = {"total_violations": "disagree on one total order"}
"""Causal order alone leaves that open: a causal system is not at fault if it has many."""


def show_totals(summary: dict[str, Any]) -> None:
    for name, value in summary.items():
        shown = "-" if value is None else f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
        shown = ("no", "yes")[value] if isinstance(value, bool) else shown
        print(f"  {NAMED.get(name, name.replace('_', ' ')):34}{shown:>16}")


def tell(summary: dict[str, Any], arguments: argparse.Namespace, where: str | None = None) -> int:
    """Print the summary, and where the answers are; the exit code, that of its judgement if it has one."""
    judgement = judge_totals(summary) if "causal_violations" in summary else None
    if arguments.json:
        print_json(summary)
    else:
        if judgement is not None:
            print(judgement.sentence)
        show_totals(summary)
        print(where or f"tables and summary.json are in {arguments.out}")
    if judgement is not None:
        return judgement.exit_code
    if summary.get("tracker_faults"):
        return Outcome.VIOLATED
    return Outcome.QUARANTINED if summary["quarantined"] else Outcome.HOLDS
