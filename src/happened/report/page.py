"""The report of an analysis: report.html, self-contained, made from the tables beside it; and view.html, the
page of `happened view` that the report's links lead to.

In    the directory that `happened analyze` wrote, and the trace, if it is available
Out   one page: verdicts, totals, what is quarantined, the most telling window of each computation, witnesses
      as space–time diagrams, traffic, width, latency, skew, cost, and the first rows of every table
The report reads at most a few hundred rows of each table, and computations within the limits of `looks`.
Every number links to the rows that it counts, and rows link to their events.
"""

from html import escape
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..trace.schema import KINDS
from ..trace.store import AnyPath, arrow_dataset
from ..view.palette import palette
from ..view.space_time import STYLE as DIAGRAM_STYLE
from ..view.space_time import Arrow, Mark, clipped, space_time
from ..view.texts import compact, duration, natural, short
from .drawings import Bar, bars, line, matrix
from .looks import Looks, Window, looks
from .row_lists import Context, calls_table, numbers, pictured, service_calls, within
from .verdicts import rows_were, verdicts

VIEW = "view.html"
MOST_WINDOWS = 6
MOST_PROCESSES = 24
MOST_MEASURES = 200_000
MOST_LINKS = 50
MOST_QUARANTINED = 20

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--board);
  max-width: 64rem; margin: 2rem auto 4rem; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin: 2.4rem 0 .6rem; }
h3 { font-size: .95rem; margin: 0 0 .3rem; }
.verdict { font-size: 1.15rem; padding: .7rem 1rem; margin: 0 0 .8rem; background: var(--soft);
  border-left: .4rem solid var(--line); }
.holds { border-color: var(--accent); } .violated { border-color: var(--fault); }
.verdicts { display: grid; grid-template-columns: repeat(auto-fit, minmax(18rem, 1fr)); gap: .5rem;
  list-style: none; padding: 0; margin: 0; }
.verdicts li { padding: .4rem .8rem; border-left: .25rem solid var(--line); background: var(--soft); }
.verdicts li.holds { border-color: var(--accent); } .verdicts li.violated { border-color: var(--fault); }
.totals { display: grid; grid-template-columns: repeat(auto-fit, minmax(13.5rem, 1fr)); gap: 1.2rem 2rem; }
table { border-collapse: collapse; } .totals table { width: 100%; }
td, th { padding: .15rem .9rem .15rem 0; text-align: left; vertical-align: top; }
.totals tr + tr { border-top: 1px solid var(--soft); }
td.number { text-align: right; padding-right: 0; font-variant-numeric: tabular-nums; white-space: nowrap; }
figure { margin: .8rem 0 1.6rem; } .picture { overflow-x: auto; }
figcaption, .aside { color: var(--dim); font-size: .9rem; }
svg { font: 12px system-ui, sans-serif; display: block; } svg text { fill: var(--ink); }
.lane { text-anchor: end; } .note, .count { text-anchor: middle; }
svg .count.inverse { fill: var(--board); }
.axis { stroke: var(--line); } .grid { stroke: var(--soft); }
.cell, .bar { fill: var(--accent); } .series { fill: none; stroke: var(--accent); stroke-width: 2; }
.least { stroke: var(--board); stroke-width: 2; }
code { background: var(--soft); padding: 0 .25rem; }
a { color: var(--accent); } td.number a { color: inherit; text-decoration-color: var(--line); }
summary { cursor: pointer; padding: .2rem 0; }
details.rows > div { margin-bottom: .8rem; }
details.rows > :target { outline: 2px solid var(--accent); outline-offset: .3rem; }
details.rows .picture { font-size: .85rem; } details.rows td { white-space: nowrap; }
"""

GROUPS = {
    "What there is": (
        "computations", "events", "processes", "messages", "ordered_pairs", "concurrent_pairs",
        "reduction_edges", "quarantined", "duplicate_rows", "complete",
    ),
    "Order": (
        "deliveries_judged", "causal_violations", "fifo_violations", "total_violations", "lost_causes",
        "fifo_lost_causes", "necessary_units_mean",
    ),
    "Messages astray": ("lost", "duplicated", "misdelivered", "never_sent"),
    "Outside of the window": ("sent_outside", "causes_outside"),
    "Imported": (
        "import_quarantined", "import_quarantined_imported", "import_detached_spans", "import_untimed_spans",
        "import_contradicted_orders", "import_pieces_merged", "import_channels_not_joined",
    ),
    "Services": ("service_calls", "service_call_errors"),
    "Clocks": (
        "clocks_logged", "clock_mismatches", "clock_regressions", "clock_impossible",
        "tracker_stamps", "tracker_faults", "tracker_unjudged",
        "receives_before_sends", "receives_before_sends_corrected", "times_backwards",
    ),
}  # fmt: skip
"""The groups of totals in the report; totals that are in no group come last."""


def write_report(folder: AnyPath, summary: dict[str, Any], trace: AnyPath | Looks | None = None) -> None:
    """Write report.html and view.html beside the tables of an analysis.

    trace   the trace that was analysed: the report shows its labels, spans and marks of relevance
    """
    report, view = pages(folder, summary, trace, tables="")
    (folder / "report.html").write_text(report, encoding="utf-8")
    if view:
        (folder / VIEW).write_text(view, encoding="utf-8")


def pages(
    folder: AnyPath,
    summary: dict[str, Any],
    trace: AnyPath | Looks | None = None,
    *,
    view: str = VIEW,
    tables: str | None = None,
) -> tuple[str, str]:
    """The report, and the page that its links lead to, which is "" if nothing can be shown.

    trace    the trace that was analysed, or the result of `looks` for it
    view     the address of the linked page, "" for none
    tables   the address of the folder of tables, None if the folder is not kept
    """
    shown = (trace if isinstance(trace, Looks) else looks(folder, trace)).at(view)
    context = Context(folder, summary, shown, tables)
    return _page(context), shown.html() if view else ""


def page(folder: AnyPath, summary: dict[str, Any]) -> str:
    """The report without its view page."""
    report, _ = pages(folder, summary, view="")
    return report


def _page(context: Context) -> str:
    summary = context.summary
    sections = [
        _totals(context),
        _quarantine(context),
        _windows(context),
        witnesses(context),
        lost_causes(context),
        _dependencies(context),
        _traffic(context),
        _width(context),
        _latency(context),
        _skew(context),
        _cost(context),
    ]
    causal, *others = [
        (one, f" {context.link(one.total, True, 'Rows')}" if summary.get(one.total) else "")
        for one in verdicts(summary, timed=bool(context.first("times", 1)))
    ]
    body = "".join(sections) + context.html()
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>What happened</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{palette()}{STYLE}{DIAGRAM_STYLE}</style></head><body>"
        "<h1>What happened, and what happened before it</h1>"
        f'{causal[0].html("p", "verdict", causal[1])}<ul class="verdicts">'
        f"{''.join(one.html('li', '', more) for one, more in others)}</ul>{body}</body></html>\n"
    )


def _totals(context: Context) -> str:
    summary = context.summary
    named = {name for names in GROUPS.values() for name in names}
    groups = {**GROUPS, "Besides": tuple(name for name in summary if name not in named)}
    tables = ""
    for title, names in groups.items():
        there = {name: summary[name] for name in names if name in summary}
        links = (context.link(name, value, _number(value)) for name, value in there.items())
        rows = zip(map(escape, there), links, strict=True)
        if there:
            tables += f"<section><h3>{title}</h3>{numbers(rows)}</section>"
    return f'<h2>Totals</h2><div class="totals">{tables}</div>'


def _number(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "–" if value is None else f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"


def _quarantine(context: Context) -> str:
    rows = context.first("quarantine", MOST_QUARANTINED)
    if not rows:
        return ""
    body = "".join(
        f"<tr><td>{escape(row['computation']) or '–'}</td><td>{escape(row['reason'] or '')}</td></tr>"
        for row in rows
    )
    more = f" The first {len(rows)} reasons." if len(rows) == MOST_QUARANTINED else ""
    return (
        f'<h2>Quarantine</h2><p class="aside">{rows_were(context.summary["quarantined"])} no part of a '
        f"computation.{more} Table: {context.table('quarantine')}.</p>"
        f"<table><tr><th>computation</th><th>reason</th></tr>{body}</table>"
    )


def _largest(folder: AnyPath, name: str) -> str | None:
    """The computation in which a measure is largest, among the first rows: the one that a picture shows."""
    data, columns = arrow_dataset(folder / "measures"), ["computation", "value"]
    table = data.head(MOST_MEASURES, columns=columns, filter=pc.field("measure") == name)
    if not table.num_rows:
        return None
    sums = table.group_by("computation").aggregate([("value", "sum")])
    return str(sums.sort_by([("value_sum", "descending"), ("computation", "ascending")])["computation"][0])


def _measure(folder: AnyPath, name: str, computation: str) -> pa.Table:
    data = arrow_dataset(folder / "measures")
    return data.to_table(filter=(pc.field("measure") == name) & (pc.field("computation") == computation))


def _windows(context: Context) -> str:
    found = context.looks.windows(MOST_WINDOWS)
    if not found:
        return ""
    shown = "".join(_window(context, each, first=each is found[0]) for each in found)
    several = context.summary["computations"] > len(found)
    rest = f" The {len(found)} that say most of {context.summary['computations']:,} computations."
    at = context.looks.page
    closely = f'<a href="{escape(at)}">Look at it closely</a>. ' if at else ""
    return (
        '<h2>A look at it</h2><p class="aside">Discs are sends, circles arrivals, diamonds deliveries, '
        f"squares other events.{rest if several else ''} {closely}<code>happened view</code> of this "
        f"directory, or of the trace, shows all of it.</p>{shown}"
    )


def _window(context: Context, window: Window, *, first: bool) -> str:
    why = "what is at fault, ringed" if window.of_violation else "where most was delivered"
    caption = (
        f"Levels {window.levels[0]:,} to {window.levels[1]:,}: {why}{within(window.computation)}."
        f"{context.look('Look closer', window.computation, levels=window.levels)}"
    )
    space_time = pictured(window.space_time, f"{caption} Table: {context.table('stamps')}.")
    hasse = pictured(
        window.hasse,
        "Immediate predecessors among the relevant events; all are, where none is marked. "
        f"Table: {context.table('predecessors')}.",
    )
    spans = pictured(window.spans, "The request with most spans, as their own clocks have them.")
    opened = " open" if first else ""
    more = f"<details{opened}><summary>Its Hasse diagram</summary>{hasse}</details>" if window.hasse else ""
    if window.spans:
        more += f"<details{opened}><summary>Its spans</summary>{spans}</details>"
    if first:
        return space_time + more
    name = escape(short(window.computation, 60)) or "unnamed"
    return f"<details><summary>Computation {name}</summary>{space_time}{more}</details>"


def _dependencies(context: Context) -> str:
    """Which service called which, summed over all computations."""
    if not context.first("dependencies", 1):
        return ""
    table = arrow_dataset(context.folder / "dependencies").head(MOST_MEASURES)
    sums = service_calls(table)
    picture, left_out = _busiest({(row["caller"], row["callee"]): row["calls_sum"] for row in sums})
    more = f" The first {MOST_LINKS} of {len(sums):,} are listed." if len(sums) > MOST_LINKS else ""
    caption = f"Calls, from the row's service to the column's.{left_out}{more}"
    listed = calls_table(sums[:MOST_LINKS])
    return _figure(context, "Which service calls which", picture, caption, "dependencies") + listed


def _traffic(context: Context) -> str:
    computation = _largest(context.folder, "messages")
    if computation is None:
        return _influence(context)
    rows = _measure(context.folder, "messages", computation).to_pylist()
    counts = {(row["process"], row["other"]): row["value"] for row in rows}
    picture, left_out = _busiest(counts)
    caption = f"Messages delivered, from the row's process to the column's{within(computation)}.{left_out}"
    return _figure(context, "Who spoke to whom", picture, caption, "measures", "messages")


def _influence(context: Context) -> str:
    """For traces without messages: which services influenced which, from the recorded causes."""
    data = arrow_dataset(context.folder / "predecessors")
    across = pc.field("process") != pc.field("cause_process")
    edges = data.head(MOST_MEASURES, columns=["cause_process", "process"], filter=across)
    if not edges.num_rows:
        return ""
    pairs = edges.group_by(["cause_process", "process"]).aggregate([([], "count_all")]).to_pylist()
    picture, left_out = _busiest({(row["cause_process"], row["process"]): row["count_all"] for row in pairs})
    first = f" The first {MOST_MEASURES:,} only." if edges.num_rows == MOST_MEASURES else ""
    caption = (
        "Immediate predecessors on another process: how often the row's process acted directly upon the "
        f"column's.{left_out}{first}"
    )
    return _figure(context, "Who acted upon whom", picture, caption, "predecessors")


def _busiest(counts: dict[tuple[str, str], float]) -> tuple[str, str]:
    """The matrix of the busiest processes, and a note of how many are left out."""
    busy: dict[str, float] = {}
    for ends, value in counts.items():
        for end in ends:
            busy[end] = busy.get(end, 0) + value
    names = sorted(sorted(busy, key=lambda name: (-busy[name], name))[:MOST_PROCESSES], key=natural)
    grid = [[counts.get((a, b), 0) for b in names] for a in names]
    left_out = f" The {len(busy) - len(names):,} least busy are left out." if len(busy) > len(names) else ""
    return matrix(names, grid), left_out


def _width(context: Context) -> str:
    computation = _largest(context.folder, "depth")
    if computation is None:
        return ""
    (depth,) = _measure(context.folder, "depth", computation)["value"].to_pylist()
    values = _measure(context.folder, "width", computation).sort_by("at")["value"].to_pylist()
    picture = line(values, "level", ("1", f"{depth:,.0f}"))
    caption = (
        "Events per level: they are concurrent. The level of an event is the length of the longest chain of "
        f"causes that ends with it; the critical path has {depth:,.0f} events{within(computation)}."
    )
    return _figure(context, "Concurrency along the way", picture, caption, "measures", "width")


def _latency(context: Context) -> str:
    computation = _largest(context.folder, "latency_mean")
    if computation is None:
        return ""
    mean, least = (
        {f"{row['process']} → {row['other']}": row["value"] for row in table.to_pylist()}
        for name in ("latency_mean", "latency_min")
        for table in [_measure(context.folder, name, computation).sort_by([("value", "descending")])]
    )
    slowest = list(mean.items())[:12]
    rows = [Bar(pair, value, duration(value), least.get(pair)) for pair, value in slowest]
    caption = f"Mean latency after correction for skew, the least one marked in the bar{within(computation)}."
    return _figure(context, "Slowest pairs", bars(rows), caption, "measures", "latency_mean")


def _skew(context: Context) -> str:
    summary = context.summary
    rows = [row for row in context.first("skew", 2000) if row["clock_offset"]]
    before, after = summary["receives_before_sends"], summary["receives_before_sends_corrected"]
    if not rows and not before:
        return ""
    worst = sorted(rows, key=lambda row: -abs(row["clock_offset"]))[:16]
    several = len({row["computation"] for row in worst}) > 1
    drawn = []
    for row in worst:
        name = f"{row['process']} ({row['computation']})" if several else row["process"]
        drift = f", {compact(row['drift'] * 1e6)} µs/s" if row["drift"] else ""
        drawn.append(Bar(name, row["clock_offset"], f"{duration(row['clock_offset'])}{drift}"))
    caption = (
        "How far a process's clock is ahead (to the left: behind) and how fast that grows; the largest "
        f"{len(worst)}. {before:,} deliveries preceded their sends by the clocks; {after:,} after correction."
    )
    return _figure(context, "Clocks that disagree", bars(drawn), caption, "skew")


def _cost(context: Context) -> str:
    summary = context.summary
    mean = summary["necessary_units_mean"]
    if mean is None:
        return ""
    processes = summary["processes"] / summary["computations"]
    rows = [
        ("the optimum: what is necessary, as <code>ks</code> carries it", mean),
        ("a vector, as broadcast protocols carry it", processes),
        ("a matrix, as <code>rst</code> carries it", processes**2),
    ]
    units = numbers(((name, compact(value)) for name, value in rows), "cost")
    of = "" if summary["computations"] == 1 else f", at {compact(processes)} processes to a computation"
    return (
        f'<h2>What causal order would have cost</h2>{units}<p class="aside">'
        f"Units, or numbers of a vector or matrix, per transmission, on average{of}. "
        f"Table: {context.table('necessary')}.</p>"
    )


def _figure(context: Context, title: str, picture: str, caption: str, table: str, measure: str = "") -> str:
    """A picture and a link to its table; for the table `measures`, to the rows of one measure."""
    rows = context.table(table, "measure", measure) if measure else context.table(table)
    return f"<h2>{title}</h2>{pictured(picture, f'{caption} Table: {rows}.')}"


MOST_WITNESSES = 8
WITNESSES_READ = 500
STEP, LANE = 104, 60  # pixels between events of a witness, and between lanes
MOST_STEPS = 9  # events drawn of a witness's path; the middle of a longer one is left out


def witnesses(context: Context) -> str:
    count = context.summary["causal_violations"]
    if not count:
        return ""
    rows = context.first("violations", WITNESSES_READ, pc.field("order_name") == "causal")
    chosen = _of_many_shapes(rows)[:MOST_WITNESSES]
    return (
        f'<h2>Witnesses</h2><p class="aside">{len(chosen)} of {count:,}; all are in '
        f"{context.table('violations')}. Arrows are messages and what a process did next; a ring marks "
        f"the delivery that came too early.</p>{''.join(_witness(context, row) for row in chosen)}"
    )


def _of_many_shapes(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Short paths before long ones, but first one path of each length."""

    def length(row: dict[str, Any]) -> int:
        return len(row["path"] or [])

    shapes = [list(same) for _, same in groupby(sorted(rows, key=length), key=length)]
    ranked = [(rank, number, row) for number, same in enumerate(shapes) for rank, row in enumerate(same)]
    return [row for _, _, row in sorted(ranked, key=lambda each: each[:2])]


def _witness(context: Context, row: dict[str, Any]) -> str:
    path = row["path"] or []
    half = MOST_STEPS // 2
    elided = len(path) - 2 * half if len(path) > MOST_STEPS else 0
    steps = [(step["process"], step["kind"], step["message"] or "") for step in path]
    if elided:
        steps[half:-half] = [(path[half]["process"], f"… {elided:,} …", "events")]
    early, place = len(steps), row["process"]
    steps += [(place, "deliver", row["early"]), (place, "deliver", row["overtaken"])]
    marks = []
    for level, (process, kind, message) in enumerate(steps, 1):
        label = clipped(f"{kind}\n{message}".strip(), 13)
        drawn = KINDS.index(kind if kind in KINDS else "internal")  # left-out events are drawn as internal
        marks.append(Mark(process, level, drawn, label, message, fault=level == early + 1))
    arrows = [Arrow(i, i + 1) for i in range(early - 1)]
    if path:
        arrows += [Arrow(early - 1, early, fault=True), Arrow(0, early + 1)]
    caption = (
        f"{escape(row['process'])} delivered {escape(row['early'])} (event {row['early_seq']}) before "
        f"{escape(row['overtaken'])} (event {row['overtaken_seq']}), which was sent to it causally "
        f"earlier{within(row['computation'])}"
    )
    ends = [f"{step['process']}#{step['seq']}" for step in (path[0], path[-1])] if path else []
    looked = context.look("The path between their sends", row["computation"], *ends)
    title = f"A delivery of {row['early']} that came too early"
    picture = space_time(title, marks, arrows, across=STEP, down=LANE, kind="witness")
    return pictured(picture, f"{caption}.{looked}")


def lost_causes(context: Context) -> str:
    count = context.summary["lost_causes"]
    if not count:
        return ""
    rows = context.first("lost_causes", MOST_WITNESSES, pc.field("order_name") == "causal")
    items = "".join(
        f"<li>{escape(row['process'])} delivered {escape(row['delivered'])} (event {row['delivered_seq']}) "
        f"and never {escape(row['lost'])}, which was sent to it causally earlier"
        f"{within(row['computation'])}."
        f"{context.look('Look', row['computation'], row['process'] + '#' + str(row['delivered_seq']))}</li>"
        for row in rows
    )
    return (
        f'<h2>Lost causes</h2><p class="aside">{len(rows)} of {count:,}; all are in '
        f"{context.table('lost_causes')}.</p><ul>{items}</ul>"
    )
