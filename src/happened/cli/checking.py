"""What `happened check` does. Outcome, sentence and exit code are those of causality.judgement; besides, exit
1 if messages carried other than the necessary information, and 2 if the path holds no trace.
"""

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .. import causality
from ..causality import Audit, Necessary, Outcome
from ..causality.analysis import is_gap
from ..causality.computation import REFUSE
from ..causality.judgement import Checked, check_path
from ..core.errors import LocalProtocolError
from .terminal import note, plain, print_answer, progress

UNJUDGED = ("quarantined", "duplicate_rows", "sent_outside", "causes_outside")
"""Totals that the verdict does not depend on; the last two are for windows only."""
SHOWN = 5
"""How many reasons for a quarantine are printed."""


def note_quarantined(reasons: Sequence[str], rows: int) -> None:
    """Print the first reasons why rows were not judged, and what helps."""
    for reason in reasons[:SHOWN]:
        note(f"quarantined: {reason}")
    if any(map(is_gap, reasons)):
        note("if the trace is a window of a longer one, or was filtered, judge it with --gaps renumber")
    if rows:
        note(f"{rows:,} row{'' if rows == 1 else 's'} not judged: correct them, or take the rest as it is")


def run(arguments: argparse.Namespace) -> int:
    if arguments.necessary and arguments.gaps != REFUSE:
        raise LocalProtocolError(
            "--gaps and --necessary exclude each other: what messages had to carry depends on events "
            "outside of a window"
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
    print_answer(
        arguments,
        lambda: _document(arguments.path, outcome, checked, needed, audit),
        _report(checked, needed, audit),
    )
    return int(outcome)


def _report(checked: Checked, needed: Necessary | None, audit: Audit | None) -> Iterator[str]:
    judgement, d = checked.judgement, checked.deliveries
    yield judgement.sentence
    for witness in judgement.witnesses[:1]:
        yield from ("", *(f"  {line}" for line in str(witness).splitlines()), "")
    for name in ("events", "processes", "messages", "deliveries"):
        yield f"  {name:<12} {getattr(d, name):>12,}"
    for name in ("lost", "duplicated", "misdelivered", "never_sent"):
        first = "".join(f"  first: {example}" for example in getattr(d, f"{name}_examples")[:1])
        yield f"  {name.replace('_', ' '):<12} {getattr(d, name):>12,}{first}"
    for name in UNJUDGED:
        if count := checked.totals.get(name, 0):
            yield f"  {name.replace('_', ' '):<14} {count:>10,}"
    if needed is not None and audit is not None:
        yield from ("", *_necessary_report(needed, audit))


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
    path: str, outcome: Outcome, checked: Checked, needed: Necessary | None, audit: Audit | None
) -> dict[str, Any]:
    verdict = checked.judgement.verdict
    document: dict[str, Any] = {
        "path": path,
        "outcome": outcome.name.lower(),
        "sentence": checked.judgement.sentence,
        "order": verdict.order,
        "holds": verdict.holds,
        "deliveries_examined": verdict.deliveries,
        "violations": verdict.violations,
        "witness": verdict.witness,
        "lost_causes": verdict.lost_causes,
        "lost_cause": next(iter(verdict.lost_witnesses), None),
        "delivery": checked.deliveries,
        **{name: checked.totals[name] for name in UNJUDGED if name in checked.totals},
        "quarantine": list(checked.quarantine[:SHOWN]),
    }
    if needed is not None and audit is not None:
        edges, mean, most = _edge_statistics(needed)
        sizes = {"edges": edges, "units_mean": mean, "units_max": most}
        document["necessary"] = {**sizes, "audit": plain(audit) | {"holds": audit.holds}}
    return document
