"""The main job: the answers to all questions about a trace, as tables and one summary.

    out/NAME            the tables of the questions asked (causality.questions), and quarantine    Parquet
    out/summary.json    the totals

A task analyses many small computations whole; a computation too large for a task is cut into epochs.
The output directory appears when everything in it is complete. A run that died can be resumed (see phases).
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from ..causality.computation import REFUSE
from ..causality.judgement import refuse_complete_window
from ..causality.questions import Question, asked
from ..causality.written import conclude, summary_of, tables_of
from ..core.errors import CausalityError
from ..trace import locate
from ..trace.atomic import WORK, clear, resumable_directory, whole_directory
from ..trace.location import Location
from ..trace.parts import write_part
from ..trace.store import AnyPath, StorePath, any_path, arrow_dataset, remove_tree
from .by_epoch.steps import check_answerable
from .event_rows import read_events
from .frame_answers import answer, table_of, totals_of, write_files
from .in_parts import WHOLE_EVENTS, Asked, analyse_alone, answer_splits
from .in_process import write_summary
from .laid_frames import lay_down
from .phases import Phases, Progress, announcing, are_of, begin, fingerprint
from .splits import ROWS_AT_ONCE, Split, splits_of
from .storage import DIRECT, SPARK, spark_path
from .tasks import preflight

log = logging.getLogger(__name__)


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
    gaps: str = REFUSE,
    io: str = DIRECT,
) -> dict[str, Any]:
    """Answer questions about the trace at a path or URL in the directory `out`; returns the summary.

    questions  by name or themselves; all there are if None
    complete   whether the trace has everything that happened; None: as recorded with the trace, else False
    finish     called before the directory appears; it may add files, such as a report
    work       the directory for intermediate files, which every executor must reach; in `out` if None
    resume     whether to continue an earlier run that did not finish, if there is one
    gaps       "renumber" if the trace is a window of a longer one, or filtered
    io         "direct": tasks read the trace and write the tables themselves; "spark": Spark reads and
               writes, and split_rows, work and resume have no meaning
    """
    complete = refuse_complete_window(complete, gaps)
    at = locate(any_path(trace).absolute())
    asking = Asked(asked(questions), timestamps, whole_events, epoch_events, gaps)
    if io == SPARK:
        with whole_directory(any_path(out)) as folder:
            summary = _answer_through_spark(spark, at, folder, asking, progress)
            write_summary(folder, summary, at, complete)
            finish(folder, summary)
        return summary
    splits = splits_of(at, rows=split_rows)
    with resumable_directory(out, work, resume=resume) as (folder, place):
        records = place / "phases"
        kinds = [*map(_kind, asking.questions)]
        state = fingerprint(splits, timestamps, kinds, whole_events, epoch_events, gaps)
        if resume and not are_of(records, state):
            if records.is_dir():
                log.warning(
                    "%s: the trace or the options are others than of what was left; beginning anew", out
                )
            clear(folder)
            clear(place)
        begin(records, state)
        summary = analyze_splits(spark, splits, folder, asking, progress, place, Phases(records))
        write_summary(folder, summary, at, complete)
        finish(folder, summary)
    return summary


def _answer_through_spark(
    spark: SparkSession, at: Location, folder: AnyPath, asking: Asked, progress: Progress
) -> dict[str, Any]:
    """Spark reads the trace, shuffles it to tasks, and writes the tables; returns the summary."""
    check_answerable(asking.questions)
    with announcing(spark, asking.job, progress) as tell:
        tell("reading, and bringing computations together")
        laid = lay_down(read_events(spark, at.root, every_column=False))
        packed = answer(laid, asking, as_files=not isinstance(folder, StorePath))
        try:
            totals, rows = totals_of(packed, asking.job)
            tell("writing")
            _write_tables(packed, folder, tables_of(asking.questions), rows)
        finally:
            packed.unpersist()
    return summary_of(totals, asking.questions, asking.gaps)


def _write_tables(
    packed: DataFrame, folder: AnyPath, tables: Mapping[str, pa.Schema], rows: Mapping[str, int]
) -> None:
    """Write all tables as Parquet in `folder`; in a store, which cannot rename objects, Spark writes rows."""
    if isinstance(folder, StorePath):
        for name, schema in tables.items():
            table_of(packed, name, schema).write.parquet(spark_path(folder / name))
    else:
        written = folder / WORK
        write_files(packed, str(written))
        for name, schema in tables.items():
            (folder / name).mkdir()
            files = sorted((written / f"table={name}").glob("*.txt"))
            for number, file in enumerate(files):
                file.rename(folder / name / f"part-{number:05d}.parquet")
            if not files:
                write_part(folder / name, "empty", schema.empty_table())
        remove_tree(written)
    for name in tables:
        _refuse_unseen(folder / name, rows[name])


def _refuse_unseen(table: AnyPath, rows: int) -> None:
    """Check that the parts are visible here; they are not if executors do not share this directory and write
    to their own machines."""
    seen = arrow_dataset(table).count_rows()
    if seen != rows:
        raise CausalityError(
            f"Spark wrote {rows:,} rows to {table}, of which this process sees {seen:,}: name a URL, or a "
            "directory that all executors share"
        )


def analyze_splits(
    spark: SparkSession,
    splits: Sequence[Split],
    folder: AnyPath,
    asking: Asked,
    progress: Progress = lambda what: None,
    work: AnyPath | None = None,
    phases: Phases | None = None,
) -> dict[str, Any]:
    """Answer questions about the rows of `splits` in an existing directory; returns the summary.

    work    the directory where intermediate files stay; if None, they go into `folder` and are removed
    phases  knows which phases are done already
    """
    check_answerable(asking.questions)
    place = work or folder / WORK
    with announcing(spark, asking.job, progress) as tell:
        tell("reading")
        check = preflight(spark, [folder, place], splits[0].pieces[0].path if splits else None)
        try:
            totals = analyse_alone(spark, splits, asking.whole(folder), asking.whole_events, check)
            if totals is None:
                check.look_everywhere(spark)
        finally:
            check.end()
        if totals is None:
            totals = answer_splits(spark, splits, folder, place, asking, tell, phases)
    if work is None:
        remove_tree(place)
    return conclude(folder, totals, asking.questions, asking.gaps)


def _kind(question: Question) -> str:
    return f"{question.name} {type(question).__module__}.{type(question).__qualname__}"
