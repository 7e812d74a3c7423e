"""The tables of an analysis as a trace to ask questions of: what is too large to be read whole.

In    a directory that `happened analyze` or `happened analyze --local` left, and names of events
Out   rows of trace.SCHEMA: the computations of those events, or only their past

What is read: the rows of `stamps` of those computations, their rows of `messages` and `times`, and
`processes`. An event's causes are where its clock is ahead of that of the event before it: the same
happened-before as in the trace. Labels and attributes are not in the tables, so events go by `process#seq`
and by messages here; a second delivery of a message at a process is an internal event.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..causality.linearization import Ints
from ..core.errors import CausalityError
from ..trace.schema import SCHEMA
from ..trace.store import AnyPath, arrow_dataset, matching
from .errors import UnknownName

Known = dict[str, dict[str, int] | None]
"""Of each computation that is wanted, how many events of each process; None: all."""

NAME = ["computation", "process", "seq"]
BY_P = ["computation", "p"]
CAUSE = SCHEMA.field("causes").type.value_type


NEEDED = ("stamps", "processes", "messages", "times")


def is_answered(path: AnyPath) -> bool:
    """Whether a path is that of an analysis's tables. CausalityError if it has only some of those needed."""
    if not path.is_dir() or not matching(path / "stamps", "*.parquet"):
        return False
    lacking = [name for name in NEEDED if not matching(path / name, "*.parquet")]
    if lacking:
        raise CausalityError(
            f"{path} has no table {', '.join(lacking)}: it is the answer to some questions only; ask what "
            "`happened analyze` or `happened analyze --local` leave, or the trace itself"
        )
    return True


def answered_events(
    folder: AnyPath, about: Sequence[str], *, past_only: bool = False
) -> tuple[pa.Table, bool]:
    """The events of the computations in which these names occur, or their past; and whether that is not all.

    Without names, all events. UnknownName if one does not occur.
    """
    processes = arrow_dataset(folder / "processes").to_table().sort_by([(name, "ascending") for name in BY_P])
    wanted = _wanted(folder, about, processes, past_only) if about else None
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
        "time": _times(folder, wanted, keys),
        "causes": _causes(stamps, processes),
        "relevant": pa.repeat(False, size),
    }
    nothing = {field.name: pa.nulls(size, field.type) for field in SCHEMA}
    return pa.table(nothing | columns, schema=SCHEMA), past_only and wanted is not None


def _wanted(folder: AnyPath, about: Sequence[str], processes: pa.Table, past_only: bool) -> Known:
    wanted: Known = {}
    stamps = arrow_dataset(folder / "stamps")
    for text in about:
        named = pc.field("event") == text
        for at in (i for i, letter in enumerate(text) if letter == ":"):
            named |= (pc.field("computation") == text[:at]) & (pc.field("event") == text[at + 1 :])
        found = stamps.to_table(columns=["computation", "clock"], filter=named)
        for row in found.to_pylist():
            known = None
            if past_only and row["clock"] is not None:
                known = _by_name(row["clock"], row["computation"], processes)
            _want(wanted, row["computation"], known)
        of_message = pc.field("message") == text
        messages = arrow_dataset(folder / "messages").to_table(columns=["computation"], filter=of_message)
        for computation in pc.unique(messages["computation"]).to_pylist():
            _want(wanted, computation, None)
        if not found.num_rows and not messages.num_rows:
            raise UnknownName(
                f"nothing in {folder} is called {text!r}: an analysis has no labels or spans, only "
                "process#seq and messages; ask the trace itself for those"
            )
    return wanted


def _want(wanted: Known, computation: str, known: dict[str, int] | None) -> None:
    before = wanted.setdefault(computation, known)
    if before is None or known is None:
        wanted[computation] = None
        return
    for process, count in known.items():
        before[process] = max(before.get(process, 0), count)


def _by_name(clock: list[int], computation: str, processes: pa.Table) -> dict[str, int]:
    mine = processes.filter(pc.field("computation") == computation)
    names = dict(zip(mine["p"].to_pylist(), mine["process"].to_pylist(), strict=True))
    return {names[p]: count for p, count in enumerate(clock) if count}


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
    if table.num_rows and _is_predecessors(folder, table, wanted):
        raise CausalityError(
            f"{folder}: its timestamps are immediate predecessors of the relevant events alone; analyse the "
            "trace again with --timestamps full or sparse, or ask the trace itself"
        )
    return table


def _is_predecessors(folder: AnyPath, table: pa.Table, wanted: Known | None) -> bool:
    """Entries of stamps are changes, or predecessors: the first event of a process names itself, or not."""
    if table["clock"].null_count == 0:
        return False
    first = table.filter(pc.equal(table["seq"], 1))
    every = pc.sum(arrow_dataset(folder / "processes").to_table(filter=_of(wanted))["events"]).as_py() or 0
    return every != table.num_rows or 0 in pc.list_value_length(first["entries"]).to_pylist()


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
    sends = by_send.aggregate([("to", "list")]).rename_columns([*NAME, "message", "to"])
    received = told.filter(pc.is_valid(told["received_seq"]))
    deliveries = received.select(["computation", "receiver", "received_seq", "message"])
    return _addressed(sends.combine_chunks()), deliveries.rename_columns([*NAME, "message"]).combine_chunks()


def _addressed(sends: pa.Table) -> pa.Table:
    """The same, without the nulls in `to`, which stand for processes that were not addressed."""
    lists = sends["to"].combine_chunks() if sends.num_rows else pa.array([], SCHEMA.field("to").type)
    flat, row = pc.list_flatten(lists), pc.list_parent_indices(lists).to_numpy()
    named = pc.is_valid(flat)
    offsets = _offsets(np.bincount(row[named.to_numpy(zero_copy_only=False)], minlength=len(lists)))
    to = pa.ListArray.from_arrays(offsets, flat.filter(named), type=SCHEMA.field("to").type)
    return sends.set_column(sends.schema.get_field_index("to"), "to", to)


def _places(keys: pa.Table, named: pa.Table) -> pa.Array:
    """Of each key, in their order, the row of `named` that has the same name; null if none has."""
    numbered = named.select(NAME).append_column("at", pa.array(np.arange(named.num_rows)))
    return keys.join(numbered, NAME, join_type="left outer").sort_by("row")["at"].combine_chunks()


def _times(folder: AnyPath, wanted: Known | None, keys: pa.Table) -> pa.Array:
    times = arrow_dataset(folder / "times").to_table(columns=[*NAME, "corrected"], filter=_of(wanted))
    return times["corrected"].take(_places(keys, times))


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
    follows = np.zeros(stamps.num_rows, bool)
    if stamps.num_rows > 1:
        same = [
            pc.equal(stamps[name].slice(1), stamps[name].slice(0, stamps.num_rows - 1)) for name in NAME[:2]
        ]
        follows[1:] = pc.and_(*same).to_numpy()
    before = np.where(follows[row], known[starts[np.maximum(row - 1, 0)] + number], 0)
    news = np.flatnonzero(known > before)
    return row[news], number[news], known[news]


def _offsets(counts: Ints) -> Ints:
    offsets: Ints = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return offsets
