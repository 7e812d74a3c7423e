"""A page about the last minutes of a running system, which loads itself again every few seconds.

In    the tables that `happened stream --otlp` writes: violations, lost causes, requests, critical paths, skew
Out   one self-contained page; it asks nobody for anything but itself
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from html import escape
from typing import Any

import pyarrow as pa

from ..causality.judgement import Judgement
from ..view.palette import palette
from ..view.texts import duration
from .context import calls_table, service_calls
from .drawings import Bar, bars
from .page import STYLE
from .verdicts import VerdictLine

EVERY = 2  # seconds
SHOWN = 12  # rows of a list
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def live_page(
    judgement: Judgement, tables: Mapping[str, pa.Table], counts: Mapping[str, int], at: float
) -> str:
    """`counts` are shown as they are; `at` is when they were taken, in seconds since 1970."""
    when = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    sections = (
        _violations(tables["violations"]),
        _critical(tables["critical_path"]),
        _slowest(tables["slowest"]),
        _skew(tables["skew"]),
        _dependencies(tables["dependencies"]),
        _counts(counts),
    )
    verdict = VerdictLine(judgement.holds, escape(judgement.sentence)).html("p", "verdict")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>The last minutes</title>'
        f'<meta http-equiv="refresh" content="{EVERY}">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{palette()}{STYLE}</style></head><body><h1>The last minutes</h1>{verdict}"
        f'<p class="aside">As of {when}.</p>{"".join(sections)}</body></html>\n'
    )


def _violations(table: pa.Table) -> str:
    if not table.num_rows:
        return ""
    items = []
    for row in table.slice(0, SHOWN).to_pylist():
        path = " → ".join(f"{step['process']}#{step['seq']}" for step in row["path"] or ())
        items.append(
            f"<li>{escape(row['process'])} delivered <b>{escape(row['early'])}</b> before "
            f"<b>{escape(row['overtaken'])}</b>, which was sent to it causally earlier"
            f"{f': {escape(path)}' if path else ''}</li>"
        )
    return _list("Early deliveries", "violations", table.num_rows, f"<ul>{''.join(items)}</ul>")


def _critical(table: pa.Table) -> str:
    if not table.num_rows:
        return ""
    drawn = bars([Bar(row["place"], row["took"], _share(row)) for row in table.slice(0, SHOWN).to_pylist()])
    picture = f'<div class="picture">{drawn}</div>'
    return _list("Where the time of requests went", "critical_path", table.num_rows, picture)


def _share(row: Mapping[str, Any]) -> str:
    saved = "" if row["saved"] is None else f", saves {duration(row['saved'])}"
    return f"{duration(row['took'])}{saved}"


def _slowest(table: pa.Table) -> str:
    if not table.num_rows:
        return ""
    rows = table.to_pylist()
    drawn = bars([Bar(f"{row['place']} {row['label']}", row["took"], duration(row["took"])) for row in rows])
    name = f"The slowest request, {escape(rows[0]['request'])}"
    return _list(name, "slowest", len(rows), f'<div class="picture">{drawn}</div>')


def _skew(table: pa.Table) -> str:
    rows = sorted(table.to_pylist(), key=lambda row: -abs(row["clock_offset"]))
    rows = [row for row in rows if row["clock_offset"]][:SHOWN]
    if not rows:
        return ""
    drawn = bars([Bar(row["process"], row["clock_offset"], duration(row["clock_offset"])) for row in rows])
    told = f'<div class="picture">{drawn}</div>'
    if not all(row["feasible"] for row in rows):
        told += '<p class="aside">No offsets explain all times: these are the best known.</p>'
    return _list("Clocks ahead of most, or behind", "skew", len(rows), told)


def _dependencies(table: pa.Table) -> str:
    if not table.num_rows:
        return ""
    sums = service_calls(table)
    return _list("Which service calls which", "dependencies", len(sums), calls_table(sums[:SHOWN]))


def _counts(counts: Mapping[str, int]) -> str:
    rows = "".join(
        f'<tr><td>{escape(name.replace("_", " "))}</td><td class="number">{value:,}</td></tr>'
        for name, value in counts.items()
    )
    return f"<h2>What came</h2><table>{rows}</table>"


def _list(title: str, table: str, rows: int, body: str) -> str:
    more = f" The first {SHOWN} of {rows:,}." if rows > SHOWN else ""
    return f'<h2>{title}</h2>{body}<p class="aside">Table: <code>{table}</code>.{more}</p>'
