"""`happened stream`: a directory of tables that grows with every batch of a trace.

In      the events of a trace, read and packed by tasks (trace_source)
Out     tables `stamps`, `processes`, `predecessors`, `violations`, `lost_causes`, `quarantine`, of which each
        task writes a part for each batch; `commits`, a manifest for each batch; progress.json
State   that of the operator, in Spark's checkpoint. Nothing that grows passes the driver: it writes the
        manifests, which have names of parts and totals

A batch is committed by its manifest, which is written last. A batch that Spark runs again after a crash is
skipped if its manifest is there; if not, it has the same rows and writes the same parts over those that were
left. Readers who must not see half a batch take the parts that manifests name (`committed`).
"""

import json
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ... import __version__
from ...causality.live import Rules
from ...causality.live_union import QUESTIONS
from ...core.errors import CausalityError
from ...trace.atomic import whole_file
from ...trace.store import AnyPath, matching
from ..session import supply
from ..versions import require
from .live_operator import answered, buckets_of
from .live_parts import AsParts
from .trace_source import TraceSource, TraceTail

FORMAT = 1
"""The version of manifests, and of the state in the checkpoint."""

NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"


class Progress(NamedTuple):
    """Totals of one batch, and totals so far."""

    batch: int
    events: int
    seconds: float
    told: int  # events in all
    held: int
    computations: int  # that are kept
    violations: int  # of causal order, in all
    state_bytes: int

    def line(self) -> str:
        rate = self.events / self.seconds if self.seconds else 0.0
        return (
            f"batch {self.batch}: {self.events:,} events ({rate:,.0f}/s), {self.told:,} told, "
            f"{self.held:,} held, {self.computations:,} computations live, {self.violations:,} early, "
            f"{self.state_bytes:,} bytes of state"
        )


class Manifests:
    """The manifests of a directory that a stream fills."""

    def __init__(self, out: AnyPath, about: dict[str, Any]) -> None:
        """`about` has what a resumed run must have in common with the one before."""
        self._out, self._about = out, about
        self.last, self.totals, self.is_finished = -1, Counter[str](), False
        manifest = last_manifest(out)
        if manifest is None:
            return
        if manifest["format"] != FORMAT:
            raise CausalityError(
                f"{out} was written by version {manifest['version']}, whose state this version cannot "
                "resume: name another directory and checkpoint"
            )
        self.last, self.is_finished = manifest["batch"], manifest["finished"]
        self.totals.update(manifest["totals"])
        if manifest["about"]["trace"] != about["trace"]:
            raise CausalityError(
                f"{out} was begun with another trace, {manifest['about']['trace']}: name another directory"
            )
        if manifest["about"] != about:
            raise CausalityError(f"{out} was begun with other rules (--settle, …): give the same again")

    def commit(self, batch: int, parts: list[str], added: Counter[str], seconds: float) -> None:
        self.totals.update(added)
        self.last = batch
        self.is_finished = bool(added["ended"])
        totals, events = self.totals, added["arrived"]
        progress = Progress(
            batch=batch,
            events=events,
            seconds=seconds,
            told=totals["events"],
            held=totals["held"],
            computations=totals["live"],
            violations=totals["causal_violations"],
            state_bytes=totals["state_bytes"],
        )
        manifest = {
            "format": FORMAT,
            "version": __version__,
            "batch": batch,
            "about": self._about,
            "finished": self.is_finished,
            "parts": sorted(parts),
            "totals": dict(totals),
            "progress": progress._asdict(),
        }
        _write(self._out / "commits" / f"{batch:09d}.json", json.dumps(manifest).encode())
        _write(self._out / "progress.json", json.dumps(progress._asdict()).encode())


def follow(
    spark: SparkSession,
    trace: AnyPath,
    out: AnyPath,
    *,
    checkpoint: str,
    rules: Rules | None = None,
    questions: Collection[str] = QUESTIONS,
    most_bytes: int | None = None,
    once: bool = False,
    seconds: float = 1.0,
) -> StreamingQuery:
    """Start a query that fills `out` with the answers about a trace.

    checkpoint   Spark's own: which batch has which rows, and the state
    rules        retire is in milliseconds
    most_bytes   about so many bytes of files in a batch
    once         end after what is there now, to the last byte; else a batch every so many `seconds`
    """
    rules = rules or Rules(retire=600_000)
    buckets = buckets_of(spark)
    name = TraceTail(str(trace)).name
    about = {"trace": name, "rules": list(vars(rules).values()), "buckets": buckets}
    about["questions"] = sorted(questions)
    before = last_manifest(out)
    if before is not None and before["format"] == FORMAT:
        about["buckets"] = buckets = before["about"]["buckets"]
    commits = Manifests(out, about)
    if commits.is_finished:
        raise CausalityError(
            f"{out} has the final tables of a trace that has ended, and cannot be "
            "resumed; name another directory"
        )
    rows = _packed(spark, trace, buckets, most_bytes, ended=once)
    written = answered(rows, rules, questions, outlet=AsParts(out))
    writer = written.writeStream.foreachBatch(_Writer(out, about)).option("checkpointLocation", checkpoint)
    with _with_batches_for_timers(spark, not once):
        if once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{seconds} seconds").start()


def _packed(
    spark: SparkSession, trace: AnyPath, buckets: int, most_bytes: int | None, *, ended: bool
) -> DataFrame:
    """The events of a trace as they appear, packed by the tasks that read them."""
    supply(spark)
    spark.dataSource.register(TraceSource)
    reader = spark.readStream.format("happened").option("buckets", buckets).option("ended", str(ended))
    if most_bytes is not None:
        require("a limit of a batch")  # checked here, since the source would raise it in a process of Spark's
        reader = reader.option("maxBytesPerTrigger", str(most_bytes))
    return reader.load(str(trace))


class _Writer:
    """Takes the batches of a query: tasks write parts, then this writes the manifest."""

    def __init__(self, out: AnyPath, about: dict[str, Any]) -> None:
        self._out, self._about = out, about
        self._commits: Manifests | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        if self._commits is None:  # on Spark Connect this runs in another process than the caller
            self._commits = Manifests(self._out, self._about)
        if batch <= self._commits.last:
            return
        started = time.perf_counter()
        parts, added = [], Counter[str]()
        for part, name, count in frame.collect():
            if part is None:
                added[name] += count
            else:
                parts.append(part)
        if parts or added:  # a batch that only checked timers leaves nothing
            self._commits.commit(batch, parts, added, time.perf_counter() - started)


@contextmanager
def _with_batches_for_timers(spark: SparkSession, wanted: bool) -> Iterator[None]:
    """Whether queries that start in this block run batches without rows, so that timers fire. With such
    batches, a query on the present content would not end."""
    before = spark.conf.get(NO_DATA, None)
    spark.conf.set(NO_DATA, str(wanted).lower())
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(NO_DATA)
        else:
            spark.conf.set(NO_DATA, before)


def has_not_begun(error: Exception) -> bool:
    """Whether a query failed because the process that plans its batches had not started after 10 seconds, as
    happens on a busy machine. Spark has no setting for this timeout. When it is started again, the query
    resumes from its checkpoint."""
    return "Python worker failed to connect back" in str(error)


def last_manifest(out: AnyPath) -> dict[str, Any] | None:
    """The manifest of the last committed batch."""
    found = manifests(out)
    return json.loads(found[-1].read_bytes()) if found else None


def manifests(out: AnyPath) -> list[AnyPath]:
    """The manifests of all batches, in their order."""
    commits = out / "commits"
    found: list[AnyPath] = matching(commits, "*.json") if commits.is_dir() else []
    return sorted(found, key=lambda path: path.name)


def progress_of(manifest: AnyPath) -> Progress:
    return Progress(**json.loads(manifest.read_bytes())["progress"])


def committed(out: AnyPath, table: str) -> list[AnyPath]:
    """The parts of a table that manifests name, in the order of batches."""
    parts = []
    for path in manifests(out):
        named = json.loads(path.read_bytes())["parts"]
        parts += [out / part for part in named if part.startswith(f"{table}/")]
    return parts


def _write(path: AnyPath, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as unfinished:
        unfinished.write_bytes(data)
