"""Advice on a trace too large to replay in one process: a Spark task per protocol and batch of computations.

In    the path of a trace, and the names of protocols; a directory that the driver and every executor reach.
Out   the same Advice that `advise` gives.
Cost  one shuffle, which leaves whole computations together in files; tasks then read those themselves. A
      computation is replayed by one task per protocol, however large it is.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from .. import trace
from ..spark.event_rows import read_events
from ..spark.tasks import on_tasks
from .advise import Advice, Outcome, conclude, replay_all
from .recording import arrivals, recordings
from .survey import Counts, add, refusal, survey
from .tracker_advice import ride_all

EVENTS_PER_PART = 20_000
MOST_PARTS = 1024


def advise_on_spark(
    spark: SparkSession,
    path: Path,
    names: Sequence[str],
    scratch: Path,
    *,
    events_per_part: int = EVENTS_PER_PART,
    progress: Callable[[str], object] = lambda what: None,
    trackers: Sequence[str] = (),
) -> Advice:
    """`scratch` must not exist; the parts of the trace stay there."""
    progress("laying out computations")
    parts = _lay_out(spark, path, scratch, events_per_part)
    progress("looking at what the trace keeps")
    counts: Counts = Counter()
    for found in on_tasks(spark, len(parts), lambda number: dict(survey(trace.read(parts[number])))):
        add(counts, Counter(found))
    jobs = [(name, part) for name in names if refusal(name, counts) is None for part in parts]

    def replay(number: int) -> Outcome:
        name, part = jobs[number]
        return replay_all(name, recordings(arrivals(trace.read(part))[0]))

    progress(f"{len(jobs):,} replays")
    outcomes: dict[str, list[Outcome]] = {}
    for (name, _), outcome in zip(jobs, on_tasks(spark, len(jobs), replay), strict=True):
        outcomes.setdefault(name, []).append(outcome)
    rides = [(name, part) for name in trackers for part in parts]

    def ride(number: int) -> Outcome:
        name, part = rides[number]
        return ride_all(name, trace.read(part))

    tracked: dict[str, list[Outcome]] = {}
    for (name, _), outcome in zip(rides, on_tasks(spark, len(rides), ride), strict=True):
        tracked.setdefault(name, []).append(outcome)
    return conclude(counts, names, outcomes, tracked.items())


def _lay_out(spark: SparkSession, path: Path, scratch: Path, events_per_part: int) -> list[str]:
    """Files of whole computations; the tasks that read them check that their rows are a trace."""
    events = read_events(spark, path)
    wanted = min(MOST_PARTS, events.count() // events_per_part + 1)
    whole = events.repartition(wanted, "computation").sortWithinPartitions("computation")
    whole.write.parquet(str(scratch))
    return sorted(str(part) for part in scratch.glob("*.parquet"))
