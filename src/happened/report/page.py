"""The report of an analysis: report.html, self-contained, from the tables beside it.

In    the directory `happened analyze` wrote
Out   one page: verdict, totals, witnesses as space–time diagrams, traffic, width, latency, skew, cost
Reads at most a few hundred rows of each table, whatever its size; every figure names its table.
"""

from html import escape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from .drawings import Arrow, Mark, bars, compact, duration, line, matrix, space_time

MOST_WITNESSES = 8
MOST_PROCESSES = 24
MOST_MEASURES = 200_000

STYLE = """
:root { color-scheme: light dark; --ink: #1d2433; --paper: #fff; --line: #8a94a6; --accent: #1f5fbf;
  --fault: #b3261e; --soft: #eef1f6; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7eaf0; --paper: #14171d; --line: #6f7a8c;
  --accent: #7fb0ff; --fault: #ff8a80; --soft: #1f242d; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2.2rem; }
.verdict { font-size: 1.15rem; padding: .7rem 1rem; border-left: .4rem solid var(--accent);
  background: var(--soft); } .verdict.violated { border-color: var(--fault); }
table { border-collapse: collapse; } td, th { padding: .15rem .9rem .15rem 0; text-align: left; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
figure { margin: .8rem 0 1.6rem; overflow-x: auto; } figcaption { color: var(--line); font-size: .9rem; }
svg { font: 12px system-ui, sans-serif; height: auto; } svg text { fill: var(--ink); }
.lane { text-anchor: end; } .note, .count { text-anchor: middle; } .count.light { fill: #fff; }
.axis { stroke: var(--line); } .arrow { stroke: var(--accent); stroke-width: 1.5; }
.arrow.fault { stroke: var(--fault); stroke-dasharray: 5 3; } .head { fill: var(--accent); }
.head.fault { fill: var(--fault); } .mark { fill: var(--accent); } .mark.fault { fill: var(--fault); }
.cell, .bar { fill: var(--accent); } .series { fill: none; stroke: var(--accent); stroke-width: 2; }
code { background: var(--soft); padding: 0 .25rem; }
"""


def write_report(folder: Path, summary: dict[str, Any]) -> None:
    (folder / "report.html").write_text(page(folder, summary), encoding="utf-8")


def page(folder: Path, summary: dict[str, Any]) -> str:
    sections = [
        _totals(summary),
        _witnesses(folder, summary),
        _traffic(folder),
        _width(folder),
        _latency(folder),
        _skew(folder, summary),
        _cost(folder, summary),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>What happened</title>'
        f"<style>{STYLE}</style></head><body><h1>What happened, and what happened before it</h1>"
        f"{_verdict(summary)}{''.join(sections)}</body></html>"
    )


def _verdict(summary: dict[str, Any]) -> str:
    judged, early = summary["deliveries_judged"], summary["causal_violations"]
    if not judged:
        return '<p class="verdict">Causal order is undecided: there are no deliveries to judge.</p>'
    if early:
        return (
            f'<p class="verdict violated">✗ Causal order is violated: {early:,} of {judged:,} deliveries '
            "came too early.</p>"
        )
    return f'<p class="verdict">✓ Causal order holds: {judged:,} deliveries examined, no violation.</p>'


def _totals(summary: dict[str, Any]) -> str:
    rows = "".join(
        f'<tr><td>{escape(name.replace("_", " "))}</td><td class="number">{_number(value)}</td></tr>'
        for name, value in summary.items()
    )
    return f"<h2>Totals</h2><table>{rows}</table>"


def _number(value: Any) -> str:
    return "–" if value is None else f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"


def _rows(folder: Path, table: str, most: int, where: pc.Expression | None = None) -> list[dict[str, Any]]:
    if not any((folder / table).glob("*.parquet")):
        return []
    return ds.dataset(folder / table, format="parquet").head(most, filter=where).to_pylist()


def _largest(folder: Path, where: pc.Expression) -> str | None:
    """The computation in which a measure is largest, among the first rows: one picture, one computation."""
    data = ds.dataset(folder / "measures", format="parquet")
    table = data.head(MOST_MEASURES, columns=["computation", "value"], filter=where)
    if not table.num_rows:
        return None
    sums = table.group_by("computation").aggregate([("value", "sum")])
    return str(sums.sort_by([("value_sum", "descending")])["computation"][0].as_py())


def _measure(folder: Path, name: str) -> tuple[str | None, pa.Table]:
    """A measure of the largest computation."""
    is_it = pc.field("measure") == name
    computation = _largest(folder, is_it)
    data = ds.dataset(folder / "measures", format="parquet")
    return computation, data.to_table(filter=is_it & (pc.field("computation") == (computation or "")))


def _witnesses(folder: Path, summary: dict[str, Any]) -> str:
    if not summary["causal_violations"]:
        return ""
    rows = _rows(folder, "violations", MOST_WITNESSES, pc.field("order") == "causal")
    shown = "".join(_witness(row) for row in rows)
    return (
        f"<h2>Witnesses</h2><p>The first {len(rows)} of {summary['causal_violations']:,}; all are in "
        f"<code>violations</code>.</p>{shown}"
    )


def _witness(row: dict[str, Any]) -> str:
    path = row["path"] or []
    marks = [Mark(step["process"], f"{step['kind']} {step['message'] or ''}".strip()) for step in path]
    arrows = [Arrow(i, i + 1) for i in range(len(path) - 1)]
    early = len(marks)
    marks += [
        Mark(row["process"], f"deliver {row['early']}", fault=True),
        Mark(row["process"], f"deliver {row['overtaken']}"),
    ]
    if path:
        arrows += [Arrow(len(path) - 1, early, fault=True), Arrow(0, early + 1)]
    caption = (
        f"{escape(row['process'])} delivered {escape(row['early'])} (event {row['early_seq']}) before "
        f"{escape(row['overtaken'])} (event {row['overtaken_seq']}), which was sent to it causally earlier"
    )
    return f"<figure>{space_time(marks, arrows)}<figcaption>{caption}.</figcaption></figure>"


def _traffic(folder: Path) -> str:
    computation, table = _measure(folder, "messages")
    if computation is None:
        return ""
    counts = {(row["process"], row["other"]): row["value"] for row in table.to_pylist()}
    busy: dict[str, float] = {}
    for ends, value in counts.items():
        for end in ends:
            busy[end] = busy.get(end, 0) + value
    names = sorted(sorted(busy, key=lambda name: -busy[name])[:MOST_PROCESSES])
    grid = [[counts.get((a, b), 0) for b in names] for a in names]
    left_out = f" The {len(busy) - len(names)} least busy are left out." if len(busy) > len(names) else ""
    caption = f"Messages delivered, sender by row{_of(computation)}.{left_out}"
    return _figure("Who spoke to whom", matrix(names, grid), caption, "measures")


def _width(folder: Path) -> str:
    computation, table = _measure(folder, "width")
    if computation is None:
        return ""
    values = table.sort_by("at")["value"].to_pylist()
    picture = line(values, "from the first level to the last")
    caption = f"Concurrent events per level, a level for each event of the longest chain{_of(computation)}."
    return _figure("Concurrency along the way", picture, caption, "measures")


def _latency(folder: Path) -> str:
    computation, table = _measure(folder, "latency_mean")
    if computation is None:
        return ""
    slowest = table.sort_by([("value", "descending")]).slice(0, 12).to_pylist()
    rows = [(f"{row['process']} → {row['other']}", row["value"], duration(row["value"])) for row in slowest]
    caption = f"Mean latency after correction for skew{_of(computation)}."
    return _figure("Slowest pairs", bars(rows), caption, "measures")


def _skew(folder: Path, summary: dict[str, Any]) -> str:
    rows = [row for row in _rows(folder, "skew", 2000) if row["offset"]]
    before, after = summary["receives_before_sends"], summary["receives_before_sends_corrected"]
    if not rows and not before:
        return ""
    worst = sorted(rows, key=lambda row: -abs(row["offset"]))[:16]
    picture = bars([(row["process"], row["offset"], duration(row["offset"])) for row in worst])
    caption = (
        f"How far a process's clock is ahead. {before:,} deliveries preceded their sends by the clocks; "
        f"{after:,} after correction."
    )
    return _figure("Clocks that disagree", picture, caption, "skew")


def _cost(folder: Path, summary: dict[str, Any]) -> str:
    mean = summary["necessary_units_mean"]
    if mean is None:
        return ""
    processes = summary["processes"]
    rows = [
        ("necessary units per message (the optimum)", compact(mean)),
        ("a vector per message", compact(processes)),
        ("a matrix per message", compact(processes**2)),
    ]
    body = "".join(f'<tr><td>{name}</td><td class="number">{value}</td></tr>' for name, value in rows)
    return (
        f"<h2>What causal order would have cost</h2><table>{body}</table>"
        "<p>Entries of control information per transmission. Table: <code>necessary</code>.</p>"
    )


def _figure(title: str, picture: str, caption: str, table: str) -> str:
    return (
        f"<h2>{title}</h2><figure>{picture}"
        f"<figcaption>{caption} Table: <code>{table}</code>.</figcaption></figure>"
    )


def _of(computation: str) -> str:
    return f" in computation {escape(computation)}" if computation else ""
