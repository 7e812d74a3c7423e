"""One question of `happened analyze` by itself: `happened stamp`, `happened order`, and so on; and
`happened rebuild`, which turns timestamps stored in less into full vectors."""

import argparse
from functools import partial
from typing import Any

from ..causality.questions import QUESTIONS
from ..trace.store import any_path
from .analyze import add_options, note_quarantine_in, refuse_early, run_on_spark, tell
from .output import add_force, replacing
from .terminal import note


def add_parser(subparsers: Any) -> None:
    for question in QUESTIONS.values():
        parser = subparsers.add_parser(
            question.name,
            help=f"{question.help} (on Spark)",
            description=f"From a trace of any size, on Spark: {question.help}. The tables "
            f"({', '.join(question.tables)}), and summary.json, are those of `happened analyze`.",
        )
        add_options(parser)
        parser.set_defaults(run=partial(_run, question.name))
    rebuild = subparsers.add_parser(
        "rebuild",
        help="full vector clocks from dependency vectors, sparse stamps or immediate predecessors (on Spark)",
        description="Rebuild full vector clocks from timestamps that were stored in less: what `analyze "
        "--timestamps sparse` or `predecessors` wrote, or a table of dependency vectors with the columns of "
        "`stamps`. Where only relevant events have a clock, an entry is the seq of the newest of those. Of a "
        "trace in which trackers recorded dependency vectors (p2, incremental, direct), the vectors of the "
        "application's relevant events: they count those alone, without null events.",
    )
    rebuild.add_argument(
        "stamps", type=any_path, metavar="STAMPS", help="a table of stamps, its directory, or a trace"
    )
    rebuild.add_argument("--out", type=any_path, required=True, metavar="DIR", help="must not exist")
    add_force(rebuild)
    rebuild.add_argument("--master", help="Spark master (default: local[*])")
    rebuild.add_argument("--json", action="store_true", help="print the summary as JSON")
    rebuild.set_defaults(run=_rebuild)


def _rebuild(arguments: argparse.Namespace) -> int:
    with replacing(arguments.out, force=arguments.force, reads=[arguments.stamps]):
        refuse_early(arguments.stamps, arguments.out)
        from ..spark.rebuild import rebuild
        from ..spark.session import session

        note(f"rebuilding on Spark ({arguments.master or 'local[*]'})")
        spark = session(arguments.master)
        try:
            summary = rebuild(spark, arguments.stamps, arguments.out)
        finally:
            spark.stop()
    return tell(summary, arguments)


def _run(name: str, arguments: argparse.Namespace) -> int:
    summary = run_on_spark(arguments, questions=[name])
    note_quarantine_in(arguments.out, summary)
    return tell(summary, arguments)
