"""Which rows of a table a name may mean, kind by kind; KINDS are tried in order, and the first that fits any
row of a trace decides.

In    a table of events, its attributes by name, and a text
Out   whether each row fits; null where that cannot be said
"""

from collections.abc import Callable
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

Attribute: TypeAlias = Callable[[str], pa.Array]
"""An attribute of each row, null where it has none."""
Mask: TypeAlias = pa.Array | pa.ChunkedArray


def attributes_of(table: pa.Table) -> Attribute:
    return lambda name: pc.map_lookup(table["attributes"], name, "first")


def _by_id(table: pa.Table, attribute: Attribute, text: str) -> Mask:
    """`process#seq`, or `computation:process#seq`."""
    name, mark, number = text.rpartition("#")
    if not mark or not number.isascii() or not number.isdigit() or len(number) > 18:
        return pa.repeat(False, table.num_rows)
    mask = pc.equal(table["process"], name)
    for at in _colons(name):
        other = pc.and_(pc.equal(table["computation"], name[:at]), pc.equal(table["process"], name[at + 1 :]))
        mask = pc.or_(mask, other)
    return pc.and_(mask, pc.equal(table["seq"], int(number)))


def _by_span(table: pa.Table, attribute: Attribute, text: str) -> Mask:
    """The id of a span, or `trace:span`."""
    span, trace = attribute("span"), attribute("trace")
    mask = pc.equal(span, text)
    for at in _colons(text):
        mask = pc.or_kleene(mask, pc.and_(pc.equal(trace, text[:at]), pc.equal(span, text[at + 1 :])))
    return mask


def _by_message(table: pa.Table, attribute: Attribute, text: str) -> Mask:
    return pc.equal(table["message"], text)


def _by_label(table: pa.Table, attribute: Attribute, text: str) -> Mask:
    return pc.equal(table["label"], text)


def _by_part_of_label(table: pa.Table, attribute: Attribute, text: str) -> Mask:
    if not text.strip():
        return pa.repeat(False, table.num_rows)
    return pc.match_substring(table["label"], text, ignore_case=True)


ID, SPAN, MESSAGE, LABEL, PART = "id", "span", "message", "label", "part of a label"
KINDS: dict[str, Callable[[pa.Table, Attribute, str], Mask]] = {
    ID: _by_id,
    SPAN: _by_span,
    MESSAGE: _by_message,
    LABEL: _by_label,
    PART: _by_part_of_label,
}


def of_request(table: pa.Table, attribute: Attribute, text: str) -> Mask:
    """Rows that may belong to a request whose name begins so, and all rows of its computation.

    Whether a computation is a request depends on all of its rows, so that this may be too many.
    """
    begins = pc.equal if not text else pc.starts_with
    return pc.or_kleene(begins(attribute("trace"), text), begins(table["computation"], text))


def _colons(text: str) -> list[int]:
    return [at for at, letter in enumerate(text) if letter == ":"]
