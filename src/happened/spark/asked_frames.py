"""The answers of `happened.ask`, for a frame of events instead of a trace in files.

    requests(events).orderBy("took").show()        one row for each request: how long, and where its time went
    critical_path(events).show()                   one row for each place: its share, and what it would save
    print(why(events, "cart#7"))                   ask.Why; past, future and influenced alike

Each function looks at the rows of the frame it is given. For one event or request, Spark finds the
computations it belongs to and this process holds them (large_traces). For all requests, rows are shuffled by
computation, and each task answers for its computations.

on_bad   "raise": NotJudged if a computation that the answer needs cannot be judged, or a row is not an
         event. "quarantine": the answer leaves those out, and a warning counts them
"""

import pickle
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from .. import ask
from ..ask.critical import By, Paths, check_by, told
from ..ask.history import History, load
from ..causality.analysis import sound
from ..causality.questions import Answers
from ..core.errors import CausalityError
from ..trace.readers.span_joins import leaders_of
from ..trace.schema import ASKED, DEFAULTS, QUARANTINE, SCHEMA
from .event_rows import UNREADABLE, as_events, with_columns
from .large_traces import (
    EVENTS_PER_BUCKET,
    MOST_COMPUTATIONS,
    MOST_GATHERED,
    NEEDED,
    Hits,
    LargeTrace,
    _hits,
    add_up,
)
from .not_judged import MOST_REASONS, RAISE, NotJudged, check_on_bad
from .session import supply
from .splits import TELLING, padded, sort_out
from .storage import spark_schema
from .tasks import pack_table, unpack_table

Columns = Mapping[str, str | Column]
HOME = "_home"


TEXT, NUMBER = pa.string(), pa.int64()
SEGMENT = pa.struct([("place", TEXT), ("took", NUMBER)])
OF_REQUEST = {"request": TEXT, "computation": TEXT, "events": NUMBER, "place": TEXT, "label": TEXT}
REQUESTS = pa.schema({**OF_REQUEST, "begin": NUMBER, "took": NUMBER, "path": pa.list_(SEGMENT)})
SHARES = pa.schema(
    {"place": TEXT, "requests": NUMBER, "took": NUMBER, "share": pa.float64(), "saved": NUMBER}
)


def requests(
    events: DataFrame, by: By = "service", *, columns: Columns | None = None, on_bad: str = RAISE
) -> DataFrame:
    """One row for each request: when it began (corrected ns), how long it took, and its critical path.

    place, label   those of the request's first event
    path           the stretches of its critical path in order, as `happened ask critical-path` prints them

    All columns but request, computation and events are null where no two events of a request have a time.
    """
    check_by(by)
    rows = _events(events, columns)
    grouped = _by_home(rows)
    _check(rows, grouped, on_bad)
    return grouped.mapInArrow(partial(_each_chunk, partial(_requests, by)), spark_schema(REQUESTS))


def critical_path(
    events: DataFrame,
    by: By = "service",
    request: str | None = None,
    *,
    columns: Columns | None = None,
    on_bad: str = RAISE,
) -> DataFrame:
    """One row for each place, largest time first: how many critical paths contain it, how long they stay
    there (ns), its share of all time, and how much sooner the requests would end if it took no time.

    by        "service" (the process, where no service is recorded) or "process": what counts as a place
    request   the name of one request, or one of its events, to look at this request alone
    """
    check_by(by)
    spark = events.sparkSession
    if request is not None:
        history, name = _asked(events, columns, on_bad).about_request(request)
        answer = ask.critical_path(history, name, by=by)
        total = sum(answer.took)
        shares = [(*each[:3], each.took / total if total else None, each.saved) for each in answer.shares]
        return _frame(spark, shares, SHARES)
    rows = _events(events, columns)
    kept = F.map_filter("attributes", lambda name, _: name.isin(*NEEDED))
    grouped = _by_home(rows.withColumn("attributes", kept).drop("label"))
    _check(rows, grouped, on_bad)
    spent, saved = add_up(
        _results(grouped, lambda history: Paths(history, by).spent),
        lambda places: _results(grouped, lambda history: Paths(history, by).saved(places)),
    )
    if not spent.took:
        raise ask.NoTimes("no request has two events with a time, so there is no critical path in time")
    total = sum(spent.took.values())
    shares = [
        (told(place), spent.requests[place], spent.at[place], spent.at[place] / total if total else None,
         saved.get(place))
        for place in spent.ranked
    ]  # fmt: skip
    return _frame(spark, shares, SHARES)


def why(
    events: DataFrame,
    event: str,
    *,
    depth: int | None = None,
    columns: Columns | None = None,
    on_bad: str = RAISE,
) -> ask.Why:
    """The causes of an event as a tree, and the chain of causes that it waited for."""
    return ask.why(_asked(events, columns, on_bad).about(event), event, depth=depth)


def past(events: DataFrame, event: str, *, columns: Columns | None = None, on_bad: str = RAISE) -> DataFrame:
    """All events that happened before one, causes before effects; times are corrected."""
    found = ask.past(_asked(events, columns, on_bad).about(event), event)
    return _frame(events.sparkSession, [tuple(row.values()) for row in found.to_pylist()], found.schema)


def future(
    events: DataFrame, event: str, *, columns: Columns | None = None, on_bad: str = RAISE
) -> DataFrame:
    """All events that one happened before, causes before effects; times are corrected."""
    found = ask.future(_asked(events, columns, on_bad).about(event), event)
    return _frame(events.sparkSession, [tuple(row.values()) for row in found.to_pylist()], found.schema)


def influenced(
    events: DataFrame,
    request: str,
    *,
    direction: str = "past",
    columns: Columns | None = None,
    on_bad: str = RAISE,
) -> ask.Influences:
    """The requests that influenced one, each with a chain; with direction="future", those it influenced."""
    history, name = _asked(events, columns, on_bad).about_request(request)
    return ask.influenced(history, name, direction=direction)


def _events(events: DataFrame, columns: Columns | None) -> DataFrame:
    """The columns that questions read. In rows that are not events, the column UNREADABLE says why."""
    supply(events.sparkSession)
    rows = with_columns(as_events(events, columns), (*ASKED, UNREADABLE))
    return rows.fillna(DEFAULTS)


def _asked(events: DataFrame, columns: Columns | None = None, on_bad: str = RAISE) -> "AskedFrame":
    check_on_bad(on_bad)
    return AskedFrame(_events(events, columns), on_bad)


class AskedFrame(LargeTrace):
    """A frame of events that is asked like a LargeTrace, a trace in files."""

    def __init__(self, rows: DataFrame, on_bad: str) -> None:
        self.spark: SparkSession = rows.sparkSession
        self._unread = _unread(rows)
        self._rows = rows.where(F.col(UNREADABLE).isNull()).drop(UNREADABLE)
        self._on_bad = on_bad
        self._numbers = count()

    @cached_property
    def pairs(self) -> pa.Table:
        trace = F.col("attributes")["trace"].alias("trace")
        return _gathered(self._rows.select("computation", trace).distinct())

    def gathered(self, computations: set[str]) -> History:
        wanted = self.spark.createDataFrame([(name,) for name in sorted(computations)], "computation string")
        rows = self._rows.join(F.broadcast(wanted), "computation", "left_semi")
        events = rows.count()
        if events > MOST_GATHERED:
            raise CausalityError(
                f"the question needs {events:,} events, and at most {MOST_GATHERED:,} can be held at once; "
                "filter the frame to fewer computations"
            )
        table = padded(_gathered(rows), SCHEMA)
        kept, bad = _judged(table)
        unread = _gathered(self._unread.limit(MOST_COMPUTATIONS))
        bad = pa.concat_tables([bad, unread.cast(QUARANTINE)])
        _tell(bad, self._on_bad)
        if not kept.num_rows:
            raise _not_judged(bad)
        return load(kept)

    def _looked_for(
        self, names: dict[int, str], kinds: Sequence[str], columns: Sequence[str]
    ) -> dict[int, set[str]]:
        def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                rows = pa.Table.from_batches([batch])
                for name, text in names.items():
                    hits = _hits(rows, text, kinds)
                    if hits is not None:
                        yield pa.RecordBatch.from_pylist(
                            [{"name": name, "kind": hits.kind, "computation": of} for of in hits.computations]
                        )

        rows = self._rows.select(*dict.fromkeys((*TELLING, *columns)))
        found = rows.mapInArrow(look, "name long, kind long, computation string").distinct()
        mine: dict[int, Hits] = {}
        for row in found.limit((MOST_COMPUTATIONS + 1) * len(names) * len(kinds)).collect():
            hits = mine.get(row["name"])
            if hits is None or row["kind"] < hits.kind:
                mine[row["name"]] = hits = Hits(row["kind"], set())
            if row["kind"] == hits.kind:
                hits.computations.add(row["computation"])
        return {name: mine[name].computations if name in mine else set() for name in names}


def _gathered(rows: DataFrame) -> pa.Table:
    """Fetch all rows into this process."""

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"packed": [pack_table(pa.Table.from_batches([batch]))]})

    packed = [unpack_table(bytes(row["packed"])) for row in rows.mapInArrow(pack, "packed binary").collect()]
    if packed:
        return pa.concat_tables(packed)
    return pa.table({field.name: pa.array([], pa.string()) for field in rows.schema})


def _judged(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The rows of sound computations, and what was left out as rows of QUARANTINE."""
    events, no_events = sort_out(rows)
    answers = Answers()
    parts = [part for part, _ in sound(events, answers)]
    told = [no_events, *answers.tables.get("quarantine", ())]
    return pa.concat_tables([events.slice(0, 0), *parts]), pa.concat_tables(told)


def _by_home(rows: DataFrame) -> DataFrame:
    """The events, with computations that share a request next to each other in one partition."""
    rows = rows.where(F.col(UNREADABLE).isNull()).drop(UNREADABLE)
    named = rows.select("computation", F.col("attributes")["trace"].alias("trace")).distinct()
    own = named.select("computation", F.col("computation").alias("trace"))
    shared = (
        named.where(F.col("trace").isNotNull())
        .union(own)
        .groupBy("trace")
        .agg(F.collect_set("computation").alias("group"))
        .where(F.size("group") > 1)
    )
    leaders = leaders_of([{*row["group"]} for row in shared.select("group").collect()])
    home = F.col("computation")
    if leaders:
        found = rows.sparkSession.createDataFrame([*leaders.items()], "computation string, leader string")
        rows = rows.join(found, "computation", "left")
        home = F.coalesce("leader", "computation")
    return rows.withColumn(HOME, home).repartition(HOME).sortWithinPartitions(HOME)


def _chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows as tables of about EVENTS_PER_BUCKET rows; a new table begins only where HOME changes."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        if sum(each.num_rows for each in held) >= EVENTS_PER_BUCKET:
            last = held[-1].column(HOME)[-1]
            cut = pc.index(pc.equal(batch.column(HOME), last), False).as_py()
            if cut >= 0:
                yield pa.Table.from_batches([*held, batch.slice(0, cut)])
                held, batch = [], batch.slice(cut)
        if batch.num_rows:
            held.append(batch)
    if held:
        yield pa.Table.from_batches(held)


def _each_chunk(
    answer: Callable[[History], pa.Table], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for rows in _chunks(batches):
        kept, _ = _judged(padded(rows, SCHEMA))
        if kept.num_rows:
            yield from answer(load(kept)).to_batches()


def _bad(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for rows in _chunks(batches):
        _, bad = _judged(padded(rows, SCHEMA))
        yield from bad.to_batches()


def _check(rows: DataFrame, grouped: DataFrame, on_bad: str) -> None:
    """Raise NotJudged, or warn, if an answer about all requests would leave rows out."""
    check_on_bad(on_bad)
    unsound = grouped.mapInArrow(_bad, spark_schema(QUARANTINE))
    _tell(_gathered(_unread(rows).union(unsound).limit(MOST_COMPUTATIONS)), on_bad)


def _unread(rows: DataFrame) -> DataFrame:
    """The rows that are not events, as rows of QUARANTINE."""
    reason = F.col(UNREADABLE).alias("reason")
    name = F.coalesce("computation", F.lit("")).alias("computation")
    return rows.where(F.col(UNREADABLE).isNotNull()).select(name, reason)


def _tell(bad: pa.Table, on_bad: str) -> None:
    if bad.num_rows and on_bad == RAISE:
        raise _not_judged(bad)
    if bad.num_rows:
        first = bad.slice(0, 1).to_pylist()[0]
        warnings.warn(
            f"{bad.num_rows:,} rows or computations could not be judged, and the answers are about the "
            f"others; the first: computation {first['computation']!r}: {first['reason']}",
            stacklevel=4,
        )


def _not_judged(bad: pa.Table) -> NotJudged:
    reasons = [(row["computation"], row["reason"]) for row in bad.slice(0, MOST_REASONS).to_pylist()]
    return NotJudged(bad.num_rows, len(pc.unique(bad["computation"])), tuple(reasons), renumbers=False)


def _results(grouped: DataFrame, answer: Callable[[History], Any]) -> Iterator[Any]:
    """answer(history) for each chunk of the frame; these results must be small."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pickled: Callable[[History], pa.Table] = lambda history: pa.table(  # noqa: E731
            {"result": pa.array([pickle.dumps(answer(history))], pa.binary())}
        )
        yield from _each_chunk(pickled, batches)

    for row in grouped.mapInArrow(run, "result binary").collect():
        yield pickle.loads(bytes(row["result"]))


def _requests(by: By, history: History) -> pa.Table:
    codes, names = history.requests
    events = np.bincount(codes[codes >= 0], minlength=len(names)).tolist()
    first = np.full(len(names), -1)
    first[codes[::-1][codes[::-1] >= 0]] = np.flatnonzero(codes >= 0)[::-1]
    timed = {name: (begin, path) for name, begin, path in Paths(history, by).told()}
    rows = []
    for number, name in enumerate(names):
        if first[number] < 0:
            continue
        row: dict[str, Any] = {"request": name, "events": events[number]}
        row["computation"] = history.union.event(int(first[number]))[0]
        if name in timed:
            begin, path = timed[name]
            root = history.occurrence(begin)
            row |= {"computation": root.computation, "place": root.place if by == "service" else root.process}
            row |= {"label": root.label, "begin": root.time, "took": sum(took for _, took in path)}
            row["path"] = [{"place": place, "took": took} for place, took in path]
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=REQUESTS)


def _frame(spark: SparkSession, rows: Sequence[tuple[object, ...]], schema: pa.Schema) -> DataFrame:
    return spark.createDataFrame(rows, spark_schema(schema))
