"""Which rows of a table a name that people use may mean, kind by kind; and errors about names and times.

KINDS are tried in order; the first kind that fits any row of a trace decides. Each kind is a function of a
table of events, its attributes by name and a text; it says whether each row fits, null if that is unknown.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ..core.errors import CausalityError

MOST_CANDIDATES = 10


class UnknownName(CausalityError):
    """No event or request in the trace has this name."""


class AmbiguousName(CausalityError):
    """Several events or requests in the trace have this name; `candidates` gives each a unique name."""

    def __init__(self, text: str, candidates: Iterable[tuple[str, str]]) -> None:
        every = [*candidates]
        self.candidates = tuple(name for name, _ in every)
        shown = "".join(f"\n  {name}  {about}".rstrip() for name, about in every[:MOST_CANDIDATES])
        more = f"\n  … and {len(every) - MOST_CANDIDATES:,} more" if len(every) > MOST_CANDIDATES else ""
        super().__init__(f"{text!r} names {len(every):,} things; say which:{shown}{more}")


class NoTimes(CausalityError):
    """A question about time was asked of a trace without times, so it cannot be decided."""


Attribute: TypeAlias = Callable[[str], pa.Array]  # An attribute's value per row; null without one
Mask: TypeAlias = pa.Array | pa.ChunkedArray


def attributes_of(table: pa.Table) -> Attribute:
    return lambda name: pc.map_lookup(table["attributes"], name, "first")


def halves(text: str) -> list[tuple[str, str]]:
    """The text before and after each colon."""
    return [(text[:at], text[at + 1 :]) for at, letter in enumerate(text) if letter == ":"]


def _by_id(table: pa.Table, attribute: Attribute, text: str) -> Mask:
    """`process#seq`, or `computation:process#seq`."""
    name, mark, number = text.rpartition("#")
    if not mark or not number.isascii() or not number.isdigit() or len(number) > 18:
        return pa.repeat(False, table.num_rows)
    mask = pc.equal(table["process"], name)
    for computation, process in halves(name):
        other = pc.and_(pc.equal(table["computation"], computation), pc.equal(table["process"], process))
        mask = pc.or_(mask, other)
    return pc.and_(mask, pc.equal(table["seq"], int(number)))


def _by_span(table: pa.Table, attribute: Attribute, text: str) -> Mask:
    """The id of a span, or `trace:span`."""
    mask = pc.equal(attribute("span"), text)
    for trace, span in halves(text):
        both = pc.and_(pc.equal(attribute("trace"), trace), pc.equal(attribute("span"), span))
        mask = pc.or_kleene(mask, both)
    return mask


def _by_part_of_label(table: pa.Table, attribute: Attribute, text: str) -> Mask:
    if not text.strip():
        return pa.repeat(False, table.num_rows)
    return pc.match_substring(table["label"], text, ignore_case=True)


ID, SPAN, MESSAGE, LABEL, PART = "id", "span", "message", "label", "part of a label"
KINDS: dict[str, Callable[[pa.Table, Attribute, str], Mask]] = {
    ID: _by_id,
    SPAN: _by_span,
    MESSAGE: lambda table, attribute, text: pc.equal(table["message"], text),
    LABEL: lambda table, attribute, text: pc.equal(table["label"], text),
    PART: _by_part_of_label,
}


def of_request(table: pa.Table, attribute: Attribute, text: str) -> Mask:
    """Rows that may belong to a request whose name begins with `text`, and all rows of their computations.

    Whether a computation is a request depends on all of its rows, so this may select too many rows.
    """
    begins = pc.equal if not text else pc.starts_with
    return pc.or_kleene(begins(attribute("trace"), text), begins(table["computation"], text))
