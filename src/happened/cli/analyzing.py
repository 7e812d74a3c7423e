"""Runs `happened analyze`: on Spark, in this process, and to rebuild full vectors."""

import argparse
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from ..causality.judgement import Outcome, judge_totals
from ..causality.questions import QUESTIONS
from ..core.errors import LocalProtocolError, TraceFormatError
from ..trace.atomic import refuse_unavailable, whole_file
from ..trace.location import locate
from ..trace.store import AnyPath, arrow_dataset, size_of
from .checking import SHOWN, note_quarantined
from .options import given, refuse_given
from .output import refuse_earlier_file, replacing
from .parser import meant
from .startup import spark_session
from .terminal import print_json, progress, saying


def refuse_absent(path: AnyPath) -> None:
    if not path.exists():
        raise TraceFormatError("no such file or directory", file=str(path))


def run_on_spark(arguments: argparse.Namespace) -> int:
    if arguments.force and arguments.resume:
        raise LocalProtocolError("--resume continues a run, --force replaces results; give one of them")
    only = questions_of(arguments)
    with replacing(arguments.out, force=arguments.force, reads=[arguments.trace]):
        refuse_absent(arguments.trace)  # before Spark is started, which takes a while
        refuse_unavailable(arguments.out, resume=arguments.resume)
        from ..report.page import write_report
        from ..spark.pipeline import analyze_path
        from ..spark.splits import ROWS_AT_ONCE
        from ..spark.storage import DIRECT, SPARK
        from ..spark.tasks import is_local

        with spark_session(arguments.master, brief=_is_small(arguments.trace)) as spark, saying() as say:
            io = arguments.io or (DIRECT if is_local(spark) else SPARK)
            if io == SPARK:
                reason = "needs --io direct: it is about files that tasks read and write themselves"
                refuse_given(arguments, ("work", "resume", "split_rows"), reason)
            summary = analyze_path(
                spark,
                arguments.trace,
                arguments.out,
                **given(arguments, "timestamps complete epoch_events work resume gaps"),
                split_rows=arguments.split_rows or ROWS_AT_ONCE,
                io=io,
                progress=say,
                questions=only,
                finish=(lambda *_: None) if only else partial(write_report, trace=arguments.trace),
            )
    note_quarantine_in(arguments.out, summary)
    return tell(summary, arguments, None if only else tables_at(arguments.out))


def questions_of(arguments: argparse.Namespace) -> list[str] | None:
    """The questions of --only; None for all."""
    if arguments.only is None:
        return None
    names: list[str] = arguments.only.split(",")
    for name in names:
        if name not in QUESTIONS:
            hint = f"{meant(name, QUESTIONS)}the questions are: {', '.join(QUESTIONS)}"
            raise LocalProtocolError(f"--only {name}: no such question; {hint}")
    return names


def rebuild(arguments: argparse.Namespace) -> int:
    with replacing(arguments.out, force=arguments.force, reads=[arguments.trace]):
        refuse_absent(arguments.trace)  # before Spark is started, which takes a while
        refuse_unavailable(arguments.out, resume=False)
        from ..spark import rebuild as rebuilding

        with spark_session(arguments.master, "rebuilding") as spark:
            summary = rebuilding.rebuild(spark, arguments.trace, arguments.out)
    return tell(summary, arguments)


def run_here(arguments: argparse.Namespace) -> int:
    """The same answers in this process, and the report wherever it is wanted."""
    from ..report.looks import looks
    from ..report.page import pages, write_report
    from ..spark.in_process import analyze_here

    trace, report, only = arguments.trace, arguments.report, questions_of(arguments)
    refuse_absent(trace)
    if report and only:
        raise LocalProtocolError("--report needs all questions; leave --only out")
    view = report and report.with_name(f"{report.stem}-view.html")
    for file in (report, view):
        refuse_earlier_file(file, force=arguments.force)

    def finish(folder: AnyPath, summary: dict[str, Any]) -> None:
        note_quarantine_in(folder, summary)
        if only:
            return
        shown = looks(folder, trace)
        if arguments.out is not None:
            write_report(folder, summary, shown)
        if report is not None:
            kept = arguments.out and os.path.relpath(arguments.out, report.parent)
            texts = pages(folder, summary, shown, view=view.name, tables=kept)
            for file, text in zip((report, view), texts, strict=True):
                if text:
                    with whole_file(file) as unfinished:
                        unfinished.write_text(text, encoding="utf-8")

    with (
        tempfile.TemporaryDirectory(prefix="happened-") as folder,
        replacing(arguments.out, force=arguments.force, reads=[trace]),
        progress("analysing", total=1, unit="trace") as bar,
    ):
        summary = analyze_here(
            trace,
            arguments.out or Path(folder) / "answers",
            **given(arguments, "timestamps complete gaps"),
            questions=only,
            finish=finish,
        )
        bar.update()
    places = [tables_at(arguments.out)] if arguments.out is not None and not only else []
    if report is not None:
        places.append(f"the report is {report}, and {view.name} is what its links show")
    return tell(summary, arguments, "; ".join(places) or None)


SMALL, FEW = 32 << 20, 100
"""Size of a trace that takes seconds, most of which a JVM with all its compilers would need for itself."""


def _is_small(trace: AnyPath) -> bool:
    at = locate(trace)
    files = at.parts or (at.root,)
    return len(files) <= FEW and sum(map(size_of, files)) <= SMALL


def note_quarantine_in(folder: AnyPath, summary: dict[str, Any]) -> None:
    """Say on stderr which rows the tables in a folder leave out, and why."""
    if not summary["quarantined"]:
        return
    rows = arrow_dataset(folder / "quarantine").head(20 * SHOWN).to_pylist()
    reasons = sorted(f"{row['computation']}: {row['reason']}".removeprefix(": ") for row in rows)
    note_quarantined(reasons, summary["quarantined"])


def tables_at(out: AnyPath) -> str:
    return f"tables and summary.json are in {out}; look at {out / 'report.html'}"


NAMED = {"total_violations": "disagree on one total order"}
"""Causal order does not decide that: a causal system is not at fault if it has many."""


def tell(summary: dict[str, Any], arguments: argparse.Namespace, where: str | None = None) -> int:
    """Print the summary and where the answers are; returns the exit code."""
    judgement = judge_totals(summary) if "causal_violations" in summary else None
    if arguments.json:
        print_json(summary)
    else:
        if judgement is not None:
            print(judgement.sentence)
        for name, value in summary.items():
            shown = "-" if value is None else f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
            shown = ("no", "yes")[value] if isinstance(value, bool) else shown
            print(f"  {NAMED.get(name, name.replace('_', ' ')):34}{shown:>16}")
        print(where or f"tables and summary.json are in {arguments.out}")
    if judgement is not None:
        return judgement.exit_code
    if summary.get("tracker_faults"):
        return Outcome.VIOLATED
    return Outcome.QUARANTINED if summary["quarantined"] else Outcome.HOLDS
