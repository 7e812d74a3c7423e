"""Show traces in notebooks: a picture and the verdict, as the HTML of a cell's value."""

from html import escape

import pyarrow as pa

from ..causality import check_order, encode
from ..causality.reach import everything
from ..core.errors import CausalityError
from ..trace import SCHEMA
from .diagrams import diagram
from .prepared import Prepared
from .slicing import Slice, sliced
from .space_time import STANDALONE

MOST_EVENTS = 300
"""Number of events drawn below a cell: about as many as fit a screen."""
MOST_WITNESSES = 20


class Shown:
    """A picture of a trace's first events, with the judge's sentence, for `_repr_html_`."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._computations = encode(table)

    def __repr__(self) -> str:
        many = len(self._computations)
        return f"<{self._table.num_rows:,} events of {many:,} computation{'' if many == 1 else 's'}>"

    def _repr_html_(self) -> str:
        verdict = check_order(self._computations, limit=MOST_WITNESSES)
        if not self._computations:
            return "<p>No events.</p>"
        c = max(self._computations, key=lambda each: each.events)
        prepared = Prepared(c, self._table, (*verdict.witnesses, *verdict.lost_witnesses))
        about = f"{c.events:,} events of {c.processes:,} processes"
        if len(self._computations) > 1:
            about += f", the largest of {len(self._computations):,} computations"
        if c.events > MOST_EVENTS:
            level = sorted(prepared.levels.tolist())[MOST_EVENTS]
            (prepared,) = sliced([prepared], Slice(window=(1, max(1, level - 1))))
            about += f"; the first {everything(prepared.c).events:,} are drawn"
        return (
            f'<div style="overflow-x:auto">{diagram(prepared, standalone=STANDALONE)}</div>'
            f"<p>{escape(about)}. {escape(str(verdict))}.</p>"
        )


def show(table: pa.Table) -> Shown:
    """Draw a table of events in a notebook. `happened view` makes a page to explore it."""
    return Shown(table)


def html_of_table(table: pa.Table) -> str | None:
    """The HTML of a table that is a trace; None for any other table, which is then shown as usual."""
    if not table.schema.equals(SCHEMA):
        return None
    try:
        return show(table)._repr_html_()
    except CausalityError as error:  # e.g. a part of a trace, with causes whose events are missing
        return f"<p>{table.num_rows:,} events, which are no trace by themselves: {escape(str(error))}</p>"
