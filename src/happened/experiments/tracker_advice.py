"""What each tracker would have carried on exactly the messages and relevant events of a recorded trace.

In    the computations of a trace, and the name of a tracker
Out   a Fare that adds up over computations, or why the tracker does not apply
Cost  events x trackers, in Python

A tracker takes a piggyback in at the first delivery of a message at a destination. Where no event of a trace
is marked as relevant, all are. Causes that a source recorded beside its messages carry nothing and are left
out, so that a tracker knows less of the past than the judge.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ..causality import Computation, check_delivery, check_order, encode
from ..causality.computation import SEND
from ..core.errors import ProtocolError
from ..sim.riders import Fare, Riders
from ..tracking import create, facts_of

TRACKERS = ("vector", "differential", "p1", "p1-fifo", "p2:1", "p2:4", "p3", "p3-reduced")
"""The trackers that are compared by default."""

TRACKER_ADVICE = pa.schema(
    [
        ("tracker", pa.string()),
        ("tells", pa.string()),
        ("not_applicable", pa.string()),
        ("entries", pa.float64()),
        ("most_entries", pa.int64()),
        ("bits", pa.float64()),
        ("model_bits", pa.float64()),
        ("null_events", pa.int64()),
        ("relevant_events", pa.int64()),
    ]
)


class TrackerFinding(NamedTuple):
    """One tracker on one trace; figures are None where it does not apply."""

    tracker: str
    tells: str
    not_applicable: str | None
    entries: float | None = None  # per message and destination, like all sizes
    most_entries: int | None = None
    bits: float | None = None  # as encoded
    model_bits: float | None = None  # with 32-bit counts and a bitmap
    null_events: int | None = None  # in all
    relevant_events: int | None = None  # of the application, in all


Outcome = dict[str, Any]
"""Plain enough for JSON: `refused` (the reason, or None), and the fields of a Fare."""


def ride_all(tracker: str, table: pa.Table) -> Outcome:
    """A tracker on all computations of a table; it stops at the first that it does not apply to."""
    computations = encode(table)
    refused = _refusal(tracker, computations)
    total = Fare()
    for c in computations if refused is None else ():
        try:
            total.add(_ride(tracker, c))
        except ProtocolError as error:
            refused = f"{error}{f' (computation {c.name})' if c.name else ''}"
            break
    return asdict(total) | {"refused": refused}


def _refusal(tracker: str, computations: Sequence[Computation]) -> str | None:
    if not facts_of(tracker).fifo_links:
        return None
    overtaken, fates = check_order(computations, "fifo", limit=0).violations, check_delivery(computations)
    if overtaken:
        return f"it needs FIFO links, and {overtaken:,} deliveries overtook a message of the same sender"
    return f"it needs links that lose nothing, and {fates.lost:,} messages are lost" if fates.lost else None


def _ride(tracker: str, c: Computation) -> Fare:
    # The share of relevant events is 0: the trace says which events are relevant.
    riders = Riders(partial(create, tracker), c.processes, 0.0, Random(0))
    relevant = (c.relevant if c.relevant.any() else np.ones(c.events, bool)).tolist()
    process, kind, message, source = (each.tolist() for each in (c.process, c.kind, c.message, c.source))
    for e in range(c.events):
        p = process[e]
        if source[e] >= 0:
            riders.alight(p, process[source[e]], message[e])
        if relevant[e]:
            riders.fare.relevant_events += 1
            riders.trackers[p].relevant()
        if kind[e] == SEND:
            slots = c.slot_dest[c.dest_offsets[message[e]] : c.dest_offsets[message[e] + 1]].tolist()
            riders.depart(p, message[e], riders.board(p, [to for to in slots if to != p]))
    return riders.fare


def conclude_trackers(outcomes: Iterable[tuple[str, list[Outcome]]]) -> list[TrackerFinding]:
    """Merge the findings of each tracker, fewest bits first."""
    findings = []
    for name, parts in outcomes:
        tells = ", ".join(sorted(facts_of(name).tells))
        refused = next((part["refused"] for part in parts if part["refused"] is not None), None)
        if refused is not None:
            findings.append(TrackerFinding(name, tells, refused))
            continue
        fare = Fare()
        for part in parts:
            fare.add(Fare(**{key: value for key, value in part.items() if key != "refused"}))
        mean = fare.per_message()
        findings.append(
            TrackerFinding(
                name,
                tells,
                None,
                mean["entries"],
                fare.most_entries,
                mean["bits"],
                mean["model_bits"],
                fare.null_events,
                fare.relevant_events,
            )
        )
    return sorted(findings, key=lambda found: (found.bits is None, found.bits or 0.0))
