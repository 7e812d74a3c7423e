"""The tables of an analysis as a trace to ask questions of: what is too large to be read whole.

In    a directory that `happened analyze` or `happened check --out` left, and names of events
Out   rows of trace.SCHEMA: the computations of those events, or only their past

What is read: the rows of `stamps` of those computations, their rows of `messages` and `times`, and
`processes`. An event's causes are where its clock is ahead of that of the event before it: the same
happened-before as in the trace. Labels and attributes are not in the tables, so events go by `process#seq`
and by messages here; a second delivery of a message at a process is an internal event.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..causality.linearization import Ints
from ..core.errors import CausalityError
from ..trace.schema import SCHEMA
from ..trace.store import AnyPath, arrow_dataset, matching

Known = dict[str, dict[str, int] | None]
"""Of each computation that is wanted, how many events of each process; None: all."""

CAUSE = SCHEMA.field("causes").type.value_type


def is_answered(path: AnyPath) -> bool:
    """Whether a path is that of an analysis's tables."""
    return path.is_dir() and bool(matching(path / "stamps", "*.parquet"))


def answered_events(
    folder: AnyPath, about: Sequence[str], *, past_only: bool = False
) -> tuple[pa.Table, bool]:
    """The events of the computations in which these names occur, or their past; and whether that is not all.

    Without names, all events. A name that does not occur brings nothing: whoever looks for it says so.
    """
    processes = arrow_dataset(folder / "processes").to_table()
    wanted = _wanted(folder, about, processes, past_only) if about else None
    stamps = _stamps(folder, wanted)
    sent, received = _messages(folder, wanted)
    order = stamps.sort_by([("computation", "ascending"), ("process", "ascending"), ("seq", "ascending")])
    keys = order.select(["computation", "process", "seq"]).append_column("row", pa.array(range(len(order))))
    kind = np.full(len(order), "internal", dtype=object)
    message = np.full(len(order), None, dtype=object)
    to = np.full(len(order), None, dtype=object)
    for row, name, receivers in _joined(keys, sent):
        kind[row], message[row], to[row] = "send", name, receivers
    for row, name, _ in _joined(keys, received):
        kind[row], message[row] = "deliver", name
    columns = {
        "computation": order["computation"],
        "process": order["process"],
        "seq": order["seq"],
        "kind": pa.array(kind, pa.string()),
        "message": pa.array(message, pa.string()),
        "to": pa.array(to, SCHEMA.field("to").type),
        "time": _times(folder, wanted, keys),
        "causes": _causes(order, processes),
        "relevant": pa.repeat(False, len(order)),
    }
    nothing = {field.name: pa.nulls(len(order), field.type) for field in SCHEMA}
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
        kept.append(rows if wanted is None else rows.filter(pa.array(_within(rows, wanted))))
    table = pa.concat_tables(kept)
    summary_form = table.num_rows and _is_predecessors(folder, table, wanted)
    if summary_form:
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


def _within(rows: pa.Table, wanted: Known) -> Ints:
    """Whether each row is among the events wanted of its process."""
    named = zip(*(rows[name].to_pylist() for name in ("computation", "process", "seq")), strict=True)
    limits = {computation: known for computation, known in wanted.items() if known is not None}
    if not limits:
        return np.ones(rows.num_rows, bool)
    return np.array([c not in limits or seq <= limits[c].get(p, 0) for c, p, seq in named], bool)


class _Named(NamedTuple):
    """Columns computation, process, seq, message and `to` of sends, or of deliveries."""

    table: pa.Table


def _messages(folder: AnyPath, wanted: Known | None) -> tuple[_Named, _Named]:
    columns = ["computation", "message", "sender", "sent_seq", "receiver", "received_seq", "fate"]
    told = arrow_dataset(folder / "messages").to_table(columns=columns, filter=_of(wanted))
    addressed = pc.not_equal(told["fate"], "misdelivered")
    sent = told.filter(pc.is_valid(told["sent_seq"]))
    to = pc.if_else(addressed.filter(pc.is_valid(told["sent_seq"])), sent["receiver"], None)
    sent = sent.append_column("to", to).group_by(["computation", "sender", "sent_seq", "message"])
    sends = sent.aggregate([("to", "list")])
    received = told.filter(pc.is_valid(told["received_seq"]))
    deliveries = received.select(["computation", "receiver", "received_seq", "message"])
    return (
        _Named(sends.rename_columns(["computation", "process", "seq", "message", "to"])),
        _Named(deliveries.rename_columns(["computation", "process", "seq", "message"])),
    )


def _joined(keys: pa.Table, named: _Named) -> list[tuple[int, str, list[str]]]:
    """(row, message, destinations) of what is named and among the keys."""
    places = {}
    rows = zip(*(keys[name].to_pylist() for name in ("computation", "process", "seq", "row")), strict=True)
    for computation, process, seq, row in rows:
        places[computation, process, seq] = row
    found = []
    for told in named.table.to_pylist():
        row = places.get((told["computation"], told["process"], told["seq"]))
        if row is not None:
            found.append((row, told["message"], [name for name in told.get("to") or () if name is not None]))
    return found


def _times(folder: AnyPath, wanted: Known | None, keys: pa.Table) -> pa.Array:
    columns = ["computation", "process", "seq", "corrected"]
    times = arrow_dataset(folder / "times").to_table(columns=columns, filter=_of(wanted))
    joined = keys.join(times, ["computation", "process", "seq"], join_type="left outer").sort_by("row")
    return joined["corrected"].combine_chunks()


def _causes(stamps: pa.Table, processes: pa.Table) -> pa.Array:
    """Of each stamp, in the order of processes and seqs, the newest events that its process had not known."""
    names: dict[tuple[str, int], str] = {}
    for row in processes.select(["computation", "p", "process"]).to_pylist():
        names[row["computation"], row["p"]] = row["process"]
    causes: list[list[dict[str, object]]] = []
    before: list[int] = []
    at = ("", "")
    columns = zip(
        *(stamps[name].to_pylist() for name in ("computation", "process", "clock", "entries")), strict=True
    )
    for computation, process, clock, entries in columns:
        if clock is None:
            news = [(entry["p"], entry["seq"]) for entry in entries]
        else:
            old = before if at == (computation, process) else [0] * len(clock)
            news = [(p, count) for p, count in enumerate(clock) if count > old[p]]
            before, at = clock, (computation, process)
        others = ((names[computation, p], seq) for p, seq in news)
        causes.append([{"process": name, "seq": seq} for name, seq in others if name != process])
    return pa.array(causes, pa.list_(CAUSE))
