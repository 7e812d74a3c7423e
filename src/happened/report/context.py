"""What the sections of one report share: where they read, what they link to, and the frame of a picture."""

from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ..trace.store import AnyPath, arrow_dataset, matching
from .looks import Looks
from .row_lists import RowLists


class Context(NamedTuple):
    """The inputs that the sections of a report share."""

    folder: AnyPath
    summary: dict[str, Any]
    looks: Looks
    rows: RowLists

    def look(self, text: str, computation: str, *events: str, levels: tuple[int, int] | None = None) -> str:
        """A link to the view of these events or levels; "" if the view does not show them."""
        href = self.looks.href(computation, *events, levels=levels)
        return f' <a href="{escape(href)}">{text}</a>.' if href else ""


def rows_of(
    folder: AnyPath, table: str, most: int, where: pc.Expression | None = None
) -> list[dict[str, Any]]:
    if not matching(folder / table, "*.parquet"):
        return []
    rows: list[dict[str, Any]] = arrow_dataset(folder / table).head(most, filter=where).to_pylist()
    return rows


def pictured(picture: str, caption: str) -> str:
    return f'<figure><div class="picture">{picture}</div><figcaption>{caption}</figcaption></figure>'


def within(computation: str) -> str:
    return f", in computation {escape(computation)}" if computation else ""


def service_calls(table: pa.Table) -> list[dict[str, Any]]:
    """How often each service called each other one, over all computations, and how often that failed."""
    sums = table.group_by(["caller", "callee"]).aggregate([("calls", "sum"), ("errors", "sum")]).to_pylist()
    return sorted(sums, key=lambda row: (-row["calls_sum"], row["caller"], row["callee"]))


def calls_table(calls: Sequence[dict[str, Any]]) -> str:
    rows = "".join(
        f"<tr><td>{escape(row['caller'])}</td><td>{escape(row['callee'])}</td>"
        f'<td class="number">{row["calls_sum"]:,}</td><td class="number">{row["errors_sum"]:,}</td></tr>'
        for row in calls
    )
    return f"<table><tr><th>caller</th><th>callee</th><th>calls</th><th>errors</th></tr>{rows}</table>"
