"""Turns a frame of foreign records into a frame of events, with the readers that also read files.

In    a frame, a function that makes drafts of one row, and a reader's `assemble`
Out   rows of trace.SCHEMA. Records and causes that were left out are rows with a reason in
      event_rows.UNREADABLE, so that answers about the frame can report them. If records repeat each other
      exactly, one of them is used
Cost  one pass to parse, whose drafts Spark keeps as long as the frame exists; one shuffle of the drafts by
      computation, when the frame is used. The rows of a frame have no order, so the drafts of a computation
      are sorted by their content

Request traces that name spans of one another, or share a channel, form one computation; `leaders_of_linked`
finds these traces (as an import of files does). This costs nothing if no trace names another; otherwise one
join of references with ids, and rounds over the linked traces alone, which find connected components: in each
round a trace takes the smallest label of its neighbours, and then the label which that label's trace has, so
that paths shorten by half. It ends when no label changes; BOUND rounds suffice for all storable traces.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from ..core.errors import CausalityError
from ..trace.readers import Assembly, Draft, Options, QuarantinedRecord
from ..trace.readers.draft import PACKED, QUARANTINE, packed_table, storable, unpacked_drafts
from ..trace.readers.span_joins import MOST_JOINED, TraceJoins
from ..trace.readers.table_spans import Record, records_of
from ..trace.store import AnyPath
from ..trace.writer import table_from_rows
from .event_rows import UNREADABLE
from .session import supply
from .splits import UNCHECKED, padded
from .storage import TRACE, read_rows, spark_schema, write_rows
from .workspace import Workspace, forgotten_with

Parse = Callable[[Record], Iterable[Draft | QuarantinedRecord]]
Assemble = Callable[[Iterable[Draft], Options], Assembly]

LEFT_OUT = "_left_out"
REPEATED = "repeats another record exactly, and is taken once"
ROWS_AT_ONCE = 10_000

_told = pa.field(
    LEFT_OUT, pa.struct([QUARANTINE.field(name) for name in ("field", "reason", "text", "imported")])
)
_texts = pa.list_(pa.string())
PARSED = pa.schema(
    [
        *(PACKED.field(name).with_nullable(True) for name in ("computation", "ids", "drafts")),
        pa.field("named", _texts),
        pa.field("channels", _texts),
        _told,
    ]
)
"""A row has drafts of one computation, the spans of other traces that these name, and the channels they use;
or it has a record that was left out."""
ASSEMBLED = UNCHECKED.append(_told)


def events_of(
    records: DataFrame, parse: Parse, assemble: Assemble, *, linked: bool = False, work: Any = None
) -> DataFrame:
    """The events of `records`. The attribute `quarantine` of the returned frame has what was left out, also
    the unusable parts of records whose events are in the frame.

    linked   whether computations that name each other's records are joined into one computation
    """
    spark = records.sparkSession
    supply(spark)
    parsed = records.mapInArrow(partial(_parse, parse), spark_schema(PARSED)).persist()
    drafts = parsed.where(F.col("drafts").isNotNull()).select(
        "computation", "ids", "drafts", "named", "channels"
    )
    workspace = None
    if linked and not drafts.where((F.size("named") > 0) | (F.size("channels") > 0)).isEmpty():
        workspace = Workspace(spark, work)
        drafts = _joined(drafts, workspace)
    rows = (
        drafts.select("computation", "drafts")
        .repartition("computation")
        .sortWithinPartitions("computation")
        .mapInArrow(partial(_assemble, assemble), spark_schema(ASSEMBLED))
    )
    nothing = [F.lit(None).cast(field.dataType).alias(field.name) for field in TRACE]
    every = rows.union(parsed.where(F.col(LEFT_OUT).isNotNull()).select(*nothing, LEFT_OUT))
    told = F.col(LEFT_OUT)
    events = every.where(told.isNull() | (told["reason"] != REPEATED)).select(
        *TRACE.names, F.when(told.isNotNull(), _sentence(told)).alias(UNREADABLE)
    )
    events.quarantine = every.where(told.isNotNull()).select(f"{LEFT_OUT}.*")  # type: ignore[attr-defined]
    if workspace is not None:
        workspace.keep()
        events._happened_workspace = workspace  # type: ignore[attr-defined]
    forgotten_with(events, parsed)
    return events


def _sentence(told: Column) -> Column:
    about = F.when(told["field"].isNotNull(), F.concat(F.lit("field '"), told["field"], F.lit("': ")))
    text = F.when(told["text"].isNotNull(), F.concat(F.lit(" | "), told["text"]))
    nothing = F.lit("")
    return F.concat(F.lit("?#: "), F.coalesce(about, nothing), told["reason"], F.coalesce(text, nothing))


def _joined(drafts: DataFrame, workspace: Workspace) -> DataFrame:
    """The same drafts; drafts of linked traces get the name of their leader as their computation."""
    references = drafts.select(F.col("computation").alias("trace"), F.explode("named").alias("id"))
    channels = drafts.select(F.explode("channels").alias("channel"), F.col("computation").alias("trace"))
    leaders, too_wide = leaders_of_linked(drafts, references, channels, workspace.folder)
    if too_wide:
        warnings.warn(
            f"{too_wide:,} channels carry more than {MOST_JOINED:,} traces each: their order is judged "
            "within each trace, not across traces",
            stacklevel=4,
        )
    if leaders is None:
        return drafts
    named = leaders.select(F.col("trace").alias("computation"), "leader")
    return drafts.join(named, "computation", "left").withColumn(
        "computation", F.coalesce("leader", "computation")
    )


def _parse(parse: Parse, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        drafts: list[Draft] = []
        left_out: list[QuarantinedRecord] = []
        for each in storable(chain.from_iterable(map(parse, records_of(batch)))):
            if isinstance(each, Draft):
                drafts.append(each)
            else:
                left_out.append(each)
        yield from _parsed(drafts).to_batches()
        yield from padded(pa.table([_row(left_out)], [LEFT_OUT]), PARSED).to_batches()


def _parsed(drafts: Sequence[Draft]) -> pa.Table:
    packed = packed_table(drafts)
    named: dict[str, list[str]] = {}
    channels: dict[str, list[str]] = {}
    for draft in drafts:
        joins = TraceJoins()
        joins.add(draft)
        named.setdefault(draft.computation, []).extend(joins.named)
        channels.setdefault(draft.computation, []).extend(joins.carried)
    names = packed["computation"].to_pylist()
    more = [pa.array([[*dict.fromkeys(of[name])] for name in names], _texts) for of in (named, channels)]
    columns = [packed[name] for name in ("computation", "ids", "drafts")]
    return padded(pa.table([*columns, *more], PARSED.names[:-1]), PARSED)


def _row(left_out: Sequence[QuarantinedRecord]) -> pa.Array:
    kept = [
        {name: getattr(each, name) for name in ("field", "reason", "text", "imported")} for each in left_out
    ]
    return pa.array(kept, _told.type)


def _assemble(assemble: Assemble, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    drafts = chain.from_iterable(map(unpacked_drafts, batches))
    rows: list[dict[str, Any]] = []
    left_out: list[tuple[str, QuarantinedRecord]] = []
    for name, group in groupby(drafts, key=lambda draft: draft.computation):
        once, repeated = _taken_once(group)
        assembly = assemble(once, Options())
        rows += assembly.rows
        left_out += [(name, each) for each in (*assembly.quarantined, *repeated)]
        if len(rows) + len(left_out) >= ROWS_AT_ONCE:
            yield from _assembled(rows, left_out)
            rows, left_out = [], []
    yield from _assembled(rows, left_out)


def _taken_once(drafts: Iterable[Draft]) -> tuple[list[Draft], list[QuarantinedRecord]]:
    """The drafts without exact repeats, and reports of the repeats; absent drafts are quarantined already."""
    once: list[Draft] = []
    repeated = []
    alike: dict[tuple[object, ...], list[Draft]] = {}
    for draft in drafts:
        others = alike.setdefault((draft.id, draft.process, draft.seq, draft.time), [])
        if draft not in others:
            others.append(draft)
            once.append(draft)
        elif not draft.absent:
            repeated.append(draft.quarantined("id", REPEATED, imported=False))
    return once, repeated


def _assembled(
    rows: list[dict[str, Any]], left_out: Sequence[tuple[str, QuarantinedRecord]]
) -> Iterator[pa.RecordBatch]:
    """Rows of ASSEMBLED: events, and records that were left out, with the names of their computations."""
    yield from padded(table_from_rows(rows), ASSEMBLED).to_batches()
    names = pa.array([name for name, _ in left_out], pa.string())
    told = _row([each for _, each in left_out])
    yield from padded(pa.table([names, told], ["computation", LEFT_OUT]), ASSEMBLED).to_batches()


BOUND = 200


REFERENCES = pa.schema([("trace", pa.string()), ("id", pa.string())])
CHANNELS = pa.schema([("channel", pa.string()), ("trace", pa.string())])


def collected(joins: TraceJoins) -> tuple[pa.Table, pa.Table]:
    """The references and channels of one task."""
    named = [(trace, id) for id, traces in joins.named.items() for trace in traces]
    carried = [(channel, trace) for channel, traces in joins.carried.items() for trace in traces]
    return _table(named, REFERENCES), _table(carried, CHANNELS)


def _table(pairs: list[tuple[str, str]], schema: pa.Schema) -> pa.Table:
    columns = [[pair[k] for pair in pairs] for k in range(2)]
    return pa.table([pa.array(column, pa.string()) for column in columns], schema=schema)


def leaders_of_linked(
    drafts: DataFrame, references: DataFrame, channels: DataFrame, store: AnyPath
) -> tuple[DataFrame | None, int]:
    """(trace, leader) for each linked trace, or None if no traces are linked; and the number of channels that
    have too many traces to join them.

    store: the directory where rounds write their labels, which keeps each round's plan short
    """
    pairs = [_neighbours(drafts, references)]
    too_many = 0
    if not channels.isEmpty():
        carried = _kept(_carried(channels), store / "carried")
        too_many = carried.where(F.col("traces") > MOST_JOINED).select("channel").distinct().count()
        shared = carried.where((F.col("traces") <= MOST_JOINED) & (F.col("trace") != F.col("other")))
        pairs.append(shared.select("trace", "other"))
    every = pairs[0] if len(pairs) == 1 else pairs[0].union(pairs[1])
    neighbours = _kept(every.union(every.select("other", "trace")).distinct(), store / "neighbours")
    return (None if neighbours.isEmpty() else _components(neighbours, store)), too_many


def _kept(rows: DataFrame, place: AnyPath) -> DataFrame:
    """The same rows, read from files, so that they are computed once."""
    write_rows(rows, place)
    return read_rows(rows.sparkSession, place, to_arrow_schema(rows.schema))


def _carried(channels: DataFrame) -> DataFrame:
    """(channel, trace, the first trace that the channel carries, how many it carries)."""
    pairs = channels.distinct()
    first = pairs.groupBy("channel").agg(F.min("trace").alias("other"), F.count("*").alias("traces"))
    return pairs.join(first, "channel")


def _neighbours(drafts: DataFrame, references: DataFrame) -> DataFrame:
    """(trace, other) where one of the two traces names a span of the other."""
    if references.isEmpty():
        return references.select("trace", F.col("id").alias("other"))
    owner = drafts.select(F.explode("ids").alias("id"), F.col("computation").alias("other"))
    pairs = references.distinct().join(owner, "id").where("trace <> other")
    return pairs.select("trace", "other").distinct()


def _components(neighbours: DataFrame, store: AnyPath) -> DataFrame:
    labels = neighbours.select("trace", F.col("trace").alias("leader")).distinct()
    for round in range(BOUND):
        following = _kept(_next(labels, neighbours), store / f"labels-{round}")
        if following.where("changed").isEmpty():
            return following.select("trace", "leader")
        labels = following.select("trace", "leader")
    raise CausalityError(f"linked traces did not settle in {BOUND} rounds")


def _next(labels: DataFrame, neighbours: DataFrame) -> DataFrame:
    heard = (
        neighbours.join(labels.select(F.col("trace").alias("other"), "leader"), "other")
        .groupBy("trace")
        .agg(F.min("leader").alias("heard"))
    )
    nearer = labels.join(heard, "trace").withColumn("nearest", F.least("leader", "heard"))
    of_nearest = labels.select(F.col("trace").alias("nearest"), F.col("leader").alias("further"))
    return nearer.join(of_nearest, "nearest").select(
        "trace",
        F.least("nearest", "further").alias("leader"),
        (F.least("nearest", "further") < F.col("leader")).alias("changed"),
    )
