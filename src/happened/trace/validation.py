"""The checks that a table must pass before any analysis.

Row by row: process, seq and kind are present and valid, a send has a message and destinations, an arrival or
delivery has a message. Across rows: (computation, process, seq) is unique, seq runs 1, 2, … without gaps, and
a message has one send. Every check is a column operation; only the reported row is looked at alone.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..core.errors import TraceFormatError
from .schema import KINDS, SCHEMA, SENDS

GAP = "is absent. Add the missing events"
"""The part of an error message by which a gap in seq is recognised."""

Place = Callable[[int], tuple[str, int | None]]
"""The source of a row of the table: its file, and its line (JSON) or row (Parquet) there, from 1."""


def in_memory(row: int) -> tuple[str, int | None]:
    return f"row {row + 1}", None


def validate(table: pa.Table, place: Place = in_memory, *, gaps_allowed: bool = False) -> None:
    """Raise TraceFormatError for the first row found that breaks the contract above.

    gaps_allowed   whether seq may begin after 1 and skip numbers, as in a window of a trace
    """
    validate_rows(table, place)
    _validate_names(table, place, gaps_allowed)
    _validate_sends(table, place)


def validate_rows(table: pa.Table, place: Place = in_memory) -> None:
    """The part of `validate` that looks at each row by itself."""
    kind = table["kind"]
    for field in SCHEMA:
        if not field.nullable:
            reason = "is missing; every event needs one"
            _refuse(table, place, pc.is_null(table[field.name]), field.name, reason)
    known = pc.is_in(kind, value_set=pa.array(KINDS))
    _refuse(table, place, pc.invert(known), "kind", f"is none of {', '.join(KINDS)}")
    nameless = pc.and_(pc.not_equal(kind, "internal"), pc.is_null(table["message"]))
    reason = "is missing; give a send and each of its arrivals and deliveries the same value"
    _refuse(table, place, nameless, "message", reason)
    aimless = pc.and_(_sends(kind), pc.is_null(table["to"]))
    _refuse(table, place, aimless, "to", "is missing; a send lists its destinations")
    for name in ("to", "causes"):
        _refuse(table, place, _holds_null(table[name]), name, "holds a null; leave out what is not known")
    reason = "is below 1; number the events of a process from 1"
    _refuse(table, place, pc.less(table["seq"], 1), "seq", reason)


def faults(table: pa.Table) -> pa.ChunkedArray:
    """For each row, why it cannot be an event; null if it can. Rows are checked independently."""
    kind = table["kind"]
    known = pc.fill_null(pc.is_in(kind, value_set=pa.array(KINDS)), False)
    unknown = pc.binary_join_element_wise("unknown kind", pc.fill_null(kind, "null"), " ")
    nameless = pc.binary_join_element_wise(kind, "without a message", " ")
    broken = (
        (pc.is_null(table["process"]), "no process"),
        (pc.fill_null(pc.less(table["seq"], 1), True), "seq is not a number from 1"),
        (pc.invert(known), unknown),
        (pc.and_(pc.not_equal(kind, "internal"), pc.is_null(table["message"])), nameless),
        (pc.and_(_sends(kind), pc.is_null(table["to"])), "send without destinations"),
        (_holds_null(table["to"]), "to holds a null"),
    )
    flags = [pc.fill_null(flag, False).combine_chunks() for flag, _ in broken]
    texts = [pa.scalar(text) if isinstance(text, str) else text.combine_chunks() for _, text in broken]
    found = pc.case_when(pc.make_struct(*flags, field_names=[*map(str, range(len(flags)))]), *texts)
    return pa.chunked_array([found], type=pa.string())


def _validate_names(table: pa.Table, place: Place, gaps_allowed: bool) -> None:
    if table.num_rows == 0:
        return
    owner = _codes(table["computation"]) * (table.num_rows + 1) + _codes(table["process"])
    seq = table["seq"].to_numpy()
    order = np.lexsort((seq, owner))
    same = np.diff(owner[order], prepend=-1) == 0
    step = np.diff(seq[order], prepend=0)
    repeated = same & (step == 0)
    if repeated.any():
        row = int(order[np.argmax(repeated)])
        raise _error(table, place, row, "seq", "names an event twice; number the events of a process 1, 2, …")
    if gaps_allowed:
        return
    gap = np.where(same, step != 1, seq[order] != 1)
    if gap.any():
        at = int(np.argmax(gap))
        before = int(seq[order[at - 1]]) if same[at] else 0
        reason = f"follows {before or 'nothing'}: {before + 1} {GAP}, or renumber what is left from 1"
        raise _error(table, place, int(order[at]), "seq", reason)


def _validate_sends(table: pa.Table, place: Place) -> None:
    rows = np.flatnonzero(_sends(table["kind"]).to_numpy())
    if rows.size == 0:
        return
    sends = table.select(["computation", "message"]).take(pa.array(rows))
    message = _codes(sends["computation"]) * (rows.size + 1) + _codes(sends["message"])
    order = np.argsort(message, kind="stable")
    twice = np.diff(message[order], prepend=-1) == 0
    if twice.any():
        row = int(rows[order[np.argmax(twice)]])
        raise _error(table, place, row, "message", "has been sent before; give each send its own name")


def _sends(kind: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.is_in(kind, value_set=pa.array(SENDS))


def _codes(column: pa.ChunkedArray) -> np.ndarray:
    encoded = column.dictionary_encode().unify_dictionaries()
    return np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks]).astype(np.int64)


def _holds_null(lists: pa.ChunkedArray) -> pa.ChunkedArray:
    """For each row, whether its list contains a null (or, for structs, a null field)."""
    members, owners = pc.list_flatten(lists), pc.list_parent_indices(lists)
    null = pc.is_null(members)
    if pa.types.is_struct(members.type):
        for field in members.type.names:
            null = pc.or_(null, pc.is_null(pc.struct_field(members, field)))
    rows = np.zeros(len(lists), bool)
    rows[owners.to_numpy()[null.to_numpy()]] = True
    return pa.chunked_array([rows])


def _refuse(table: pa.Table, place: Place, bad: pa.ChunkedArray, field: str, reason: str) -> None:
    if table.num_rows and (row := pc.index(bad, True).as_py()) >= 0:
        raise _error(table, place, row, field, reason)


def _error(table: pa.Table, place: Place, row: int, field: str, reason: str) -> TraceFormatError:
    event = table.select(["computation", "process", "seq", field]).slice(row, 1).to_pylist()[0]
    of = f" of computation {event['computation']!r}" if event["computation"] else ""
    value = f"{event[field]!r} " if event[field] is not None else ""
    file, line = place(row)
    about = f"{value}{reason} (process {event['process']!r}, seq {event['seq']}{of})"
    return TraceFormatError(about, file=file, line=line, field=field)
