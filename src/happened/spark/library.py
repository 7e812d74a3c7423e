"""Questions about events in a DataFrame, on the session that the frame belongs to.

    events = read_trace(spark, "s3://traces/run")          # or any frame of events, filtered, joined, derived
    violations(events, order="causal").show()
    with analyze(events) as analysis:
        analysis.stamps.write.saveAsTable("stamps")

Every function takes the frame as it is: what a filter left out is not looked at. `columns` says what the
trace's columns are called in it (event_columns). `work` is a directory or URL that this process and all
executors reach; on a session of this machine it may be left out. What a question needs is computed when the
function is called, in several passes; the frame that it returns reads the answer. Answers lie under `work`
until `release` of the frame, `close` of the Analysis, or the end of the interpreter.
"""

import os
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ..causality.questions import QUARANTINE, TABLES, Question, asked
from ..causality.questions.stamp import TIMESTAMPS
from ..core.errors import CausalityError
from ..report.page import page
from ..trace import locate
from ..trace.store import StorePath, any_path, remove_tree
from .announcing import Progress, announcing
from .by_epoch.steps import check_answerable
from .event_columns import as_events
from .event_rows import read_events
from .pipeline import WHOLE_EVENTS, analyze_splits
from .session import supply
from .splits import splits_of
from .storage import spark_path
from .workspace import Workspace, lay_down, read_table

Columns = Mapping[str, str | Column]
Work = str | Path | StorePath

ORDERS = ("fifo", "causal", "total")
TABLE_NAME = re.compile(r"(\w+|`[^`]+`)(\.(\w+|`[^`]+`))*")


def read_trace(spark: SparkSession, where: Work, columns: Columns | None = None) -> DataFrame:
    """The events at a path or URL, or in a table of the catalog, with the columns of a trace.

    Rows that are no events stay in the frame; an analysis puts them into quarantine.
    """
    if isinstance(where, str) and _is_table(spark, where):
        return as_events(spark.table(where), columns)
    supply(spark)
    path = any_path(where)
    if not columns:
        return read_events(spark, path)
    at = locate(path)
    reader = spark.read.json if at.is_json else spark.read.parquet
    return as_events(reader(spark_path(at.root)), columns)


def _is_table(spark: SparkSession, name: str) -> bool:
    """A file of that name goes before a table."""
    if "/" in name or TABLE_NAME.fullmatch(name) is None or os.path.exists(name):
        return False
    return spark.catalog.tableExists(name)


class Analysis:
    """Answers to questions about a frame: each table as a DataFrame, the totals, and a report.

    Its files go with it if no frame was taken from it; else with `close`, or at the end of the interpreter.
    """

    def __init__(
        self,
        spark: SparkSession,
        workspace: Workspace,
        summary: dict[str, Any],
        tables: Mapping[str, pa.Schema],
    ) -> None:
        self._spark = spark
        self._workspace = workspace
        self._summary = summary
        self._tables = dict(tables)

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of its tables, which are attributes too."""
        return tuple(self._tables)

    def table(self, name: str) -> DataFrame:
        if name not in self._tables:
            raise CausalityError(f"{name!r} is no table of this analysis; it has {', '.join(self._tables)}")
        self._refuse_closed()
        self._workspace.keep()
        frame = read_table(self._spark, self._workspace.folder / "answers" / name, self._tables[name])
        frame._happened_workspace = self._workspace  # type: ignore[attr-defined]
        return frame

    def __getattr__(self, name: str) -> DataFrame:
        if name in self.__dict__.get("_tables", ()):
            return self.table(name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._tables})

    def summary(self) -> dict[str, Any]:
        """The totals, as in summary.json of `happened analyze`."""
        return dict(self._summary)

    def report(self) -> str:
        """The page that `happened analyze` leaves as report.html; every question must have been asked."""
        self._refuse_closed()
        if not self._tables.keys() >= TABLES.keys():
            raise CausalityError("the report needs the answers to all questions: analyse without questions=")
        return page(self._workspace.folder / "answers", self._summary)

    def _repr_html_(self) -> str:
        """For notebooks: the report, in a frame of its own, since it brings its own style; or the totals."""
        if not self._workspace.is_open or not self._tables.keys() >= TABLES.keys():
            rows = "".join(
                f"<tr><td>{escape(name.replace('_', ' '))}</td><td>{escape(str(value))}</td></tr>"
                for name, value in self._summary.items()
            )
            return f"<table>{rows}</table>"
        return f'<iframe srcdoc="{escape(self.report())}" style="width:100%;height:40rem;border:0"></iframe>'

    def write(
        self, where: "str | os.PathLike[str]", *, format: str = "parquet", mode: str = "error", **options: Any
    ) -> None:
        """Let Spark write every table, in any of its formats.

        where     a directory or URL, which has a "/" and is Spark's to reach; or a schema of the catalog
        mode      error, overwrite, append or ignore, if a table is there already
        options   of Spark's writer for the format
        """
        schema = isinstance(where, str) and "/" not in where
        for name in self._tables:
            writer = self.table(name).write.format(format).mode(mode).options(**options)
            try:
                if schema:
                    writer.saveAsTable(f"{where}.{name}")
                else:
                    writer.save(f"{os.fspath(where).rstrip('/')}/{name}")
            except Exception as error:  # of the format's own, and on classic sessions some of Java's
                reason = _not_written(f"{where}{'.' if schema else '/'}{name}", error)
                if reason is None:
                    raise
                raise CausalityError(reason) from error

    def close(self) -> None:
        """Remove its files; frames taken from it cannot be read any more."""
        self._workspace.close()

    def __enter__(self) -> "Analysis":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Analysis of {self._summary['events']:,} events: {', '.join(self._tables)}>"

    def _refuse_closed(self) -> None:
        if not self._workspace.is_open:
            raise CausalityError("this analysis was closed, and its tables removed; analyse the events again")


def _not_written(what: str, error: Exception) -> str | None:
    """Why Spark did not write a table, in our words; None if it is not about what was asked."""
    named = re.search(r"\[([A-Z_]+)", str(error))
    condition = named[1] if named else ""
    if condition == "SCHEMA_NOT_FOUND":
        return f"{what}: there is no such schema in the catalog; create it, or write ./NAME for a directory"
    if condition in ("PATH_ALREADY_EXISTS", "TABLE_OR_VIEW_ALREADY_EXISTS"):
        return f'{what} exists already; name another place, or say mode="overwrite" or mode="append"'
    if condition == "DATA_SOURCE_NOT_FOUND":
        return f"{what}: this session has no such format; give its jar to the session (--packages)"
    if isinstance(error, AnalysisException):
        return f"{what}: Spark does not write it ({str(error).splitlines()[0]})"
    return None


def analyze(
    events: DataFrame,
    *,
    columns: Columns | None = None,
    timestamps: str = "full",
    questions: Sequence[str | Question] | None = None,
    complete: bool = False,
    work: Work | None = None,
    whole_events: int = WHOLE_EVENTS,
    epoch_events: int | None = None,
    progress: Progress = lambda what: None,
) -> Analysis:
    """Answer questions about the events of a frame: those named, or all there are.

    timestamps    the form of stamps: full, sparse or predecessors
    complete      whether the frame has everything that happened; a lost cause is a violation only then
    whole_events  a computation with more events is cut into epochs, of about epoch_events
    progress      is told what is being done
    """
    if timestamps not in TIMESTAMPS:
        raise CausalityError(f"timestamps can be {', '.join(TIMESTAMPS)}; not {timestamps!r}")
    wanted = asked(questions)
    check_answerable(wanted)
    spark = events.sparkSession
    rows = as_events(events, columns)
    supply(spark)
    workspace = Workspace(spark, work)
    trace, answers = workspace.folder / "trace", workspace.folder / "answers"
    answers.mkdir(parents=True, exist_ok=True)
    job = "analyze" if questions is None else " ".join(question.name for question in wanted)
    try:
        with announcing(spark, job, progress) as tell:
            tell("laying down the frame")
            unread = lay_down(rows, trace, answers / "quarantine")
        summary = analyze_splits(
            spark,
            splits_of(locate(trace)),
            answers,
            timestamps=timestamps,
            questions=questions,
            whole_events=whole_events,
            epoch_events=epoch_events,
            progress=progress,
        )
        remove_tree(trace)
    except BaseException:
        workspace.close()
        raise
    summary["quarantined"] += unread
    summary["complete"] = complete
    tables = {"quarantine": QUARANTINE}
    for question in wanted:
        tables |= question.tables
    return Analysis(spark, workspace, summary, tables)


def release(*frames: DataFrame) -> None:
    """Remove the files behind frames that functions here returned; nothing derived from them works after."""
    for frame in frames:
        workspace = getattr(frame, "_happened_workspace", None)
        if workspace is None:
            raise CausalityError(
                "only frames that an analysis returned can be released, not those made from them"
            )
        workspace.close()


def stamp(
    events: DataFrame, timestamps: str = "full", *, columns: Columns | None = None, work: Work | None = None
) -> DataFrame:
    """The exact vector timestamp of every event: the table `stamps`.

    Its clocks number the processes; `analyze(events, questions=["stamp"])` has the table `processes` as well.
    """
    answers = analyze(events, columns=columns, work=work, timestamps=timestamps, questions=["stamp"])
    return answers.table("stamps")


def predecessors(events: DataFrame, *, columns: Columns | None = None, work: Work | None = None) -> DataFrame:
    """The immediate predecessors of every relevant event."""
    return analyze(events, columns=columns, work=work, questions=["predecessors"]).table("predecessors")


def violations(
    events: DataFrame,
    order: str | None = None,
    *,
    columns: Columns | None = None,
    work: Work | None = None,
) -> DataFrame:
    """Deliveries that came too early, each with a witness; of one order (fifo, causal, total), or of all."""
    if order is not None and order not in ORDERS:
        raise CausalityError(f"order can be {', '.join(ORDERS)}; not {order!r}")
    table = analyze(events, columns=columns, work=work, questions=["order"]).table("violations")
    if order is None:
        return table
    chosen = table.where(F.col("order_name") == order)
    chosen._happened_workspace = table._happened_workspace  # type: ignore[attr-defined]
    return chosen


def messages(events: DataFrame, *, columns: Columns | None = None, work: Work | None = None) -> DataFrame:
    """What became of each message at each destination, and how long it took."""
    return analyze(events, columns=columns, work=work, questions=["messages"]).table("messages")


def necessary(events: DataFrame, *, columns: Columns | None = None, work: Work | None = None) -> DataFrame:
    """What the optimal protocol would have had to carry on each message."""
    return analyze(events, columns=columns, work=work, questions=["necessary"]).table("necessary")


def skew(events: DataFrame, *, columns: Columns | None = None, work: Work | None = None) -> DataFrame:
    """How far the clock of each process is ahead, and whether it went back."""
    return analyze(events, columns=columns, work=work, questions=["epochs"]).table("skew")


def measures(events: DataFrame, *, columns: Columns | None = None, work: Work | None = None) -> DataFrame:
    """Depth, width, traffic and latencies."""
    return analyze(events, columns=columns, work=work, questions=["measures"]).table("measures")


def verify_clocks(
    events: DataFrame, *, columns: Columns | None = None, work: Work | None = None
) -> DataFrame:
    """What is wrong with the vector clocks that the source logged: the table `clocks`."""
    return analyze(events, columns=columns, work=work, questions=["verify-clocks"]).table("clocks")


def verify_trackers(
    events: DataFrame, *, columns: Columns | None = None, work: Work | None = None
) -> DataFrame:
    """What is wrong with the timestamps that trackers recorded: the table `trackers`."""
    return analyze(events, columns=columns, work=work, questions=["verify-trackers"]).table("trackers")
