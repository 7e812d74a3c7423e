"""The rows behind the numbers of a report: the first rows of each table, with links to their events.

A number of the summary links to the rows that it counts. The question that the number answers says which
table has these rows; PARTS says so for numbers that count a part of a table.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ..causality import ORDERS
from ..causality.questions import QUESTIONS
from ..trace.store import AnyPath, arrow_dataset, matching
from ..view.texts import short
from .looks import Looks
from .verdicts import rows_were

MOST_ROWS = 8
MOST_SORTED = 20_000  # rows read to find the first in order; a larger table is cut to this many
MOST_WIDE = 2_000  # the same limit for tables with lists: a vector of ten thousand processes is 40 kB
LONGEST_CELL = 36


class RowSelection(NamedTuple):
    """The rows of a table in which a column has a value; all rows if the column is ""."""

    table: str
    column: str = ""
    value: str = ""

    @property
    def anchor(self) -> str:
        return f"rows-{self.table}-{self.value}" if self.column else f"rows-{self.table}"

    @property
    def filter(self) -> pc.Expression | None:
        return pc.field(self.column) == self.value if self.column else None

    @property
    def statement(self) -> str:
        where = f" WHERE {self.column} = '{self.value}'" if self.column else ""
        return f"SELECT * FROM {self.table}{where}"


FATES = ("lost", "duplicated", "misdelivered", "never_sent", "sent_outside")
PARTS = {
    **dict.fromkeys(("computations", "processes"), RowSelection("processes")),
    **dict.fromkeys(("events", "ordered_pairs", "concurrent_pairs"), RowSelection("stamps")),
    **dict.fromkeys(("messages", "deliveries_judged"), RowSelection("messages")),
    **dict.fromkeys(("receives_before_sends", "receives_before_sends_corrected"), RowSelection("times")),
    **{f"{name}_violations": RowSelection("violations", "order_name", name) for name in ORDERS},
    **{fate: RowSelection("messages", "fate", fate) for fate in FATES},
    "lost_causes": RowSelection("lost_causes", "order_name", "causal"),
    "fifo_lost_causes": RowSelection("lost_causes", "order_name", "fifo"),
    "quarantined": RowSelection("quarantine"),
    "times_backwards": RowSelection("skew"),
}
"""The rows counted by a number, if they are not those of the first table of its question."""

EVENTS = (("process", "seq"), ("sender", "sent_seq"), ("receiver", "received_seq"))
"""Columns that name an event of a row, the most informative first."""
OF_TABLE = {
    "violations": (("process", "early_seq"), ("process", "overtaken_seq")),
    "lost_causes": (("process", "delivered_seq"),),
    "predecessors": (("cause_process", "cause_seq"), ("process", "seq")),
}


def part_of(total: str) -> RowSelection | None:
    """The rows that a number of the summary counts; None if no table has them."""
    if total in PARTS:
        return PARTS[total]
    tables = (next(iter(each.tables)) for each in QUESTIONS.values() if total in each.totals)
    return next((RowSelection(table) for table in tables), None)


@dataclass
class Context:
    """The state shared by the sections of one report: its data, and links to rows and events.

    address   where a reader of the report finds the folder of tables, None if it cannot be reached
    """

    folder: AnyPath
    summary: dict[str, Any]
    looks: Looks
    address: str | None
    _parts: dict[RowSelection, None] = field(default_factory=dict)

    def look(self, text: str, computation: str, *events: str, levels: tuple[int, int] | None = None) -> str:
        """A link that shows these events or levels in the view; "" if the view does not have them."""
        href = self.looks.href(computation, *events, levels=levels)
        return f' <a href="{escape(href)}">{text}</a>.' if href else ""

    def first(self, table: str, most: int, where: pc.Expression | None = None) -> list[dict[str, Any]]:
        """The first rows of a table; none if the table does not exist."""
        if not matching(self.folder / table, "*.parquet"):
            return []
        rows: list[dict[str, Any]] = arrow_dataset(self.folder / table).head(most, filter=where).to_pylist()
        return rows

    def link(self, total: str, value: Any, text: str) -> str:
        """The text of a total, linked to the rows that it counts, if there are any."""
        part = part_of(total)
        if part is None or not value or not matching(self.folder / part.table, "*.parquet"):
            return text
        self._parts.setdefault(part)
        return f'<a href="#{escape(part.anchor)}">{text}</a>'

    def table(self, name: str, column: str = "", value: str = "") -> str:
        """The name of a table, linked to its rows, or to the rows in which a column has this value."""
        if not matching(self.folder / name, "*.parquet"):
            return f"<code>{escape(name)}</code>"
        part = RowSelection(name, column, value)
        self._parts.setdefault(part)
        return f'<a href="#{part.anchor}"><code>{escape(name)}</code></a>'

    def html(self) -> str:
        """The tables: what each answers, and the first rows of each part that the report links to."""
        helps = {table: each.help for each in QUESTIONS.values() for table in each.tables}
        for table in (*helps, "quarantine"):
            if matching(self.folder / table, "*.parquet"):
                self._parts.setdefault(RowSelection(table))
        if not self._parts:
            return ""
        ordered = sorted(self._parts, key=lambda part: ([*helps, "quarantine"].index(part.table), part))
        sections = "".join(self._section(part, helps.get(part.table, "rows left out")) for part in ordered)
        where = "Parquet, beside this page"
        if self.address:
            where = f"Parquet, in <code>{escape(self.address)}</code>"
        elif self.address is None:
            where = "kept by <code>happened analyze --out DIR</code>"
        return (
            '<h2>Tables</h2><p class="aside">Every number above leads to its rows here. The '
            f"first {MOST_ROWS} of each are shown, the whole tables are {where}.</p>{sections}"
        )

    def _section(self, part: RowSelection, help: str) -> str:
        """A closed `details` element; the browser opens it when a link leads into it."""
        data = arrow_dataset(self.folder / part.table)
        count = data.count_rows(filter=part.filter)
        is_wide = any(pa.types.is_nested(field.type) for field in data.schema)
        rows = _first(data.head(MOST_WIDE if is_wide else MOST_SORTED, filter=part.filter))
        files = ""
        if self.address is not None:
            at = f"{self.address}/{part.table}/".lstrip("/") if self.address else f"{part.table}/"
            files = f' · <a href="{escape(at)}">files</a>'
        which = f"{part.table}, {part.value}" if part.column else part.table
        return (
            f'<details class="rows"><summary><b>{escape(which)}</b> {count:,}: {escape(help)}</summary>'
            f'<div id="{escape(part.anchor)}"><p class="aside"><code>{escape(part.statement)}</code>{files}'
            f'</p><div class="picture">{self._listed(part.table, rows)}</div></div></details>'
        )

    def _listed(self, table: str, rows: list[Mapping[str, Any]]) -> str:
        if not rows:
            if (left_out := self.summary["quarantined"]) and table != "quarantine":
                return f"<p>No rows; but {rows_were(left_out)} quarantined and not judged.</p>"
            return "<p>No rows.</p>"
        names = [name for name in rows[0] if any(row[name] is not None for row in rows)]
        head = "".join(f"<th>{escape(name)}</th>" for name in names)
        body = ""
        for row in rows:
            href = self.looks.href(str(row.get("computation", "")), *_events(table, row))
            look = f'<td><a href="{escape(href)}">look</a></td>' if href else "<td></td>"
            body += f"<tr>{look}{''.join(f'<td>{_cell(row[name])}</td>' for name in names)}</tr>"
        return f"<table><tr><th></th>{head}</tr>{body}</table>"


def _first(table: pa.Table) -> list[Mapping[str, Any]]:
    """The first rows in the order of their contents, so that the order of the files does not matter."""
    plain = [field.name for field in table.schema if not pa.types.is_nested(field.type)]
    rows: list[Mapping[str, Any]] = (
        table.sort_by([(name, "ascending") for name in plain])
        .slice(0, MOST_ROWS)
        .to_pylist(maps_as_pydicts="strict")
    )
    return rows


def _events(table: str, row: Mapping[str, Any]) -> Iterator[str]:
    """The events that a row is about, by their names in the view; none if it is about no event."""
    for process, seq in OF_TABLE.get(table, EVENTS):
        if row.get(process) is not None and row.get(seq) is not None:
            yield f"{row[process]}#{row[seq]}"


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.4g}"
    if isinstance(value, list) and (len(value) > 8 or any(isinstance(each, dict | list) for each in value)):
        value = f"{len(value)} entries"
    return escape(short(str(value), LONGEST_CELL))


def pictured(picture: str, caption: str) -> str:
    return f'<figure><div class="picture">{picture}</div><figcaption>{caption}</figcaption></figure>'


def within(computation: str) -> str:
    return f", in computation {escape(computation)}" if computation else ""


def service_calls(table: pa.Table) -> list[dict[str, Any]]:
    """How often each service called each other service, over all computations, and how often that failed."""
    sums = table.group_by(["caller", "callee"]).aggregate([("calls", "sum"), ("errors", "sum")]).to_pylist()
    return sorted(sums, key=lambda row: (-row["calls_sum"], row["caller"], row["callee"]))


def numbers(rows: Iterable[tuple[str, str]], kind: str = "") -> str:
    """An HTML table of names and numbers, with a CSS class."""
    told = ((name.replace("_", " "), value) for name, value in rows)
    body = (f'<tr><td>{name}</td><td class="number">{value}</td></tr>' for name, value in told)
    return f'<table class="{kind}">{"".join(body)}</table>'


def calls_table(calls: Sequence[dict[str, Any]]) -> str:
    rows = "".join(
        f"<tr><td>{escape(row['caller'])}</td><td>{escape(row['callee'])}</td>"
        f'<td class="number">{row["calls_sum"]:,}</td><td class="number">{row["errors_sum"]:,}</td></tr>'
        for row in calls
    )
    return f"<table><tr><th>caller</th><th>callee</th><th>calls</th><th>errors</th></tr>{rows}</table>"
