"""Analyse a trace: exact causal order of all events, immediate predecessors, deliveries that came too early,
messages lost or duplicated, the cost of causal order, and clock skew. Writes Parquet tables, summary.json
and report.html to a new directory; with --only, the tables of some questions.
"""

import argparse

from ..core.errors import LocalProtocolError
from .options import (
    TIMESTAMPS,
    add_completeness,
    add_gaps,
    add_output,
    local_path,
    option,
    positive,
    refuse_given,
    stored_path,
)
from .parser import Parser

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
IO = (
    "who reads the trace and writes the tables: Spark, with its connectors and credentials (default on a "
    "cluster), or its tasks by themselves, which is faster (default on this machine)"
)
OF_SPARK = ("work", "resume", "split_rows", "epoch_events", "io")
OF_TRACES = (*OF_SPARK, "only", "complete", "report", "local")


def add_arguments(parser: Parser) -> None:
    option(parser, "trace TRACE", "a trace of `simulate` or `import`, or Parquet", type=stored_path)
    add_output(parser, "a directory that does not exist", type=stored_path)
    about = "answer these questions alone, without a report (see `happened help questions`)"
    option(parser, "--only A,B", about)
    where = parser.add_mutually_exclusive_group()
    option(where, "--master", "without it on local[*]")
    option(where, "--local", "refuses more than 5 million events")
    option(parser, "--report FILE", "with --local: write the report to this .html file", type=local_path)
    option(parser, "--rebuild", "rebuild full vectors from timestamps stored in a shorter form (below)")
    option(parser, "--work", "without it within --out")
    option(parser, "--resume", "resume an interrupted run")
    option(parser, "--split-rows N", "events a task reads at once (default: 500,000)", type=positive)
    about = "events of an epoch of a large computation (default: at most 200,000, by its processes)"
    option(parser, "--epoch-events N", about, type=positive)
    option(parser, "--io", IO, choices=("spark", "direct"))
    about = "stamps as full vectors, as changes since the previous event, or as predecessors alone"
    option(parser, "--timestamps", about, choices=TIMESTAMPS, default=TIMESTAMPS[0])
    add_completeness(parser)
    add_gaps(parser)
    option(parser, "--json")


def run(arguments: argparse.Namespace) -> int:
    if arguments.out is None and not (arguments.local and arguments.report):
        raise LocalProtocolError("name a directory for the tables with --out")
    from . import analyzing

    if arguments.rebuild:
        refuse_given(arguments, OF_TRACES, "is not for --rebuild; leave it out")
        return analyzing.rebuild(arguments)
    if arguments.local:
        refuse_given(arguments, OF_SPARK, "is about Spark: leave it out with --local")
        return analyzing.run_here(arguments)
    refuse_given(arguments, ("report",), "needs --local; on Spark the report is written to --out")
    return analyzing.run_on_spark(arguments)
