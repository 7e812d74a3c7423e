"""Feed the same schedule to every protocol: the same sends at the same times, and the same delays for what a
sender transmits to a destination itself. Prints what each carries, adds, holds back, delays and computes,
with 95 % confidence intervals over the seeds. A protocol asked for something outside its assumptions is
listed with the reason instead of figures.

With --trackers, run the same random computations under several trackers and compare what their messages
carry: entries (event identifiers), bits as encoded, bits with 32-bit counts and a bitmap, null events and
memory (bytes of a tracker's snapshot), as means per message with 95 % confidence intervals. Trackers that
need FIFO links get them; `happened help protocols` lists them.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from ..core.exit_codes import ExitCode
from ..experiments.compare import MEASURES, SCHEMA, Comparison, Summary, compare, summarise
from ..experiments.runs import write_rows
from ..experiments.trackers import Row, Study, is_fifo, study
from ..ordering import protocols
from ..report.chart import Curve, Point, draw
from ..sim.network import Network, parse_delay
from ..sim.workload import Workload
from .options import add_output, option, refuse_given, usage_errors
from .output import refuse_earlier
from .parser import Parser, meant
from .terminal import figure, note, print_answer, progress, rows_of, table

EPILOG = """\
examples:
  happened compare --protocols ks,rst,ses --processes 10:50:10 --pattern multicast --delay exp:0.1 --out DIR
  happened compare --trackers vector,p1,p1-prime,p2:4,p3,p3-reduced --processes 10:50:10 --relevant 0.2

DIR gets compare.parquet (one row per run; not of trackers) and a plot of each measure as SVG.
"""

T = TypeVar("T")
ORDERING = ("topology", "messages", "interval", "delay", "fifo")
TRACKING = ("relevant", "messages_each")


def add_arguments(parser: Parser) -> None:
    which = parser.add_mutually_exclusive_group()
    option(which, "--protocols", "without it all there are", type=protocol_names)
    option(which, "--trackers", "compare these instead, by the options for trackers")
    option(parser, "--processes", "or several, as 10,30 or 10:50:10 (default: 10)", type=_counts)
    option(parser, "--seed", default=1)
    option(parser, "--seeds K", "runs of each kind, with seeds that count up", type=int, default=5)
    option(parser, "--pattern", "without it multicast, or unicast of trackers")
    add_output(parser, "a directory: the table and a plot of each measure")
    option(parser, "--json")
    ordering = parser.add_argument_group("for ordering protocols")
    option(ordering, "--topology", "its processes are those that are compared")
    option(ordering, "--messages", "in each run (default: 20000)")
    option(ordering, "--interval", "(default: 0.1)")
    option(ordering, "--delay", "(default: exp:0.1)")
    option(ordering, "--fifo")
    tracking = parser.add_argument_group("for trackers")
    option(tracking, "--relevant", "(default: 0.1)")
    option(tracking, "--messages-each M", "messages sent by each process (default: 200)", type=int)


def run(arguments: argparse.Namespace) -> int:
    if arguments.trackers is not None:
        refuse_given(arguments, ORDERING, "is for ordering protocols: leave it out with --trackers")
        compare_trackers(arguments)
        return ExitCode.HOLDS
    refuse_given(arguments, TRACKING, "is for trackers: give --trackers, or leave it out")
    terrain = arguments.topology
    with usage_errors():
        comparison = Comparison(
            arguments.protocols or tuple(protocols()),
            arguments.processes or ((10,) if terrain is None else (terrain.applications,)),
            tuple(range(arguments.seed, arguments.seed + arguments.seeds)),
            _given(arguments.messages, 20_000),
            Workload(_given(arguments.pattern, "multicast"), _given(arguments.interval, 0.1)),
            Network(parse_delay(_given(arguments.delay, "exp:0.1")), arguments.fifo),
            terrain,
        )
    refuse_earlier(arguments.out, ["compare.parquet"], force=arguments.force)
    with progress("comparing", comparison.runs * comparison.messages, "messages") as bar:
        rows = list(compare(comparison, progress=bar.update))
    summaries = summarise(rows)
    print_answer(arguments, lambda: summaries, _lines(summaries, several=arguments.seeds > 1))
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
        write_rows(rows, SCHEMA, arguments.out / "compare.parquet")
        _plot(summaries, arguments.out)
        note(f"written to {arguments.out}")
    undelivered = any(summary.undelivered for summary in summaries)
    return ExitCode.VIOLATED if undelivered else ExitCode.HOLDS


def _given(value: T | None, default: T) -> T:
    return default if value is None else value


def _lines(summaries: Sequence[Summary], *, several: bool) -> Iterator[str]:
    def cells(summary: Summary) -> list[str]:
        found = (summary.estimates.get(measure.name) for measure in MEASURES)
        # With one run there is no interval.
        return [figure(each and each.mean, each.error if each and several else None) for each in found]

    for n in dict.fromkeys(summary.processes for summary in summaries):
        yield f"{n} processes"
        here = [summary for summary in summaries if summary.processes == n]
        yield from table([measure.title for measure in MEASURES], rows_of(here, cells))
        for left in here:
            if left.undelivered:
                yield f"{left.protocol}: {left.undelivered:,} messages were never delivered"
        yield ""
    for measure in MEASURES:
        yield f"{measure.title:<12} {measure.meaning}"


def _plot(summaries: Sequence[Summary], out: Path) -> None:
    for measure in MEASURES:
        points: dict[str, list[Point]] = {}
        for summary in summaries:
            if measure.name in summary.estimates:
                point = Point(summary.processes, *summary.estimates[measure.name])
                points.setdefault(summary.protocol, []).append(point)
        if points:
            _draw(measure.meaning, points, out / f"{measure.name}.svg")


def _draw(title: str, points: dict[str, list[Point]], file: Path) -> None:
    file.write_text(draw(title, "processes", [Curve(*each) for each in points.items()]))


def protocol_names(text: str) -> tuple[str, ...]:
    """Names separated by commas, each once."""
    names = tuple(text.split(","))
    for name in names:
        if name not in protocols():
            known = sorted(protocols())
            raise argparse.ArgumentTypeError(
                f"no ordering protocol is called {name!r}; {meant(name, known)}there are: {', '.join(known)}"
            )
    return tuple(dict.fromkeys(names))


def _counts(text: str) -> tuple[int, ...]:
    """One number, several with commas, or START:STOP:STEP with STOP included."""
    try:
        if ":" in text:
            start, stop, step = map(int, text.split(":"))
            counts = tuple(range(start, stop + 1, step))
        else:
            counts = tuple(map(int, text.split(",")))
    except ValueError:
        counts = ()
    if not counts or min(counts) < 2:
        raise argparse.ArgumentTypeError(f"numbers of at least 2, as 10, 10,30 or 10:50:10, not {text!r}")
    return counts


# Trackers.

UNITS = {
    "entries": "entries per message",
    "bits": "encoded bits per message",
    "model_bits": "bits per message, 32-bit counts",
    "null_events": "null events per message",
    "memory": "bytes of state per process",
}


def compare_trackers(arguments: argparse.Namespace) -> None:
    names, processes = arguments.trackers.split(","), arguments.processes or (10,)
    for name in names:
        is_fifo(name)
    with usage_errors():
        settings = Study(
            pattern=_given(arguments.pattern, "unicast"),
            relevant=_given(arguments.relevant, 0.1),
            messages=_given(arguments.messages_each, 200),
            seeds=arguments.seeds,
            seed=arguments.seed,
        )
    pattern = settings.pattern.replace(":", "-")
    drawings = {measure: f"{pattern}-{measure.replace('_', '-')}.svg" for measure in UNITS}
    refuse_earlier(arguments.out, drawings.values(), force=arguments.force)
    runs = len(names) * len(processes) * settings.seeds
    with progress("tracking", runs, "computations") as bar:
        rows = study(settings, names, list(processes), bar.update)
    names = ("protocol", "processes", "fifo")
    told = [{name: getattr(row, name) for name in names} | row.measures for row in rows]
    document = {"study": settings, "rows": told}
    print_answer(arguments, lambda: document, _tracker_lines(settings, rows))
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
        for measure, drawing in drawings.items():
            points: dict[str, list[Point]] = {}
            for row in rows:
                points.setdefault(row.protocol, []).append(Point(row.processes, *row.measures[measure]))
            title = f"{UNITS[measure]}: {settings.pattern}, {settings.relevant:g} relevant"
            _draw(title, points, arguments.out / drawing)


def _tracker_lines(settings: Study, rows: list[Row]) -> Iterator[str]:
    several = settings.seeds > 1
    means = f"{settings.seeds} seeds from {settings.seed}; means per message ± 95 %"
    means = means if several else f"seed {settings.seed}; means per message"
    sends = f"{settings.relevant:g} relevant, {settings.messages} messages a process"
    yield f"pattern {settings.pattern}, {sends}, {means}"

    def spread(row: Row, name: str, digits: int) -> str:
        mean, half_width = row.measures[name]
        return f"{mean:.{digits}f} ±{half_width:.{digits}f}" if several else f"{mean:.{digits}f}"

    cells = []
    for row in rows:
        entries, most = spread(row, "entries", 2), f"{row.measures['most_entries'].mean:.0f}"
        sizes = (spread(row, name, 1) for name in ("bits", "model_bits"))
        events, memory = spread(row, "null_events", 3), f"{row.measures['memory'].mean:,.0f}"
        cells.append((row.protocol, [f"{row.processes}", entries, most, *sizes, events, memory]))
    yield from table(("n", "entries", "max", "bits", "model bits", "null events", "memory, B"), cells)
