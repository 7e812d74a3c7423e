"""The tables of an analysis as a trace, for `ask`, the viewer and reports where the trace is not at hand.

In    a directory that `happened analyze` or `happened analyze --local` left
Out   rows of trace.SCHEMA, by computation, process and seq

What is read: `stamps`, `messages` and `processes`, and `times` and `predecessors` where they are there. An
event's causes are where its clock is ahead of that of the event before it: the same happened-before as in the
trace. Labels, attributes and arrivals are in no table; a second delivery of a message at a process is an
internal event.
"""

from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..core.errors import CausalityError
from ..trace.schema import SCHEMA
from ..trace.store import AnyPath, arrow_dataset, matching
from .linearization import Ints, offsets_of
from .names import encode_names

Known: TypeAlias = dict[str, dict[str, int] | None]
"""Of each computation that is wanted, how many events of each process; None: all."""

NAME = ["computation", "process", "seq"]
BY_P = ["computation", "p"]
CAUSE, TO = SCHEMA.field("causes").type.value_type, SCHEMA.field("to").type


def analysed_events(
    folder: AnyPath, wanted: Known | None, *, time: str = "corrected", relevant: bool = False
) -> pa.Table:
    """The events of these computations, or of all.

    time      the column of `times` that is taken
    relevant  whether events are marked as relevant that are in `predecessors`

    CausalityError if only relevant events have timestamps.
    """
    processes = arrow_dataset(folder / "processes").to_table().sort_by([(name, "ascending") for name in BY_P])
    stamps = _stamps(folder, wanted).sort_by([(name, "ascending") for name in NAME]).combine_chunks()
    size = stamps.num_rows
    keys = stamps.select(NAME).append_column("row", pa.array(np.arange(size)))
    sends, deliveries = _messages(folder, wanted)
    sent, received = _places(keys, sends), _places(keys, deliveries)
    columns = {
        **{name: stamps[name] for name in NAME},
        "kind": pc.if_else(
            pc.is_valid(sent), "send", pc.if_else(pc.is_valid(received), "deliver", "internal")
        ),
        "message": pc.coalesce(sends["message"].take(sent), deliveries["message"].take(received)),
        "to": sends["to"].take(sent),
        "time": _times(folder, wanted, keys, time),
        "causes": _causes(stamps, processes),
        "relevant": _relevant(folder, wanted, keys) if relevant else pa.repeat(False, size),
    }
    nothing = {field.name: pa.nulls(size, field.type) for field in SCHEMA}
    return pa.table(nothing | columns, schema=SCHEMA)


def _of(wanted: Known | None) -> pc.Expression | None:
    return None if wanted is None else pc.field("computation").isin([*wanted])


def _stamps(folder: AnyPath, wanted: Known | None) -> pa.Table:
    columns = ["computation", "process", "seq", "clock", "entries"]
    data = arrow_dataset(folder / "stamps")
    kept = [data.schema.empty_table().select(columns)]
    for batch in data.to_batches(columns=columns, filter=_of(wanted)):
        rows = pa.Table.from_batches([batch])
        kept.append(rows if wanted is None else rows.filter(_within(rows, wanted)))
    table = pa.concat_tables(kept)
    # Entries are what changed, or immediate predecessors; of all events either gives happened-before. Of some
    # events, the relevant ones, they do not: process order is not known then.
    every = arrow_dataset(folder / "processes").to_table(filter=_of(wanted))["events"]
    if table["clock"].null_count and (pc.sum(every).as_py() or 0) != table.num_rows:
        raise CausalityError(
            f"{folder}: its timestamps are immediate predecessors of the relevant events alone; analyse the "
            "trace again with --timestamps full or sparse, or ask the trace itself"
        )
    return table


def _within(rows: pa.Table, wanted: Known) -> pa.Array:
    """Whether each row is among the events wanted of its process."""
    kept = pc.is_valid(rows["seq"])
    for computation, known in wanted.items():
        if known is not None:
            at = pc.index_in(rows["process"], value_set=pa.array([*known], pa.string()))
            counts = pc.fill_null(pa.array(known.values(), pa.int64()).take(at), 0)
            beyond = pc.and_(pc.equal(rows["computation"], computation), pc.greater(rows["seq"], counts))
            kept = pc.and_(kept, pc.invert(beyond))
    return kept


def _messages(folder: AnyPath, wanted: Known | None) -> tuple[pa.Table, pa.Table]:
    """Sends and first deliveries, by NAME, with their messages; sends with their destinations, `to`."""
    columns = ["computation", "message", "sender", "sent_seq", "receiver", "received_seq", "fate"]
    told = arrow_dataset(folder / "messages").to_table(columns=columns, filter=_of(wanted))
    sent = told.filter(pc.is_valid(told["sent_seq"]))
    to = pc.if_else(pc.equal(sent["fate"], "misdelivered"), None, sent["receiver"])
    by_send = sent.append_column("to", to).group_by(["computation", "sender", "sent_seq", "message"])
    sends = by_send.aggregate([("to", "list")]).rename_columns([*NAME, "message", "to"]).combine_chunks()
    received = told.filter(pc.is_valid(told["received_seq"]))
    deliveries = received.select(["computation", "receiver", "received_seq", "message"])
    # Without the nulls in `to`, which stand for processes that were not addressed.
    lists = sends["to"].combine_chunks() if sends.num_rows else pa.array([], TO)
    flat, row = pc.list_flatten(lists), pc.list_parent_indices(lists).to_numpy()
    named = pc.is_valid(flat)
    counts = np.bincount(row[named.to_numpy(zero_copy_only=False)], minlength=len(lists))
    addressed = pa.ListArray.from_arrays(_offsets(counts), flat.filter(named), type=TO)
    sends = sends.set_column(sends.schema.get_field_index("to"), "to", addressed)
    return sends, deliveries.rename_columns([*NAME, "message"]).combine_chunks()


def _places(keys: pa.Table, named: pa.Table) -> pa.Array:
    """Of each key, in their order, the row of `named` that has the same name; null if none has."""
    numbered = named.select(NAME).append_column("at", pa.array(np.arange(named.num_rows)))
    return keys.join(numbered, NAME, join_type="left outer").sort_by("row")["at"].combine_chunks()


def _times(folder: AnyPath, wanted: Known | None, keys: pa.Table, column: str) -> pa.Array:
    if not matching(folder / "times", "*.parquet"):
        return pa.nulls(keys.num_rows, pa.int64())
    times = arrow_dataset(folder / "times").to_table(columns=[*NAME, column], filter=_of(wanted))
    return times[column].take(_places(keys, times))


def _relevant(folder: AnyPath, wanted: Known | None, keys: pa.Table) -> pa.Array:
    """Whether each event is an effect or a cause in `predecessors`."""
    if not matching(folder / "predecessors", "*.parquet"):
        return pa.repeat(False, keys.num_rows)
    edges = arrow_dataset(folder / "predecessors").to_table(filter=_of(wanted))
    causes = edges.select(["computation", "cause_process", "cause_seq"]).rename_columns(NAME)
    named = pa.concat_tables([edges.select(NAME), causes]).group_by(NAME).aggregate([])
    return pc.is_valid(_places(keys, named))


def _causes(stamps: pa.Table, processes: pa.Table) -> pa.Array:
    """Of each stamp, by NAME, the newest event of each other process that its own had not known of."""
    row, number, seq = _news(stamps)
    computations = processes["computation"].combine_chunks()
    first = pc.index_in(stamps["computation"], value_set=computations).to_numpy()  # by BY_P: of number 0
    name = processes["process"].combine_chunks().take(pa.array(first[row] + number))
    others = pc.not_equal(name, stamps["process"].take(pa.array(row))).to_numpy()
    causes = pa.StructArray.from_arrays(
        [name.filter(pa.array(others)), pa.array(seq[others].astype(np.int64))], fields=list(CAUSE)
    )
    offsets = _offsets(np.bincount(row[others], minlength=stamps.num_rows))
    return pa.ListArray.from_arrays(offsets, causes, type=SCHEMA.field("causes").type)


def _news(stamps: pa.Table) -> tuple[Ints, Ints, Ints]:
    """(row, process by number, seq) of the entries in which a stamp is ahead of the one before it."""
    if stamps["clock"].null_count:
        lists = stamps["entries"].combine_chunks()
        flat = pc.list_flatten(lists)
        number, seq = (pc.struct_field(flat, name).to_numpy() for name in ("p", "seq"))
        return pc.list_parent_indices(lists).to_numpy(), number, seq
    lists = stamps["clock"].combine_chunks()
    row, known = pc.list_parent_indices(lists).to_numpy(), pc.list_flatten(lists).to_numpy()
    starts = _offsets(pc.list_value_length(lists).to_numpy())
    number = np.arange(len(row)) - starts[row]
    same = [np.diff(encode_names(stamps[name])[0], prepend=-1) == 0 for name in NAME[:2]]
    follows = same[0] & same[1]
    before = np.where(follows[row], known[starts[np.maximum(row - 1, 0)] + number], 0)
    news = np.flatnonzero(known > before)
    return row[news], number[news], known[news]


def _offsets(counts: Ints) -> Ints:
    return offsets_of(counts).astype(np.int32)
