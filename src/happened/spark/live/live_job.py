"""`happened stream`: stamps, predecessors and early deliveries of a trace while it is being written.

In      a streaming DataFrame of events, or of stretches of the files of a trace (trace_source), whose rows do
        not cross the JVM
Out     a directory of tables, a part for each micro-batch: stamps, processes, predecessors, violations,
        lost_causes, quarantine; `state`, what the next batch needs; `commits`, a manifest for each batch
Cost    one process, the driver's, goes through the events of a batch; state and bounds as in causality.live

A batch is committed by its manifest, which is written last. It names the state that the batch left. A batch
that Spark runs again after a crash is skipped if its manifest is there; if not, it starts from the same state
and writes the same files over those that were left. So tables and state cannot disagree, nothing is lost and
nothing repeated. Readers who must not see half a batch take the parts that manifests name (`committed`).
"""

import json
import pickle
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ... import __version__
from ...causality.live import LiveComputation, Rules
from ...causality.questions import QUARANTINE, Answers
from ...core.errors import CausalityError, TraceFormatError
from ...trace.atomic import whole_file
from ...trace.schema import SCHEMA
from ...trace.store import AnyPath, matching
from ..classic import context_of
from ..session import supply
from ..splits import sort_out
from ..storage import write_part
from .trace_source import TraceSource
from .trace_tail import Stretch, TraceTail

FORMAT = 2
"""Of manifests and states."""

PROCESSES = pa.schema(
    [
        pa.field("computation", pa.string(), nullable=False),
        pa.field("process", pa.string(), nullable=False),
        pa.field("p", pa.int32(), nullable=False),
    ]
)
"""Processes in the order in which they became known; entry p of a clock is about process p."""


class Progress(NamedTuple):
    """Of one batch, and so far."""

    batch: int
    events: int
    seconds: float
    told: int  # events in all
    held: int
    in_flight: int
    computations: int
    violations: int  # of causal order, in all
    state_bytes: int

    def line(self) -> str:
        rate = self.events / self.seconds if self.seconds else 0.0
        return (
            f"batch {self.batch}: {self.events:,} events ({rate:,.0f}/s), {self.told:,} told, "
            f"{self.held:,} held, {self.in_flight:,} in flight, {self.violations:,} early, "
            f"{self.state_bytes:,} bytes of state"
        )


class LiveTables:
    """The directory that a stream fills; `take` is given one batch after another."""

    def __init__(self, out: AnyPath, rules: Rules, trace: str | None = None) -> None:
        self._out = out
        self._rules = rules
        self._trace = trace
        self._live: dict[str, LiveComputation | None] = {}  # None: nothing more can be told of it
        self.totals: Counter[str] = Counter()
        self.last = -1
        self.progress: Progress | None = None
        manifest = last_manifest(out)
        if manifest is not None:
            if manifest["format"] != FORMAT:
                raise CausalityError(
                    f"{out} was written by version {manifest['version']}, whose state this version cannot "
                    "go on with: name another directory and checkpoint"
                )
            if manifest["finished"]:
                raise CausalityError(
                    f"{out} has the tables of a trace that was told to its end; name another"
                )
            if trace is not None and manifest.get("trace") not in (None, trace):
                raise CausalityError(
                    f"{out} was begun with another trace, {manifest['trace']}: name another directory"
                )
            self.last = manifest["batch"]
            state = pickle.loads((out / manifest["state"]).read_bytes())
            self._live, self.totals = state
            if any(live.rules != rules for live in self._each()):
                raise CausalityError(f"{out} was begun with other rules (--retire, …): give the same again")

    def _each(self) -> list[LiveComputation]:
        return [live for live in self._live.values() if live is not None]

    def take(self, batch: int, events: pa.Table, quarantined: pa.Table, *, last: bool = False) -> None:
        """Tell what a batch lets be told, and commit it. A batch that was committed is left alone."""
        if batch <= self.last:
            return
        started = time.perf_counter()
        answers = Answers()
        answers.add("quarantine", quarantined)
        answers.totals["quarantined"] += quarantined.num_rows
        arrived = _by_computation(events)
        for name in sorted({*self._live, *arrived}):
            self._advance(name, arrived.get(name, events.slice(0, 0)), batch, last, answers)
        self.totals += answers.totals
        self.totals["events"] += sum(part.num_rows for part in answers.tables["stamps"])
        size = self._commit(batch, answers, last)
        self._report(batch, events.num_rows, time.perf_counter() - started, size)

    def finish(self) -> None:
        """Nothing more comes: tell the rest. The directory cannot be gone on with after that."""
        self.take(self.last + 1, SCHEMA.empty_table(), QUARANTINE.empty_table(), last=True)

    def _advance(self, name: str, arrived: pa.Table, batch: int, last: bool, answers: Answers) -> None:
        live = self._live.setdefault(name, LiveComputation(name, self._rules))
        if live is None:
            answers.totals["quarantined"] += arrived.num_rows
            return
        known = len(live.names)
        try:
            _join(answers, live.step(arrived, batch))
            if last or (live.quiet > self._rules.retire and not live.held):
                _join(answers, live.finish(batch))
                del self._live[name]
        except TraceFormatError as error:
            # What was told of it stands; nothing more can be.
            reason = f"{error}; events told before are right, later ones are left out"
            row = {"computation": name, "reason": reason}
            answers.add("quarantine", pa.Table.from_pylist([row], schema=QUARANTINE))
            answers.totals["quarantined"] += arrived.num_rows + live.held
            self._live[name] = None
        new = [
            {"computation": name, "process": process, "p": known + k}
            for k, process in enumerate(live.names[known:])
        ]
        answers.add("processes", pa.Table.from_pylist(new, schema=PROCESSES))

    def _commit(self, batch: int, answers: Answers, last: bool) -> int:
        """Write the tables, the state and then the manifest; returns the size of the state."""
        part = f"batch-{batch:09d}"
        written = []
        for name, table in answers.filled():
            write_part(self._out / name, part, table)
            written.append(f"{name}/{part}.parquet")
        state = pickle.dumps((self._live, self.totals), pickle.HIGHEST_PROTOCOL)
        place = f"state/{part}.pickle"
        _write(self._out / place, state)
        manifest = {
            "format": FORMAT,
            "version": __version__,
            "batch": batch,
            "trace": self._trace,
            "finished": last,
            "state": place,
            "parts": written,
            "totals": dict(self.totals),
        }
        _write(self._out / "commits" / f"{batch:09d}.json", json.dumps(manifest).encode())
        self.last = batch
        for old in matching(self._out / "state", "*.pickle"):
            if old.name < f"batch-{batch - 1:09d}":
                old.unlink()
        return len(state)

    def _report(self, batch: int, events: int, seconds: float, size: int) -> None:
        live = self._each()
        self.progress = Progress(
            batch=batch,
            events=events,
            seconds=seconds,
            told=self.totals["events"],
            held=sum(each.held for each in live),
            in_flight=sum(each.in_flight for each in live),
            computations=len(live),
            violations=self.totals["causal_violations"],
            state_bytes=size,
        )
        _write(self._out / "progress.json", json.dumps(self.progress._asdict()).encode())


def follow(
    events: DataFrame,
    out: AnyPath,
    *,
    rules: Rules | None = None,
    checkpoint: str,
    tail: TraceTail | None = None,
    once: bool = False,
    seconds: float = 1.0,
    tell: Callable[[str], object] = lambda line: None,
) -> tuple[StreamingQuery, LiveTables]:
    """Start a query that fills `out`.

    events       of a trace; or, with `tail`, stretches of its files
    checkpoint   Spark's own: which batch has which rows
    once         end after what is there now; else a batch every so many `seconds`
    tell         is given a line for each batch
    """
    if context_of(events.sparkSession) is None:
        raise CausalityError(
            "on Spark Connect the batches of a stream are taken by a process of the server, and the state of "
            "this one is here: follow a trace on a classic session, --master local[*] or spark://…"
        )
    tables = LiveTables(out, rules or Rules(), None if tail is None else tail.name)

    def take(frame: DataFrame, batch: int) -> None:
        if batch > tables.last:
            tables.take(batch, *_read(frame, tail))
            assert tables.progress is not None
            tell(tables.progress.line())

    writer = events.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
    writer = (
        writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{seconds} seconds")
    )
    return writer.start(), tables


def has_not_begun(error: Exception) -> bool:
    """Whether a query failed since the process that plans its batches had not started after 10 seconds, as on
    a busy machine. Spark has no setting for these. Started again, the query goes on from its checkpoint."""
    return "Python worker failed to connect back" in str(error)


def stretches(
    spark: SparkSession, where: AnyPath, most_bytes: int | None = None, *, ended: bool = False
) -> DataFrame:
    """The stretches of the files of a trace, as they appear; of one that has `ended`, to the last byte."""
    supply(spark)
    spark.dataSource.register(TraceSource)
    reader = spark.readStream.format("happened").option("stretches", "true").option("ended", str(ended))
    if most_bytes is not None:
        reader = reader.option("maxBytesPerTrigger", str(most_bytes))
    return reader.load(str(where))


def last_manifest(out: AnyPath) -> dict[str, Any] | None:
    commits = out / "commits"
    found = sorted(matching(commits, "*.json"), key=lambda path: path.name) if commits.is_dir() else []
    return json.loads(found[-1].read_bytes()) if found else None


def committed(out: AnyPath, table: str) -> list[AnyPath]:
    """The parts of a table that manifests name, in the order of batches."""
    parts = []
    for path in sorted(matching(out / "commits", "*.json"), key=lambda path: path.name):
        parts += [
            out / part for part in json.loads(path.read_bytes())["parts"] if part.startswith(f"{table}/")
        ]
    return parts


def _read(frame: DataFrame, tail: TraceTail | None) -> tuple[pa.Table, pa.Table]:
    if tail is None:
        return sort_out(_as_trace(frame.toArrow()))
    found = [tail.split(Stretch(*row)).read() for row in sorted(frame.collect())]
    if not found:
        return SCHEMA.empty_table(), QUARANTINE.empty_table()
    events, quarantined = zip(*found, strict=True)
    return pa.concat_tables(events), pa.concat_tables(quarantined)


def _as_trace(table: pa.Table) -> pa.Table:
    columns = [
        table[field.name].cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in SCHEMA
    ]
    named = pa.table(columns, names=SCHEMA.names)
    for name, value in (("computation", ""), ("relevant", False)):
        at = SCHEMA.get_field_index(name)
        named = named.set_column(at, name, pc.fill_null(named[name], value))
    return pa.table(named.columns, schema=SCHEMA)


def _by_computation(events: pa.Table) -> dict[str, pa.Table]:
    names = pc.unique(events["computation"]).to_pylist()
    if len(names) == 1:
        return {names[0]: events}
    codes = pc.index_in(events["computation"], value_set=pa.array(names, pa.string())).to_numpy()
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(len(names) + 1))
    sorted_events = events.take(pa.array(order))
    return {name: sorted_events.slice(ends[k], ends[k + 1] - ends[k]) for k, name in enumerate(names)}


def _join(answers: Answers, more: Answers) -> None:
    for name, tables in more.tables.items():
        for table in tables:
            answers.add(name, table)
    answers.totals += more.totals


def _write(path: AnyPath, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as unfinished:
        unfinished.write_bytes(data)
