"""The main job: everything the pipeline can tell of a trace, as tables and one summary.

    out/NAME            the tables of the questions asked (causality.questions), and quarantine    Parquet
    out/summary.json    the totals

Computations small enough for a task are analysed whole, many to a task; a large one is laid out by epoch.
The output directory appears when everything in it is there.
"""

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ..causality.questions import QUARANTINE, Question, asked
from ..causality.questions.stamp import TIMESTAMPS
from ..core.errors import CausalityError, TraceFormatError
from ..trace import locate
from ..trace.atomic import whole_directory
from .by_epoch.job import WHOLE_EVENTS, LargeComputation, Progress
from .by_epoch.steps import check_answerable
from .event_rows import fault, local_files, read_events
from .splits import splits_of
from .storage import write_part, write_rows
from .whole import Sizes, Whole, analyse_alone, analyse_whole

COUNTED = ("events", "processes", "computations", "quarantined")
ALWAYS = (*COUNTED, "complete")
"""What every summary has, whatever was asked."""


def analyze(
    spark: SparkSession,
    trace: Path,
    out: Path,
    *,
    timestamps: str = "full",
    questions: Sequence[str | Question] | None = None,
    complete: bool | None = None,
    whole_events: int = WHOLE_EVENTS,
    epoch_events: int | None = None,
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
    progress("reading")
    at = locate(trace)
    wanted = asked(questions)
    check_answerable(wanted)
    with whole_directory(out) as folder, _readable():
        alone = analyse_alone(spark, splits_of(at), Whole(folder, timestamps, wanted), whole_events)
        if alone is not None:
            summary = _finish(folder, alone, wanted)
        else:
            summary = analyze_events(
                spark,
                read_events(spark, trace),
                folder,
                timestamps=timestamps,
                questions=wanted,
                whole_events=whole_events,
                epoch_events=epoch_events,
                progress=progress,
            )
        summary["complete"] = at.is_complete if complete is None else complete
        (folder / "summary.json").write_text(json.dumps(summary, indent=2, sort_keys=True) + "\n")
        finish(folder, summary)
    return summary


@contextmanager
def _readable() -> Iterator[None]:
    """Turn Spark's error about a damaged file into one that names it: damage shows only in a task."""
    try:
        yield
    except Py4JJavaError as error:
        found = re.search(r"FAILED_READ_FILE.*?file:(?://)?(\S+?)\.?\s", str(error.java_exception))
        if found is None:
            raise
        reason = "cannot be read to its end; make it again, or remove it to analyse the other parts"
        raise TraceFormatError(reason, file=unquote(found[1])) from error


def analyze_events(
    spark: SparkSession,
    rows: DataFrame,
    folder: Path,
    *,
    timestamps: str = "full",
    questions: Sequence[str | Question] | None = None,
    whole_events: int = WHOLE_EVENTS,
    epoch_events: int | None = None,
    progress: Progress = lambda what: None,
) -> dict[str, Any]:
    wanted = asked(questions)
    check_answerable(wanted)
    totals: Counter[str] = Counter()
    totals["quarantined"] += _quarantine(rows.where(fault(rows).isNotNull()), folder)
    events = rows.where(fault(rows).isNull())
    # Tasks may read the trace's own files only if every row of them is an event.
    files = [] if totals["quarantined"] else local_files(rows)
    progress("computations that fit a task")
    sizes = Sizes(spark, events, files, folder / ".work" / "sizes", whole_events)
    totals += analyse_whole(events, sizes, Whole(folder, timestamps, wanted))
    sizes.close()
    for number, (name, size) in enumerate(sorted(sizes.large.items())):
        progress(f"computation {name!r} of {size:,} events")
        job = LargeComputation(
            events.where(F.col("computation") == name),
            name,
            size,
            folder,
            f"large-{number:04d}",
            wanted,
            timestamps,
            epoch_events,
            progress,
            files,
        )
        totals += job.run()
    shutil.rmtree(folder / ".work", ignore_errors=True)
    return _finish(folder, totals, wanted)


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


def _quarantine(rows: DataFrame, folder: Path) -> int:
    """Write rows that are no events to the table `quarantine` with their reasons; returns how many."""
    named = rows.select(
        F.coalesce("computation", F.lit("")).alias("computation"),
        F.concat_ws(
            "", F.coalesce("process", F.lit("?")), F.lit("#"), F.col("seq"), F.lit(": "), fault(rows)
        ).alias("reason"),
    )
    count = named.count()
    if count:
        write_rows(named, folder / "quarantine", "rows", folder / ".work" / "rows")
    return count
