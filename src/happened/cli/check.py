"""happened check: judge a recorded trace by itself, without knowing which protocol made it.

Outcome, sentence and exit code are those of causality.judgement; besides, exit 1 if messages carried other
than the necessary information, and 2 if the path holds no trace. With --out or --report, all that `happened
analyze` answers, in this process.
"""

import argparse
import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from .. import causality
from ..causality import Audit, Necessary, Outcome
from ..causality.computation import REFUSE
from ..causality.judgement import Checked, check_path
from ..core.errors import LocalProtocolError, TraceFormatError
from ..trace.atomic import whole_file
from ..trace.store import AnyPath, any_path
from .completeness import SHOWN, add_completeness, add_gaps, note_quarantined
from .output import add_force, refuse_earlier_file, replacing
from .terminal import local_path, print_json, progress

UNJUDGED = ("quarantined", "duplicate_rows", "sent_outside", "causes_outside")
"""Totals of what the verdict does not rest on; the last two are of windows."""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "check",
        help="judge a recorded trace",
        description="Judge a recorded trace by itself: did deliveries keep the order, did every message "
        "arrive once and only where it was sent, did messages carry no more than necessary?",
        epilog="exit codes: 0 holds, 1 violated, 2 not a trace, or parts of it quarantined, 3 undecided",
    )
    parser.add_argument(
        "path",
        metavar="PATH",
        help="what `happened simulate --out` made, a .parquet file or a directory of them, or JSON lines",
    )
    parser.add_argument(
        "--order", choices=causality.ORDERS, default="causal", help="the order to judge by (default: causal)"
    )
    add_completeness(parser)
    add_gaps(parser)
    parser.add_argument(
        "--necessary",
        action="store_true",
        help="work out the information every message had to carry, and compare it with what was carried "
        "where the trace recorded that",
    )
    parser.add_argument(
        "--out",
        type=any_path,
        metavar="DIR",
        help="answer all that `happened analyze` does, in this process: tables, summary.json, report.html",
    )
    add_force(parser)
    parser.add_argument(
        "--report", type=local_path, metavar="FILE", help="write the report of that to an .html file"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of text")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.out is not None or arguments.report is not None:
        return _answer_all(arguments)
    if arguments.necessary and arguments.gaps != REFUSE:
        raise LocalProtocolError(
            "what messages had to carry depends on events outside of a window: give --gaps or --necessary"
        )
    needed: Necessary | None = None
    audit: Audit | None = None
    with progress("checking", total=3 if arguments.necessary else 1, unit="step") as bar:
        checked = check_path(
            arguments.path, arguments.order, complete=arguments.complete, limit=1, gaps=arguments.gaps
        )
        bar.update()
        if arguments.necessary:
            needed = causality.necessary(checked.computations)
            bar.update()
            audit = causality.audit_units(checked.table, against=needed)
            bar.update()
    note_quarantined(checked.quarantine, checked.totals["quarantined"])
    outcome = checked.judgement.outcome
    if audit is not None and audit.holds is False:
        outcome = Outcome.VIOLATED
    if arguments.json:
        print_json(_document(arguments.path, outcome, checked, needed, audit))
    else:
        print("\n".join(_report(checked, needed, audit)))
    return int(outcome)


def _answer_all(arguments: argparse.Namespace) -> int:
    """What `happened analyze` does, without Spark; says what it says."""
    from ..report.looks import looks
    from ..report.page import pages, write_report
    from ..spark.in_process import analyze_here
    from .analyze import note_quarantine_in, tables_at, tell

    if arguments.necessary or arguments.order != "causal":
        raise LocalProtocolError(
            "--out and --report tell of all orders; give no --order or --necessary with them"
        )
    if not (trace := any_path(arguments.path)).exists():
        raise TraceFormatError("no such file or directory", file=str(trace))
    view = arguments.report and arguments.report.with_name(f"{arguments.report.stem}-view.html")
    refuse_earlier_file(arguments.report, force=arguments.force)
    refuse_earlier_file(view, force=arguments.force)

    def finish(folder: AnyPath, summary: dict[str, Any]) -> None:
        note_quarantine_in(folder, summary)
        shown = looks(folder, trace)
        if arguments.out is not None:
            write_report(folder, summary, shown)
        if arguments.report is not None:
            kept = arguments.out and os.path.relpath(arguments.out, arguments.report.parent)
            texts = pages(folder, summary, shown, view=view.name, tables=kept)
            for file, text in zip((arguments.report, view), texts, strict=True):
                if text:
                    with whole_file(file) as unfinished:
                        unfinished.write_text(text, encoding="utf-8")

    with (
        tempfile.TemporaryDirectory(prefix="happened-") as folder,
        replacing(arguments.out, force=arguments.force, reads=[trace]),
        progress("analysing", total=1, unit="trace") as bar,
    ):
        out = arguments.out or Path(folder) / "answers"
        summary = analyze_here(trace, out, complete=arguments.complete, gaps=arguments.gaps, finish=finish)
        bar.update()
    places = [tables_at(arguments.out)] if arguments.out is not None else []
    if arguments.report is not None:
        places.append(f"the report is {arguments.report}, and {view.name} is what its links show")
    return tell(summary, arguments, "; ".join(places))


def _report(checked: Checked, needed: Necessary | None, audit: Audit | None) -> Iterator[str]:
    judgement, d = checked.judgement, checked.deliveries
    yield judgement.sentence
    for witness in judgement.witnesses[:1]:
        yield ""
        yield from (f"  {line}" for line in str(witness).splitlines())
        yield ""
    for name, count in (
        ("events", d.events),
        ("processes", d.processes),
        ("messages", d.messages),
        ("deliveries", d.deliveries),
    ):
        yield f"  {name:<12} {count:>12,}"
    for name, count, examples in (
        ("lost", d.lost, d.lost_examples),
        ("duplicated", d.duplicated, d.duplicated_examples),
        ("misdelivered", d.misdelivered, d.misdelivered_examples),
        ("never sent", d.never_sent, d.never_sent_examples),
    ):
        yield f"  {name:<12} {count:>12,}" + (f"  first: {examples[0]}" if examples else "")
    for name in UNJUDGED:
        if count := checked.totals.get(name, 0):
            yield f"  {name.replace('_', ' '):<14} {count:>10,}"
    if needed is not None and audit is not None:
        yield ""
        yield from _necessary_report(needed, audit)


def _necessary_report(needed: Necessary, audit: Audit) -> Iterator[str]:
    edges, mean, most = _edge_statistics(needed)
    yield f"necessary information: {mean:.2f} units per message edge, at most {most}, over {edges:,} edges"
    if audit.holds is None:
        yield "  what the messages carried was not recorded: no receive has attributes.units"
        yield "  (`happened simulate --units` records them)"
    elif audit.holds:
        yield f"  carried exactly that on all {audit.recorded:,} recorded transmissions"
    else:
        yield (
            f"  NOT what was carried: {audit.recorded - audit.equal:,} of {audit.recorded:,} recorded "
            f"transmissions differ, {audit.missing:,} units missing, {audit.redundant:,} redundant"
        )
    yield from (f"  first missing:   {example}" for example in audit.missing_examples[:1])
    yield from (f"  first redundant: {example}" for example in audit.redundant_examples[:1])


def _edge_statistics(needed: Necessary) -> tuple[int, float, int]:
    counts = np.concatenate([np.zeros(0, np.int64), *(of.edge_counts for of in needed.computations)])
    if counts.size == 0:
        return 0, 0.0, 0
    return counts.size, float(counts.mean()), int(counts.max())


def _document(
    path: str,
    outcome: Outcome,
    checked: Checked,
    needed: Necessary | None,
    audit: Audit | None,
) -> dict[str, Any]:
    judgement = checked.judgement
    verdict = judgement.verdict
    lost = verdict.lost_witnesses
    document: dict[str, Any] = {
        "path": path,
        "outcome": outcome.name.lower(),
        "sentence": judgement.sentence,
        "order": verdict.order,
        "holds": verdict.holds,
        "deliveries_examined": verdict.deliveries,
        "violations": verdict.violations,
        "witness": _plain(asdict(verdict.witness)) if verdict.witness is not None else None,
        "lost_causes": verdict.lost_causes,
        "lost_cause": _plain(asdict(lost[0])) if lost else None,
        "delivery": _plain(asdict(checked.deliveries)),
        **{name: checked.totals[name] for name in UNJUDGED if name in checked.totals},
        "quarantine": list(checked.quarantine[:SHOWN]),
    }
    if needed is not None and audit is not None:
        edges, mean, most = _edge_statistics(needed)
        document["necessary"] = {
            "edges": edges,
            "units_mean": mean,
            "units_max": most,
            "audit": _plain(asdict(audit)) | {"holds": audit.holds},
        }
    return document


def _plain(value: Any) -> Any:
    """Events and units as objects with named fields, which `asdict` leaves as tuples."""
    if hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, dict):
        return {key: _plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    return value
