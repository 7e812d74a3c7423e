"""The main job: everything the pipeline can tell of a trace, as tables and one summary.

    out/NAME            the tables of the questions asked (causality.questions), and quarantine    Parquet
    out/summary.json    the totals

Computations small enough for a task are analysed whole, many to a task; a large one is laid out by epoch.
The output directory appears when everything in it is there.
"""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from ..causality.questions import QUARANTINE, Question, asked
from ..causality.questions.stamp import TIMESTAMPS
from ..core.errors import CausalityError
from ..trace import locate
from ..trace.atomic import whole_directory
from .announcing import Progress, announcing
from .by_epoch.epoch_layout import EPOCH_EVENTS
from .by_epoch.job import analyse_large
from .by_epoch.steps import check_answerable
from .one_pass import MOST_SAMPLES, pass_over
from .sizes import survey
from .splits import ROWS_AT_ONCE, Split, splits_of
from .storage import write_part
from .whole import Whole, analyse_alone

WHOLE_EVENTS = 200_000
"""A computation with more events is cut into epochs."""

COUNTED = ("events", "processes", "computations", "quarantined")
ALWAYS = (*COUNTED, "complete")
"""What every summary has, whatever was asked."""


def analyze_path(
    spark: SparkSession,
    trace: Path,
    out: Path,
    *,
    timestamps: str = "full",
    questions: Sequence[str | Question] | None = None,
    complete: bool | None = None,
    whole_events: int = WHOLE_EVENTS,
    epoch_events: int | None = None,
    split_rows: int = ROWS_AT_ONCE,
    progress: Progress = lambda what: None,
    finish: Callable[[Path, dict[str, Any]], object] = lambda folder, summary: None,
) -> dict[str, Any]:
    """Answer questions about the trace at a path in the directory `out`; the summary.

    questions  by name or themselves; all there are if None
    complete   whether the trace has everything that happened; None: what the run that left it said, else no
    finish     may add to the directory before it appears: a report, say
    """
    if timestamps not in TIMESTAMPS:
        raise CausalityError(f"timestamps can be {', '.join(TIMESTAMPS)}; not {timestamps!r}")
    at = locate(trace)
    splits = splits_of(at, rows=split_rows)
    with whole_directory(out) as folder:
        summary = analyze_splits(
            spark,
            splits,
            folder,
            timestamps=timestamps,
            questions=questions,
            whole_events=whole_events,
            epoch_events=epoch_events,
            progress=progress,
        )
        summary["complete"] = at.is_complete if complete is None else complete
        (folder / "summary.json").write_text(json.dumps(summary, indent=2, sort_keys=True) + "\n")
        finish(folder, summary)
    return summary


def analyze_splits(
    spark: SparkSession,
    splits: Sequence[Split],
    folder: Path,
    *,
    timestamps: str = "full",
    questions: Sequence[str | Question] | None = None,
    whole_events: int = WHOLE_EVENTS,
    epoch_events: int | None = None,
    progress: Progress = lambda what: None,
) -> dict[str, Any]:
    """Answer questions about the rows that splits hold, in a directory that is there; the summary."""
    wanted = asked(questions)
    check_answerable(wanted)
    job = "analyze" if questions is None else " ".join(question.name for question in wanted)
    with announcing(spark, job, progress) as tell:
        totals = _answer(spark, splits, folder, wanted, timestamps, whole_events, epoch_events, tell)
    return _finish(folder, totals, wanted)


def _answer(
    spark: SparkSession,
    splits: Sequence[Split],
    folder: Path,
    wanted: Sequence[Question],
    timestamps: str,
    whole_events: int,
    epoch_events: int | None,
    progress: Progress,
) -> Counter[str]:
    progress("reading")
    whole = Whole(folder, timestamps, wanted)
    totals = analyse_alone(spark, splits, whole, whole_events)
    if totals is None:
        work = folder / ".work"
        progress("looking at what there is")
        found = survey(spark, splits, work, folder / "quarantine", whole_events)
        progress("computations that fit a task")
        events = sum(large.events for large in found.large)
        sample_every = max(1, min(events // MOST_SAMPLES, (epoch_events or EPOCH_EVENTS) // 64))
        stores = [work / f"large-{i:04d}" for i in range(len(found.large))]
        keep_fates = any("messages" in question.tables for question in wanted)
        totals, large = pass_over(spark, found, whole, stores, sample_every, keep_fates)
        totals["quarantined"] += found.quarantined
        if large:
            totals += analyse_large(
                spark, found.large, large, found.splits, folder, wanted, timestamps, epoch_events, progress
            )
        shutil.rmtree(work, ignore_errors=True)
    return totals


def _finish(folder: Path, totals: Counter[str], questions: Sequence[Question]) -> dict[str, Any]:
    """Write an empty table wherever no task wrote a part, and return the summary."""
    tables = {"quarantine": QUARANTINE}
    summary: dict[str, Any] = {name: totals[name] for name in COUNTED}
    for question in questions:
        tables |= question.tables
        summary |= question.summarise(totals)
    for name, schema in tables.items():
        if not (folder / name).exists():
            write_part(folder / name, "empty", schema.empty_table())
    return summary
