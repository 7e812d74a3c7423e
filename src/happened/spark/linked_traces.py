"""Request traces that name spans of one another, or share a channel, are one computation: find which, on
Spark.

In    readers.PACKED rows of spans, `computation` being the trace's id; what span_joins.TraceJoins collected
      of them: `references` (trace, id of a span of another) and `channels` (channel, trace)
Out   of each trace that is linked with others, the smallest id among them; and how many channels carry too
      many traces to join them (trace/readers/span_joins.py)
Cost  nothing where no trace names another; else one join of the references with ids, and rounds over the
      linked traces alone

Connected components by the smallest label seen: in each round a trace takes the smallest label of its
neighbours, and then that label's own label, so that paths shorten by half. It ends when no label changes;
`BOUND` rounds would be enough for more traces than can be stored.
"""

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from ..core.errors import CausalityError
from ..trace.readers.span_joins import MOST_JOINED, TraceJoins
from ..trace.store import AnyPath
from .storage import read_rows, write_rows

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
    """(trace, leader) of linked traces, None if there are none; and how many channels have too many traces to
    join them.

    `store` is where rounds write their labels, which keeps each round's plan short.
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
