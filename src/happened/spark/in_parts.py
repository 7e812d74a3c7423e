"""Answers questions about splits of a trace and writes the answers as parts of tables.

One task analyses a trace that fits it. Of a larger trace, tasks analyse many whole computations each, and
computations that do not fit a task are cut into epochs (by_epoch). A large computation that turns out invalid
is tried again without rows that repeat another exactly.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from ..causality.computation import REFUSE, RENUMBER
from ..causality.names import encode_names, hashes
from ..causality.questions import Question
from ..causality.questions.stamp import TIMESTAMPS
from ..causality.written import EVENTS_PER_BATCH, Whole, is_wide
from ..core.errors import CausalityError
from ..trace.repetitions import without_repetitions
from ..trace.store import AnyPath
from .by_epoch.epoch_layout import EPOCH_EVENTS, Found
from .by_epoch.job import analyse_large
from .one_pass import EVENTS_PER_BUCKET, MOST_SAMPLES, pass_over, rows_of
from .phases import Phases, Progress
from .sizes import Large, Survey, survey
from .splits import Groups, Split
from .storage import write_part
from .tasks import (
    Emitted,
    Preflight,
    Runner,
    TraceFault,
    Trouble,
    exchange,
    on_tasks,
    packed_by_bucket,
    raise_faults,
    unpack_table,
)

WHOLE_EVENTS = EVENTS_PER_BATCH
"""A computation with more events is cut into epochs."""


@dataclass(frozen=True)
class Asked:
    """The questions to answer about each computation, and how.

    timestamps    the form of stamps, one of TIMESTAMPS
    whole_events  a computation with more events is cut into epochs, of about epoch_events
    gaps          "renumber" if the trace is a window of a longer one, or filtered
    """

    questions: Sequence[Question]
    timestamps: str = "full"
    whole_events: int = WHOLE_EVENTS
    epoch_events: int | None = None
    gaps: str = REFUSE

    def __post_init__(self) -> None:
        if self.timestamps not in TIMESTAMPS:
            raise CausalityError(f"timestamps can be {', '.join(TIMESTAMPS)}; not {self.timestamps!r}")

    @property
    def job(self) -> str:
        """The names of Spark's jobs."""
        names = [question.name for question in self.questions]
        return "analyze" if len(names) > 3 else " ".join(names)

    def whole(self, folder: AnyPath) -> Whole:
        return Whole(folder, self.timestamps, self.questions, self.gaps)


def answer_splits(
    spark: Runner,
    splits: Sequence[Split],
    folder: AnyPath,
    place: AnyPath,
    asked: Asked,
    progress: Progress = lambda what: None,
    phases: Phases | None = None,
) -> Counter[str]:
    """Write the answers about the rows of all splits as parts of tables in `folder`; returns the totals.

    place   the directory for intermediate files, which are not removed
    """
    phases = phases or Phases()
    progress("looking at what there is")
    options = (asked.whole_events, asked.whole(folder).writes_vectors)
    found = phases.run("survey", lambda: survey(spark, splits, place, folder / "quarantine", *options))
    if found.large and asked.gaps == RENUMBER:
        raise _window_too_large(found.large)
    progress("computations that fit a task")
    totals, found, large = phases.run("pass", lambda: _pass(spark, found, folder, place, asked))
    totals["quarantined"] += found.quarantined
    if large:
        how = (asked.questions, asked.timestamps, asked.epoch_events, progress, phases)
        totals += analyse_large(spark, found.large, large, found.splits, folder, *how)
    return totals


def _pass(
    spark: Runner, found: Survey, folder: AnyPath, place: AnyPath, asked: Asked
) -> tuple[Counter[str], Survey, list[Found | TraceFault]]:
    """The totals of computations that are not large; the survey, with splits added that have no repetitions;
    and for each large computation either what the pass found of it, or its fault."""
    events = sum(large.events for large in found.large)
    sample_every = max(1, min(events // MOST_SAMPLES, (asked.epoch_events or EPOCH_EVENTS) // 64))
    keep_fates = any("messages" in question.tables for question in asked.questions)
    stores = [place / f"large-{i:04d}" for i in range(len(found.large))]
    options = (sample_every, keep_fates)
    totals, results = pass_over(spark, found, asked.whole(folder), stores, *options)
    faulty = [i for i, result in enumerate(results) if isinstance(result, TraceFault)]
    again, splits, large = _without_repetitions(spark, found, faulty, place / "distinct")
    if not again:
        return totals, found, results
    dropped = sum(found.large[i].events for i in again) - sum(of.events for of in large)
    totals["duplicate_rows"] += dropped
    only = replace(found, splits=splits, large=large, crossing_events=0)
    stores = [place / f"distinct-{i:04d}" for i in again]
    _, better = pass_over(spark, only, asked.whole(folder), stores, *options)
    every = [*found.large]
    for i, of, result in zip(again, large, better, strict=True):
        every[i] = of._replace(splits=[len(found.splits) + number for number in of.splits])
        results[i] = result
    return totals, replace(found, splits=[*found.splits, *splits], large=every), results


def _without_repetitions(
    spark: Runner, found: Survey, of: Sequence[int], store: AnyPath
) -> tuple[list[int], list[Split], list[Large]]:
    """The large computations that have exact repetitions of rows, with their splits rewritten without these.
    Rows go to buckets by computation and process, so that repetitions reach the same bucket."""
    wanted = [found.large[i] for i in of]
    buckets = [large.events // EVENTS_PER_BUCKET + 1 for large in wanted]
    base = np.concatenate([[0], np.cumsum(buckets)]).tolist()
    numbers = sorted({number for large in wanted for number in large.splits})

    def emit(number: int) -> Emitted:
        table = found.splits[numbers[number]].read()[0]
        blobs: list[tuple[int, bytes]] = []
        for i, large in enumerate(wanted):
            rows = rows_of(table, large.name)
            codes, names = encode_names(rows["process"])
            home = base[i] + (hashes(names) % np.uint64(buckets[i])).astype(np.int64)[codes]
            blobs += packed_by_bucket(rows, home)
        return Emitted(None, blobs)

    def settle(bucket: int, blobs: list[bytes]) -> int:
        rows, _ = without_repetitions(pa.concat_tables(map(unpack_table, blobs)))
        write_part(store, f"{bucket:06d}", rows)
        return int(rows.num_rows)

    emitted, settled = exchange(spark, len(numbers), emit, base[-1], settle)
    raise_faults(emitted)
    kept = dict(zip(settled, raise_faults([*settled.values()]), strict=True))
    repeated: list[int] = []
    splits: list[Split] = []
    distinct: list[Large] = []
    for i, large, (first, end) in zip(of, wanted, pairwise(base), strict=True):
        here = [bucket for bucket in range(first, end) if bucket in kept]
        events = sum(kept[bucket] for bucket in here)
        if events < large.events:
            repeated.append(i)
            numbered = [*range(len(splits), len(splits) + len(here))]
            distinct.append(Large(large.name, events, large.handover, numbered))
            files = {bucket: store / f"{bucket:06d}.parquet" for bucket in here}
            splits += [Split((Groups(files[bucket], None, {}),), kept[bucket]) for bucket in here]
    return repeated, splits, distinct


def _window_too_large(large: Sequence[Large]) -> CausalityError:
    names = ", ".join(repr(each.name) for each in large[:3])
    more = f" and {len(large) - 3:,} more" if len(large) > 3 else ""
    return CausalityError(
        f"events can be renumbered only in computations that fit a task, and {names}{more} "
        f"({max(each.events for each in large):,} events at most) would be cut into epochs; choose a shorter "
        "window, or number the events of each process 1, 2, … yourself and leave out gaps="
    )


def analyse_alone(
    spark: SparkSession, splits: Sequence[Split], whole: Whole, most_events: int, check: Preflight
) -> Counter[str] | None:
    """Analyse the trace in one task if it fits one, and return the totals; None if it does not fit."""
    if not splits:
        return Counter()
    (split, *more) = splits
    if more or (split.rows or 0) > most_events:
        return None

    def run(_: int) -> Counter[str] | Trouble | None:
        if (trouble := check.look()) is not None:
            return trouble
        events, quarantined = split.read()
        if events.num_rows > most_events or is_wide(events, whole.writes_vectors):
            return None
        if quarantined.num_rows:
            write_part(whole.out / "quarantine", "rows", quarantined)
        return whole.analyse(events, "alone") + Counter(quarantined=quarantined.num_rows)

    (totals,) = on_tasks(spark, 1, run)
    return None if totals is None else Counter(totals)
