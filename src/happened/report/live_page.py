"""A page about the last minutes of a running system; it reloads itself every few seconds.

In    the tables that `happened stream --otlp` writes: violations, lost causes, requests, critical paths, skew
Out   one self-contained page, which requests nothing but itself
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from html import escape

import pyarrow as pa

from ..causality.judgement import Judgement
from ..view.palette import palette
from ..view.texts import duration
from .drawings import Bar, bars
from .page import STYLE
from .row_lists import calls_table, numbers, service_calls
from .verdicts import VerdictLine

EVERY = 2  # seconds between reloads
SHOWN = 12  # rows shown of a list
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def live_page(
    judgement: Judgement, tables: Mapping[str, pa.Table], counts: Mapping[str, int], at: float
) -> str:
    """The page; `counts` are shown unchanged; `at` is when they were taken, in seconds since 1970."""
    when = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    sections = (
        _violations(tables["violations"]),
        _critical(tables["critical_path"]),
        _slowest(tables["slowest"]),
        _skew(tables["skew"]),
        _dependencies(tables["dependencies"]),
        f"<h2>What came</h2>{numbers((escape(name), f'{value:,}') for name, value in counts.items())}",
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
    drawn = []
    for row in table.slice(0, SHOWN).to_pylist():
        saved = "" if row["saved"] is None else f", saves {duration(row['saved'])}"
        drawn.append(Bar(row["place"], row["took"], f"{duration(row['took'])}{saved}"))
    return _list("Where the time of requests went", "critical_path", table.num_rows, _picture(drawn))


def _slowest(table: pa.Table) -> str:
    rows = table.to_pylist()
    drawn = [Bar(f"{row['place']} {row['label']}", row["took"], duration(row["took"])) for row in rows]
    name = f"The slowest request, {escape(rows[0]['request']) if rows else ''}"
    return _list(name, "slowest", len(rows), _picture(drawn))


def _skew(table: pa.Table) -> str:
    rows = sorted(table.to_pylist(), key=lambda row: -abs(row["clock_offset"]))
    rows = [row for row in rows if row["clock_offset"]][:SHOWN]
    drawn = [Bar(row["process"], row["clock_offset"], duration(row["clock_offset"])) for row in rows]
    told = _picture(drawn)
    if not all(row["feasible"] for row in rows):
        told += '<p class="aside">No offsets explain all times: these are the best known.</p>'
    return _list("Clocks ahead of most, or behind", "skew", len(rows), told)


def _dependencies(table: pa.Table) -> str:
    sums = service_calls(table)
    return _list("Which service calls which", "dependencies", len(sums), calls_table(sums[:SHOWN]))


def _picture(drawn: list[Bar]) -> str:
    return f'<div class="picture">{bars(drawn)}</div>'


def _list(title: str, table: str, rows: int, body: str) -> str:
    """A section with a list; "" if the list is empty."""
    more = f" The first {SHOWN} of {rows:,}." if rows > SHOWN else ""
    return f'<h2>{title}</h2>{body}<p class="aside">Table: <code>{table}</code>.{more}</p>' if rows else ""
