"""What `happened check` does. Outcome, sentence and exit code are those of causality.judgement; besides, exit
1 if messages carried other than the necessary information, and 2 if the path holds no trace.
"""

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from .. import causality
from ..causality import Audit, Necessary, Outcome
from ..causality.computation import REFUSE
from ..causality.judgement import Checked, check_path
from ..core.errors import LocalProtocolError
from .quarantine_notes import SHOWN, note_quarantined
from .terminal import print_answer, progress

UNJUDGED = ("quarantined", "duplicate_rows", "sent_outside", "causes_outside")
"""Totals that the verdict does not depend on; the last two are for windows only."""


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
