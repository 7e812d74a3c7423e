"""What each protocol would have carried and delayed on exactly the messages of a recorded trace.

In    a table that `trace.read` returned, and the names of protocols.
Out   Advice: which assumptions the trace satisfies; one Finding per protocol, those of applicable protocols
      first, by encoded bytes; and whether `ks` carried what the necessary-information kernel asks for.
Cost  events x protocols, in Python. On Spark, one shuffle writes whole computations together into files; then
      there is a task per protocol and file, which reads the file itself. One task per protocol replays a
      computation, however large it is.

Sizes are per copy (a message and one of its destinations) and count every transmission, as in `compare`; a
message that never left its sender does not count as a copy.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from .. import trace
from ..causality import necessary
from ..core.errors import ProtocolError
from ..ordering import DEFAULT, protocols
from ..sim.terrain import Terrain
from ..trace import SCHEMA
from .replay import Recording, Replay, arrivals, numbered, recordings
from .runs import schema_of, write_rows
from .survey import Assumption, Counts, add, assumptions, notes, refusal, survey
from .trackers import TRACKER_ADVICE, TrackerFinding, conclude_trackers, ride_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS_PER_PART, MOST_PARTS = 20_000, 1024  # how Spark cuts a trace into parts
OPTIMAL = DEFAULT
"""The protocol whose every message must carry the necessary units and no others."""


class Finding(NamedTuple):
    """One protocol on one trace; figures are None where it does not apply."""

    protocol: str
    order: str  # the delivery order that the protocol promises
    not_applicable: str | None
    entries: float | None = None  # per copy, like all sizes
    units: float | None = None
    control_bytes: float | None = None  # as encoded
    model_bytes: float | None = None
    added: float | None = None  # transmissions per message beyond those of its sender
    added_delay: float | None = None  # seconds per delivery; None if the trace has no times
    added_events: float | None = None  # the added delay, counted in events of the receiver
    delayed: int | None = None  # deliveries later than their arrival
    deliveries: int | None = None
    held_at_end: int | None = None  # recorded as arrived, and never delivered


ADVICE = schema_of(Finding).append(pa.field("rank", pa.int64()))


class Optimality(NamedTuple):
    """What `ks` carried in its replay, compared with what the kernel finds necessary."""

    carried: int  # units
    necessary: int
    edges: int
    differing: int  # edges on which the carried and the necessary units differ

    @property
    def holds(self) -> bool:
        return self.differing == 0 and self.carried == self.necessary


class Advice(NamedTuple):
    survey: Counts
    assumptions: list[Assumption]
    notes: list[str]
    findings: list[Finding]
    optimality: Optimality | None  # None if ks was not asked for
    trackers: list[TrackerFinding]


Outcome = dict[str, Any]
"""A value that JSON can hold: `tally` (counts by name), `refused` (the reason, or None), `optimality`."""


def advise(
    table: pa.Table,
    names: Sequence[str],
    progress: Callable[[], object] = lambda: None,
    trackers: Sequence[str] = (),
    terrain: Terrain | None = None,
) -> Advice:
    """Replay the trace under each protocol and tracker in this process; `progress` is called after each."""
    counts = survey(table)
    found = recordings(arrivals(table)[0])
    if terrain is not None:
        found = [numbered(recording, terrain) for recording in found]
    outcomes: dict[str, list[Outcome]] = {}
    for name in names:
        if refusal(name, counts) is None:
            outcomes[name] = [replay_all(name, found, terrain)]
        progress()
    tracked = []
    for name in trackers:
        tracked.append((name, [ride_all(name, table)]))
        progress()
    return conclude(counts, names, outcomes, tracked)


def replay_all(protocol: str, recorded: Iterable[Recording], terrain: Terrain | None = None) -> Outcome:
    """Replay many computations under a protocol; stops at the first computation that the protocol refuses."""
    tally: Counter[str] = Counter()
    optimality = Optimality(0, 0, 0, 0)
    for recording in recorded:
        if not recording.computation.slot_dest.size:
            continue
        try:
            replay = Replay(protocol, recording, terrain)
            tally.update(replay.run())
        except ProtocolError as error:
            where = recording.computation.name
            return {"refused": f"{error}{f' (computation {where})' if where else ''}"}
        if protocol == OPTIMAL:
            optimality = _sum(optimality, compare_with_necessary(replay, recording))
    return {"refused": None, "tally": dict(tally), "optimality": optimality}


def conclude(
    counts: Counts,
    names: Sequence[str],
    outcomes: dict[str, list[Outcome]],
    trackers: Iterable[tuple[str, list[Outcome]]] = (),
) -> Advice:
    """Merge the findings of each protocol that the survey did not rule out, and those of trackers."""
    findings = [_finding(name, counts, outcomes.get(name, [])) for name in names]
    findings.sort(key=lambda f: (f.control_bytes is None, f.control_bytes, f.added, f.entries))
    optimality = None
    for outcome in outcomes.get(OPTIMAL, []):
        if outcome["refused"] is None:
            optimality = _sum(optimality or Optimality(0, 0, 0, 0), Optimality(*outcome["optimality"]))
    tracked = conclude_trackers(trackers)
    return Advice(counts, assumptions(counts), notes(counts), findings, optimality, tracked)


def _finding(name: str, counts: Counts, outcomes: list[Outcome]) -> Finding:
    order = protocols()[name].order
    reasons = [outcome["refused"] for outcome in outcomes if outcome["refused"] is not None]
    refused = refusal(name, counts) or next(iter(reasons), None)
    if refused is not None:
        return Finding(name, order, refused)
    tally: Counter[str] = Counter()
    for outcome in outcomes:
        tally.update(outcome["tally"])
    copies, deliveries = max(tally["copies"], 1), max(tally["deliveries"], 1)
    return Finding(
        name,
        order,
        None,
        **{name: tally[name] / copies for name in ("entries", "units", "control_bytes", "model_bytes")},
        added=tally["added"] / max(tally["messages"], 1),
        added_delay=tally["late_ns"] / tally["timed"] / 1e9 if tally["timed"] else None,
        added_events=tally["late_events"] / deliveries,
        delayed=tally["late"],
        deliveries=tally["deliveries"],
        held_at_end=tally["held_at_end"],
    )


def compare_with_necessary(replay: Replay, recording: Recording) -> Optimality:
    """Compare what the replay carried on each edge with the kernel's count for the same events."""
    differing = edges = needed = 0
    for units in necessary(_trace(replay, recording)).computations:
        c = units.computation
        counts = units.edge_counts.tolist()
        edges, needed = edges + len(counts), needed + sum(counts)
        for count, message, dest in zip(counts, c.slot_message.tolist(), c.slot_dest.tolist(), strict=True):
            slot = (int(c.message_name(message)), int(c.process_names[dest]))
            differing += replay.carried.get(slot) != count
    return Optimality(sum(replay.carried.values()), needed, edges, differing)


def _trace(replay: Replay, recording: Recording) -> pa.Table:
    """The sends and deliveries of a replay as a trace; messages and processes are named by number."""
    seq: Counter[int] = Counter()
    rows = []
    for process, kind, message in replay.history:
        seq[process] += 1
        to = [str(d) for d in recording.destinations(message)] if kind == "send" else None
        row = {"process": str(process), "seq": seq[process], "kind": kind, "message": str(message), "to": to}
        rows.append({"computation": "", "relevant": False} | row)
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _sum(one: Optimality, other: Optimality) -> Optimality:
    return Optimality(*map(sum, zip(one, other, strict=True)))


def write_advice(advice: Advice, file: Path) -> None:
    ranks = (rank if f.not_applicable is None else None for rank, f in enumerate(advice.findings, start=1))
    rows = [f._asdict() | {"rank": rank} for f, rank in zip(advice.findings, ranks, strict=True)]
    write_rows(rows, ADVICE, file)


def write_tracker_advice(advice: Advice, file: Path) -> None:
    write_rows([found._asdict() for found in advice.trackers], TRACKER_ADVICE, file)


def advise_on_spark(
    spark: "SparkSession",
    path: Path,
    names: Sequence[str],
    scratch: Path,
    *,
    events_per_part: int = EVENTS_PER_PART,
    progress: Callable[[str], object] = lambda what: None,
    trackers: Sequence[str] = (),
) -> Advice:
    """Do what `advise` does, for a trace too large for one process. `scratch` is a directory that the driver
    and every executor reach; it must not exist yet, and the parts of the trace stay there."""
    from ..spark.tasks import on_tasks

    progress("laying out computations")
    parts = _lay_out(spark, path, scratch, events_per_part)
    progress("looking at what the trace keeps")
    counts: Counts = Counter()
    for found in on_tasks(spark, len(parts), lambda number: dict(survey(trace.read(parts[number])))):
        add(counts, Counter(found))

    def done(names: Sequence[str], job: Callable[[str, pa.Table], Outcome]) -> dict[str, list[Outcome]]:
        """For each name, the outcomes of job(name, part) on all parts."""
        jobs = list(product(names, parts))
        tasks = on_tasks(spark, len(jobs), lambda k: job(jobs[k][0], trace.read(jobs[k][1])))
        outcomes: dict[str, list[Outcome]] = {}
        for (name, _), outcome in zip(jobs, tasks, strict=True):
            outcomes.setdefault(name, []).append(outcome)
        return outcomes

    able = [name for name in names if refusal(name, counts) is None]
    progress(f"{len(able) * len(parts):,} replays")
    outcomes = done(able, lambda name, part: replay_all(name, recordings(arrivals(part)[0])))
    return conclude(counts, names, outcomes, done(trackers, ride_all).items())


def _lay_out(spark: "SparkSession", path: Path, scratch: Path, events_per_part: int) -> list[str]:
    """Write files of whole computations; the tasks that read them check that the rows form a trace."""
    from ..spark.event_rows import read_events

    events = read_events(spark, path)
    wanted = min(MOST_PARTS, events.count() // events_per_part + 1)
    whole = events.repartition(wanted, "computation").sortWithinPartitions("computation")
    whole.write.parquet(str(scratch))
    return sorted(str(part) for part in scratch.glob("*.parquet"))
