"""What trackers cost on random computations, and on those of a recorded trace.

A study runs the same computations under each tracker, repeated over seeds: processes send plain messages in
virtual time, and a relevant event follows a send or a delivery with a given probability. The random choices
do not depend on the tracker, so trackers are compared on the same events; those that need FIFO links get
them. Means come with 95 % confidence intervals over the seeds.

Advice says what a tracker would have carried on exactly the messages and relevant events of a trace: a Fare,
which can be added over computations, or why the tracker does not apply. A tracker receives a piggyback at the
first delivery of a message at a destination. If no event of a trace is marked as relevant, all events are.
Causes recorded beside the messages carry nothing and are left out, so that a tracker knows less of the past
than the judge. Advice takes events x trackers steps, in Python.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ..causality import Computation, check_delivery, check_order, encode
from ..causality.computation import SEND
from ..core.errors import LocalProtocolError, ProtocolError
from ..sim.network import Network
from ..sim.plain import Plain, control_sizes
from ..sim.riders import Fare, Riders
from ..sim.simulation import Simulation
from ..sim.workload import Workload
from ..tracking import create, facts_of
from .runs import Estimate, Progress, estimate, schema_of

TRACKERS = ("vector", "differential", "p1", "p1-fifo", "p2:1", "p2:4", "p3", "p3-reduced")
"""The trackers that are compared by default."""


class TrackerFinding(NamedTuple):
    """One tracker on one trace; figures are None where it does not apply."""

    tracker: str
    tells: str
    not_applicable: str | None
    entries: float | None = None  # mean per message and destination, like all sizes
    most_entries: int | None = None
    bits: float | None = None  # as encoded
    model_bits: float | None = None  # with 32-bit counts and a bitmap
    null_events: int | None = None  # total
    relevant_events: int | None = None  # total of the application's relevant events


TRACKER_ADVICE = schema_of(TrackerFinding)


Outcome = dict[str, Any]
"""A value that JSON can hold: `refused` (the reason, or None), and the fields of a Fare."""


def ride_all(tracker: str, table: pa.Table) -> Outcome:
    """Run a tracker on all computations of a table; stops at the first that it does not apply to."""
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
        mean, counted = fare.per_message(), asdict(fare)
        means: dict[str, Any] = {key: mean[key] for key in ("entries", "bits", "model_bits")}
        totals: dict[str, Any] = {
            key: counted[key] for key in ("most_entries", "null_events", "relevant_events")
        }
        findings.append(TrackerFinding(name, tells, None, **means, **totals))
    return sorted(findings, key=lambda found: (found.bits is None, found.bits or 0.0))


MEASURES = ("entries", "most_entries", "bits", "model_bits", "null_events", "memory")


@dataclass(frozen=True, slots=True)
class Study:
    """The parameters of a study's computations: equal parameters give the same events."""

    pattern: str = "unicast"
    relevant: float = 0.1  # probability of a relevant event after a send or a delivery
    messages: int = 200  # per process
    seeds: int = 5  # computations per point
    seed: int = 1  # of the first of them

    def __post_init__(self) -> None:
        Workload(self.pattern)
        if not 0 <= self.relevant <= 1:
            raise LocalProtocolError(f"relevant events have a probability in 0 … 1, not {self.relevant}")
        if self.messages < 1 or self.seeds < 1:
            raise LocalProtocolError("a study needs at least one message per process, and one seed")


class Row(NamedTuple):
    protocol: str
    processes: int
    fifo: bool
    measures: dict[str, Estimate]


def study(
    settings: Study,
    names: Sequence[str],
    processes: Sequence[int],
    progress: Progress = None,
) -> list[Row]:
    """Every protocol at every number of processes; a name may carry a bound, as `p2:4` does."""
    rows = []
    for name in names:
        for n in processes:
            fifo = is_fifo(name)
            samples = []
            for seed in range(settings.seed, settings.seed + settings.seeds):
                samples.append(measure(settings, name, n, seed, fifo=fifo))
                if progress is not None:
                    progress(1)
            estimates = {key: estimate([sample[key] for sample in samples]) for key in MEASURES}
            rows.append(Row(name, n, fifo, estimates))
    return rows


def is_fifo(name: str) -> bool:
    create(name, 0, 2)  # raises the usual error if the name is unknown
    return facts_of(name).fifo_links


def measure(settings: Study, name: str, n: int, seed: int, *, fifo: bool) -> dict[str, float]:
    if n < 2:
        raise LocalProtocolError(f"a computation needs at least two processes, not {n}")
    riders = Riders(partial(create, name), n, settings.relevant, Random(f"{seed}/relevant"))
    Simulation(
        Plain,
        n,
        settings.messages * n,
        seed=seed,
        workload=Workload(settings.pattern),
        network=Network(fifo=fifo),
        control_sizes=control_sizes,
        riders=riders,
    ).run()
    fare = riders.fare
    return {**fare.per_message(), "most_entries": fare.most_entries, "memory": riders.memory()}
