"""happened check: judge a recorded trace by itself, without knowing which protocol made it.

Exit 0 the order holds (lost messages are reported but violate no order), 1 it does not, or a delivery is
duplicated, misdelivered or of something never sent, or messages carried other than the necessary
information; 2 not a trace; 3 undecided: no deliveries that could show it.
"""

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from .. import causality, trace
from ..causality import Audit, Deliveries, Necessary, Verdict
from .terminal import print_json, progress

HOLDS, VIOLATED, UNDECIDED = 0, 1, 3
OUTCOMES = {HOLDS: "holds", VIOLATED: "violated", UNDECIDED: "undecided"}


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "check",
        help="judge a recorded trace",
        description="Judge a recorded trace by itself: did deliveries keep the order, did every message "
        "arrive once and only where it was sent, did messages carry no more than necessary?",
        epilog="exit codes: 0 holds, 1 violated, 2 not a trace, 3 undecided",
    )
    parser.add_argument(
        "path",
        metavar="PATH",
        help="what `happened simulate --out` made, a .parquet file or a directory of them, or JSON lines",
    )
    parser.add_argument(
        "--order", choices=causality.ORDERS, default="causal", help="the order to judge by (default: causal)"
    )
    parser.add_argument(
        "--necessary",
        action="store_true",
        help="work out the information every message had to carry, and compare it with what was carried "
        "where the trace recorded that",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of text")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    needed: Necessary | None = None
    audit: Audit | None = None
    with progress("checking", total=5 if arguments.necessary else 3, unit="step") as bar:
        table = trace.read(arguments.path)
        bar.update()
        computations = causality.encode(table)
        deliveries = causality.check_delivery(computations)
        bar.update()
        verdict = causality.check_order(computations, arguments.order, limit=1)
        bar.update()
        if arguments.necessary:
            needed = causality.necessary(computations)
            bar.update()
            audit = causality.audit_units(table, against=needed)
            bar.update()
    code = _exit_code(verdict, deliveries, audit)
    if arguments.json:
        print_json(_document(arguments.path, code, verdict, deliveries, needed, audit))
    else:
        print("\n".join(_report(verdict, deliveries, needed, audit)))
    return code


def _exit_code(verdict: Verdict, deliveries: Deliveries, audit: Audit | None) -> int:
    wrong = deliveries.duplicated or deliveries.misdelivered or deliveries.never_sent
    if verdict.holds is False or wrong or (audit is not None and audit.holds is False):
        return VIOLATED
    return HOLDS if verdict.holds else UNDECIDED


def _report(
    verdict: Verdict, deliveries: Deliveries, needed: Necessary | None, audit: Audit | None
) -> Iterator[str]:
    yield str(verdict)
    if verdict.witness is not None:
        yield ""
        yield from (f"  {line}" for line in str(verdict.witness).splitlines())
        yield ""
    d = deliveries
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
    code: int,
    verdict: Verdict,
    deliveries: Deliveries,
    needed: Necessary | None,
    audit: Audit | None,
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "path": path,
        "outcome": OUTCOMES[code],
        "order": verdict.order,
        "holds": verdict.holds,
        "deliveries_examined": verdict.deliveries,
        "violations": verdict.violations,
        "witness": _plain(asdict(verdict.witness)) if verdict.witness is not None else None,
        "delivery": _plain(asdict(deliveries)),
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
