"""`happened analyze`: what caused what in a trace of any size, on Spark or, with --local, in this process."""

import argparse

from ..core.errors import LocalProtocolError
from .options import TIMESTAMPS, add_completeness, add_gaps, add_output, option
from .parser import Parser
from .terminal import local_path, positive, stored_path

DESCRIPTION = """\
Analyse a trace: exact causal order of all events, immediate predecessors, deliveries that came too early,
messages lost or duplicated, the cost of causal order, and clock skew. Writes Parquet tables, summary.json
and report.html to a new directory; with --only, the tables of some questions.
"""
EPILOG = """\
examples:
  happened analyze run --out answers                         a simulated run, on all cores of this machine
  happened analyze run --out answers --local                 the same in this process, without Spark and Java
  happened analyze run --only order,messages --out answers   two questions
  happened analyze s3://traces/run --out s3://answers/run --master spark://host:7077 --timestamps sparse
  happened analyze run --out answers --resume                after it was interrupted
  happened analyze answers/stamps --rebuild --out full       full vectors of sparse stamps or predecessors

With --rebuild, TRACE is what --timestamps sparse or predecessors wrote, or a table of dependency vectors with
the columns of `stamps`. Where only relevant events have a clock, an entry is the seq of the newest of those.
Of a trace in which trackers recorded dependency vectors (p2, incremental, direct), it is the vectors of the
application's relevant events: they count those alone, without null events.

exit codes, as of `happened check`: 0 causal order holds, 1 violated, 2 bad input, or parts of it quarantined,
3 undecided
"""
OF_SPARK = ("work", "resume", "split_rows", "epoch_events", "io")
OF_TRACES = (*OF_SPARK, "only", "complete", "report", "local")


def add_arguments(parser: Parser) -> None:
    add = parser.add_argument
    add("trace", type=stored_path, metavar="TRACE", help="a trace of `simulate` or `import`, or Parquet")
    add_output(parser, "a directory that does not exist", type=stored_path)
    add(
        "--only",
        metavar="A,B",
        help="answer these questions alone, without a report (see `happened help questions`)",
    )
    where = parser.add_mutually_exclusive_group()
    option(where, "--master", "without it on local[*]")
    option(where, "--local", "refuses more than 5 million events")
    add("--report", type=local_path, metavar="FILE", help="with --local: write the report to this .html file")
    add(
        "--rebuild",
        action="store_true",
        help="rebuild full vectors from timestamps stored in a shorter form (below)",
    )
    option(parser, "--work", "without it within --out")
    add("--resume", action="store_true", help="resume an interrupted run")
    add("--split-rows", type=positive, metavar="N", help="events a task reads at once (default: 500,000)")
    add(
        "--epoch-events",
        type=positive,
        metavar="N",
        help="events of an epoch of a large computation (default: at most 200,000, by its processes)",
    )
    add(
        "--io",
        choices=("spark", "direct"),
        help="who reads the trace and writes the tables: Spark, with its connectors and credentials (default "
        "on a cluster), or its tasks by themselves, which is faster (default on this machine)",
    )
    add(
        "--timestamps",
        choices=TIMESTAMPS,
        default=TIMESTAMPS[0],
        help="stamps as full vectors, as changes since the previous event, or as predecessors alone",
    )
    add_completeness(parser)
    add_gaps(parser)
    option(parser, "--json")


def run(arguments: argparse.Namespace) -> int:
    if arguments.out is None and not (arguments.local and arguments.report):
        raise LocalProtocolError("name a directory for the tables with --out")
    from . import analyzing

    if arguments.rebuild:
        _refuse(arguments, OF_TRACES, "is not for --rebuild; leave it out")
        return analyzing.rebuild(arguments)
    if arguments.local:
        _refuse(arguments, OF_SPARK, "is about Spark: leave it out with --local")
        return analyzing.run_here(arguments)
    _refuse(arguments, ("report",), "needs --local; on Spark the report is written to --out")
    return analyzing.run_on_spark(arguments)


def _refuse(arguments: argparse.Namespace, names: tuple[str, ...], reason: str) -> None:
    for name in names:
        if getattr(arguments, name):
            raise LocalProtocolError(f"--{name.replace('_', '-')} {reason}")
