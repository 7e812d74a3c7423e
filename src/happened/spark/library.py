"""Questions about events in a DataFrame, on the session that the frame belongs to.

    events = read_trace(spark, "s3://traces/run")          # or any frame of events, filtered, joined, derived
    violations(events, order="causal").show()
    with analyze(events) as analysis:
        analysis.stamps.write.saveAsTable("stamps")

A function analyses only the rows that are in the frame, so rows that a filter removed have no influence. It
computes its answer when it is called; the frame that it returns reads the answer. Spark shuffles the rows by
computation, once for all questions about a frame, and keeps rows and answers until the frames are garbage
collected (workspace.py), `release` is called for a frame, or `close` for an Analysis.

The functions share these arguments:

columns   the frame's names for the columns of a trace (event_rows)
io        "spark": Spark alone reads, shuffles and keeps. "direct": tasks write and read files under `work`
          themselves, with credentials of their own; faster for a computation that is too large for a task,
          because many tasks then share it
work      with io="direct": a directory or URL that this process and all executors reach; may be left out if
          the session runs on this machine
on_bad    "raise": NotJudged is raised if any row could not be judged. "quarantine": the answers cover the
          other rows, a warning says how many were left out, and `frame.quarantine` has the reasons
gaps      "refuse": a computation with a gap in seq is not judged. "renumber": the frame is a window of a
          longer trace, or was filtered; what it lacks is unknown, not false (docs/pipeline.md)
"""

import os
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, TypedDict, Unpack

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ..causality.computation import REFUSE
from ..causality.judgement import refuse_complete_window
from ..causality.questions import TABLES, Question, asked
from ..causality.written import summary_of, tables_of
from ..core.errors import CausalityError
from ..report.page import page
from ..trace import locate
from ..trace.store import StorePath, any_path, remove_tree
from .by_epoch.steps import check_answerable
from .event_rows import as_events, read_events
from .frame_answers import answer, totals_of
from .in_parts import WHOLE_EVENTS, Asked
from .not_judged import LEAVE_OUT, RAISE, check_on_bad, raise_or_warn
from .phases import Progress, announcing, log_totals
from .pipeline import analyze_splits
from .session import supply
from .splits import splits_of
from .storage import DIRECT, IO, SPARK, Tables, spark_path
from .workspace import FileKept, Kept, SparkKept, Workspace, laid_down, write_trace
from .writing import check_destination, write_tables

Columns = Mapping[str, str | Column]
Work = str | Path | StorePath

ORDERS = ("fifo", "causal", "total")
TABLE_NAME = re.compile(r"(\w+|`[^`]+`)(\.(\w+|`[^`]+`))*")


def read_trace(
    spark: SparkSession, where: Work, columns: Columns | None = None, *, io: str = SPARK
) -> DataFrame:
    """The events at a path or URL, or in a table of the catalog, with the columns of a trace that are there.

    Rows that are not events stay in the frame; an analysis quarantines them. With io="direct" tasks read a
    trace in an object store themselves, since Spark may have no connector for the store.
    """
    if isinstance(where, str) and _is_table(spark, where):
        return as_events(spark.table(where), columns)
    supply(spark)
    path = any_path(where)
    if not columns:
        return read_events(spark, path, io=io, every_column=False)
    at = locate(path)
    reader = spark.read.json if at.is_json else spark.read.parquet
    return as_events(reader(spark_path(at.root)), columns)


def _is_table(spark: SparkSession, name: str) -> bool:
    """A file of that name takes precedence over a table."""
    if "/" in name or TABLE_NAME.fullmatch(name) is None or os.path.exists(name):
        return False
    return spark.catalog.tableExists(name)


class Analysis(Tables):
    """Answers to questions about a frame: each table as a DataFrame, the totals, and a report."""

    def __init__(
        self, spark: SparkSession, kept: Kept, summary: dict[str, Any], tables: Mapping[str, pa.Schema]
    ) -> None:
        self._spark = spark
        self._kept = kept
        self._summary = summary
        self._tables = dict(tables)

    def table(self, name: str) -> DataFrame:
        self._refuse_unknown(name, "analysis")
        self._refuse_closed()
        frame = self._read(name)
        frame.quarantine = self._read("quarantine")  # type: ignore[attr-defined]
        return frame

    def _read(self, name: str) -> DataFrame:
        frame = self._kept.read(name)
        frame._happened_kept = self._kept  # type: ignore[attr-defined]
        return frame

    def summary(self) -> dict[str, Any]:
        """The totals, as in summary.json of `happened analyze`."""
        return dict(self._summary)

    def report(self) -> str:
        """The page that `happened analyze` leaves as report.html; every question must have been asked."""
        self._refuse_closed()
        if not self._tables.keys() >= TABLES.keys():
            raise CausalityError("the report needs the answers to all questions: analyse without questions=")
        with self._kept.folder() as folder:
            return page(folder, self._summary)

    def _repr_html_(self) -> str:
        """For notebooks: the report, in an iframe because it has its own style sheet; or else the totals."""
        if not self._kept.is_open or not self._tables.keys() >= TABLES.keys():
            rows = "".join(
                f"<tr><td>{escape(name.replace('_', ' '))}</td><td>{escape(str(value))}</td></tr>"
                for name, value in self._summary.items()
            )
            return f"<table>{rows}</table>"
        return f'<iframe srcdoc="{escape(self.report())}" style="width:100%;height:40rem;border:0"></iframe>'

    def write(
        self, where: "str | os.PathLike[str]", *, format: str = "parquet", mode: str = "error", **options: Any
    ) -> None:
        """Let Spark write every table, in any of its formats; if one table cannot be written, none is.

        where     a directory or URL (with a "/") that Spark can reach; or a schema of the catalog
        mode      what to do if a table exists already: error, overwrite, append or ignore
        options   options of Spark's writer for this format
        """
        self._refuse_closed()
        check_destination(self._spark, where, format, mode, self._tables)
        write_tables(where, format, mode, options, {name: self.table(name) for name in self._tables})

    def close(self) -> None:
        """Release the answers; with io="direct", frames taken from this Analysis become unreadable."""
        self._kept.close()

    def __enter__(self) -> "Analysis":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        rows = self._summary["quarantined"]
        left_out = f", without {rows:,} quarantined rows" if rows else ""
        return f"<Analysis of {self._summary['events']:,} events{left_out}: {', '.join(self._tables)}>"

    def _refuse_closed(self) -> None:
        if not self._kept.is_open:
            raise CausalityError(
                "this analysis was closed, and its tables were removed; analyse the events again"
            )


def analyze(
    events: DataFrame,
    *,
    columns: Columns | None = None,
    timestamps: str = "full",
    questions: Sequence[str | Question] | None = None,
    complete: bool = False,
    on_bad: str = LEAVE_OUT,
    gaps: str = REFUSE,
    io: str = SPARK,
    work: Work | None = None,
    whole_events: int = WHOLE_EVENTS,
    epoch_events: int | None = None,
    progress: Progress = lambda what: None,
    into: "str | os.PathLike[str] | None" = None,
    format: str = "parquet",
    mode: str = "error",
) -> Analysis:
    """Answer `questions`, or all that exist, about the events of a frame.

    timestamps    the form of stamps: full, sparse or predecessors
    complete      whether the frame has everything that happened; only then is a lost cause a violation
    whole_events  a computation with more events is cut into epochs of about epoch_events
    progress      called with a description of each phase when it begins
    into          the destination of a later Analysis.write, in that format and mode: checked before the work
                  begins
    """
    check_on_bad(on_bad)
    refuse_complete_window(complete, gaps)
    if io not in IO:
        raise CausalityError(f"io can be {', '.join(IO)}; not {io!r}")
    if work is not None and io != DIRECT:
        raise CausalityError('work= is where io="direct" leaves files; give both, or neither')
    asking = Asked(asked(questions), timestamps, whole_events, epoch_events, gaps)
    check_answerable(asking.questions)
    rows = as_events(events, columns)
    spark = events.sparkSession
    tables = tables_of(asking.questions)
    if into is not None:
        check_destination(spark, into, format, mode, tables)
    supply(spark)
    kept: Kept
    if io == SPARK:
        kept, summary = _by_spark(events, rows, columns or {}, asking, tables, progress)
    else:
        kept, summary = _by_files(rows, work, asking, tables, progress)
    summary["complete"] = complete
    log_totals(asking.job, summary)
    analysis = Analysis(spark, kept, summary, tables)
    try:
        if summary["quarantined"]:
            raise_or_warn(on_bad, summary["quarantined"], analysis.table("quarantine"))
        if into is not None:
            analysis.write(into, format=format, mode=mode)
    except BaseException:
        kept.close()
        raise
    return analysis


def _by_spark(
    events: DataFrame,
    rows: DataFrame,
    columns: Columns,
    asking: Asked,
    tables: Mapping[str, pa.Schema],
    progress: Progress,
) -> tuple[Kept, dict[str, Any]]:
    is_shared = not any(isinstance(of, Column) for of in columns.values())
    key = tuple(sorted(columns.items())) if is_shared else None
    with announcing(events.sparkSession, asking.job, progress) as tell:
        tell("bringing computations together, and answering")
        kept = SparkKept(packed := answer(laid_down(events, rows, key), asking), tables)
        try:
            totals, _ = totals_of(packed, asking.job)
        except BaseException:
            kept.close()
            raise
    return kept, summary_of(totals, asking.questions, asking.gaps)


def _by_files(
    rows: DataFrame, work: Work | None, asking: Asked, tables: Mapping[str, pa.Schema], progress: Progress
) -> tuple[Kept, dict[str, Any]]:
    spark = rows.sparkSession
    workspace = Workspace(spark, work)
    trace, answers = workspace.folder / "trace", workspace.folder / "answers"
    answers.mkdir(parents=True, exist_ok=True)
    try:
        with announcing(spark, asking.job, progress) as tell:
            tell("laying down the frame")
            unread = write_trace(rows, trace, answers / "quarantine")
        summary = analyze_splits(spark, splits_of(locate(trace)), answers, asking, progress)
        remove_tree(trace)
    except BaseException:
        workspace.close()
        raise
    summary["quarantined"] += unread
    return FileKept(spark, workspace, tables), summary


def release(*frames: DataFrame) -> None:
    """Release the stored answers of frames that functions here returned: Spark's copy, or files in `work`.

    Once those files are removed, nothing derived from the frames can be read.
    """
    for frame in frames:
        kept = frame.__dict__.get("_happened_kept")
        if kept is None:
            raise CausalityError(
                "only frames that an analysis returned can be released, not those made from them"
            )
        kept.close()


def quarantine(answer: DataFrame | Analysis) -> DataFrame:
    """The rows that could not be judged for this frame or Analysis: columns computation and reason."""
    if isinstance(answer, Analysis):
        return answer.table("quarantine")
    left_out: DataFrame | None = answer.__dict__.get("quarantine")
    if left_out is None:
        raise CausalityError(
            "only a frame that a function of happened.spark returned knows what was quarantined, not one "
            "made from it: take quarantine(frame) before where, select or join"
        )
    return left_out


class CommonArguments(TypedDict, total=False):
    """The arguments that all questions share; see the module's docstring."""

    columns: Columns | None
    on_bad: str
    gaps: str
    io: str
    work: Work | None


def _answer(
    events: DataFrame, question: str, table: str, shared: CommonArguments, **options: Any
) -> DataFrame:
    """Answer one question and return one of its tables."""
    given = {"on_bad": RAISE, **shared, **options}
    return analyze(events, questions=[question], **given).table(table)


def stamp(events: DataFrame, timestamps: str = "full", **shared: Unpack[CommonArguments]) -> DataFrame:
    """The exact vector timestamp of every event: the table `stamps`.

    Its clocks number the processes; `analyze(events, questions=["stamp"])` has the table `processes` as well.
    """
    return _answer(events, "stamp", "stamps", shared, timestamps=timestamps)


def predecessors(events: DataFrame, **shared: Unpack[CommonArguments]) -> DataFrame:
    """The immediate predecessors of every relevant event."""
    return _answer(events, "predecessors", "predecessors", shared)


def violations(events: DataFrame, order: str | None = None, **shared: Unpack[CommonArguments]) -> DataFrame:
    """Deliveries that came too early, with witnesses; of one order (fifo, causal, total), or of all."""
    if order is not None and order not in ORDERS:
        raise CausalityError(f"order can be {', '.join(ORDERS)}; not {order!r}")
    table = _answer(events, "order", "violations", shared)
    if order is None:
        return table
    chosen = table.where(F.col("order_name") == order)
    chosen._happened_kept = table._happened_kept  # type: ignore[attr-defined]
    chosen.quarantine = quarantine(table)  # type: ignore[attr-defined]
    return chosen


def messages(events: DataFrame, **shared: Unpack[CommonArguments]) -> DataFrame:
    """For each message and destination: whether it was delivered there, and how long that took."""
    return _answer(events, "messages", "messages", shared)


def necessary(events: DataFrame, **shared: Unpack[CommonArguments]) -> DataFrame:
    """The control information that the optimal protocol would have had to carry on each message."""
    return _answer(events, "necessary", "necessary", shared)


def dependencies(events: DataFrame, **shared: Unpack[CommonArguments]) -> DataFrame:
    """Which service calls which, how often, and how often that failed."""
    return _answer(events, "dependencies", "dependencies", shared)


def skew(events: DataFrame, **shared: Unpack[CommonArguments]) -> DataFrame:
    """How far the clock of each process is ahead, and whether it went back."""
    return _answer(events, "epochs", "skew", shared)


def measures(events: DataFrame, **shared: Unpack[CommonArguments]) -> DataFrame:
    """Depth, width, traffic and latencies."""
    return _answer(events, "measures", "measures", shared)


def verify_clocks(events: DataFrame, **shared: Unpack[CommonArguments]) -> DataFrame:
    """What is wrong with the vector clocks that the source logged: the table `clocks`."""
    return _answer(events, "verify-clocks", "clocks", shared)


def verify_trackers(events: DataFrame, **shared: Unpack[CommonArguments]) -> DataFrame:
    """What is wrong with the timestamps that trackers recorded: the table `trackers`."""
    return _answer(events, "verify-trackers", "trackers", shared)
