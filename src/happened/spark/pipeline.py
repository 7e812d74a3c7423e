"""The main job: everything the pipeline can tell of a trace, as tables and one summary.

    out/NAME            the tables of the questions asked (causality.questions), and quarantine    Parquet
    out/summary.json    the totals

Computations small enough for a task are analysed whole, many to a task; a large one is laid out by epoch.
The output directory appears when everything in it is there. A run that died can be gone on with (see phases).
"""

import json
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import SparkSession

from ..causality.questions import Question, asked
from ..causality.questions.stamp import TIMESTAMPS
from ..causality.written import Whole, conclude
from ..core.errors import CausalityError
from ..trace import locate
from ..trace.atomic import WORK, resumable_directory
from ..trace.store import AnyPath, any_path, remove_tree
from ..trace.unfinished import clear
from .announcing import Progress, announcing
from .by_epoch.epoch_layout import EPOCH_EVENTS
from .by_epoch.job import analyse_large
from .by_epoch.steps import check_answerable
from .one_pass import MOST_SAMPLES, pass_over
from .phases import Phases, are_of, begin, fingerprint
from .preflight import preflight
from .sizes import survey
from .splits import ROWS_AT_ONCE, Split, splits_of
from .whole import analyse_alone

log = logging.getLogger(__name__)

WHOLE_EVENTS = 200_000
"""A computation with more events is cut into epochs."""


def analyze_path(
    spark: SparkSession,
    trace: AnyPath,
    out: AnyPath,
    *,
    timestamps: str = "full",
    questions: Sequence[str | Question] | None = None,
    complete: bool | None = None,
    whole_events: int = WHOLE_EVENTS,
    epoch_events: int | None = None,
    split_rows: int = ROWS_AT_ONCE,
    progress: Progress = lambda what: None,
    finish: Callable[[AnyPath, dict[str, Any]], object] = lambda folder, summary: None,
    work: AnyPath | None = None,
    resume: bool = False,
) -> dict[str, Any]:
    """Answer questions about the trace at a path or URL in the directory `out`; the summary.

    questions  by name or themselves; all there are if None
    complete   whether the trace has everything that happened; None: what the run that left it said, else no
    finish     may add to the directory before it appears: a report, say
    work       where intermediates go, which every executor must reach; in `out` if None
    resume     go on from what an earlier run left that did not finish, if one did
    """
    if timestamps not in TIMESTAMPS:
        raise CausalityError(f"timestamps can be {', '.join(TIMESTAMPS)}; not {timestamps!r}")
    at = locate(any_path(trace).absolute())
    splits = splits_of(at, rows=split_rows)
    with resumable_directory(out, work, resume=resume) as (folder, place):
        records = place / "phases"
        state = fingerprint(splits, timestamps, [*map(_kind, asked(questions))], whole_events, epoch_events)
        if resume and not are_of(records, state):
            if records.is_dir():
                log.warning(
                    "%s: the trace or the options are others than of what was left; beginning anew", out
                )
            clear(folder)
            clear(place)
        begin(records, state)
        summary = analyze_splits(
            spark,
            splits,
            folder,
            timestamps=timestamps,
            questions=questions,
            whole_events=whole_events,
            epoch_events=epoch_events,
            progress=progress,
            work=place,
            phases=Phases(records),
        )
        summary["complete"] = at.is_complete if complete is None else complete
        summary |= at.import_losses
        (folder / "summary.json").write_text(json.dumps(summary, indent=2, sort_keys=True) + "\n")
        finish(folder, summary)
    return summary


def analyze_splits(
    spark: SparkSession,
    splits: Sequence[Split],
    folder: AnyPath,
    *,
    timestamps: str = "full",
    questions: Sequence[str | Question] | None = None,
    whole_events: int = WHOLE_EVENTS,
    epoch_events: int | None = None,
    progress: Progress = lambda what: None,
    work: AnyPath | None = None,
    phases: Phases | None = None,
) -> dict[str, Any]:
    """Answer questions about the rows that splits hold, in a directory that is there; the summary.

    work    where intermediates go, and stay; if None, they go into `folder` and are removed
    phases  those that are done already
    """
    wanted = asked(questions)
    check_answerable(wanted)
    job = "analyze" if questions is None else " ".join(question.name for question in wanted)
    with announcing(spark, job, progress) as tell:
        totals = _answer(
            spark, splits, folder, wanted, timestamps, whole_events, epoch_events, tell, work, phases
        )
    return conclude(folder, totals, wanted)


def _answer(
    spark: SparkSession,
    splits: Sequence[Split],
    folder: AnyPath,
    wanted: Sequence[Question],
    timestamps: str,
    whole_events: int,
    epoch_events: int | None,
    progress: Progress,
    work: AnyPath | None,
    phases: Phases | None,
) -> Counter[str]:
    progress("reading")
    whole = Whole(folder, timestamps, wanted)
    place, phases = work or folder / WORK, phases or Phases()
    check = preflight(spark, [folder, place], splits[0].pieces[0].path if splits else None)
    try:
        totals = analyse_alone(spark, splits, whole, whole_events, check)
        if totals is None:
            check.look_everywhere(spark)
    finally:
        check.end()
    if totals is None:
        progress("looking at what there is")
        found = phases.run(
            "survey", lambda: survey(spark, splits, place, folder / "quarantine", whole_events)
        )
        progress("computations that fit a task")
        events = sum(large.events for large in found.large)
        sample_every = max(1, min(events // MOST_SAMPLES, (epoch_events or EPOCH_EVENTS) // 64))
        stores = [place / f"large-{i:04d}" for i in range(len(found.large))]
        keep_fates = any("messages" in question.tables for question in wanted)
        totals, large = phases.run(
            "pass", lambda: pass_over(spark, found, whole, stores, sample_every, keep_fates)
        )
        totals["quarantined"] += found.quarantined
        if large:
            totals += analyse_large(
                spark,
                found.large,
                large,
                found.splits,
                folder,
                wanted,
                timestamps,
                epoch_events,
                progress,
                phases,
            )
    if work is None:
        remove_tree(place)
    return totals


def _kind(question: Question) -> str:
    return f"{question.name} {type(question).__module__}.{type(question).__qualname__}"
