"""`happened compare`: what each protocol costs on the same schedule."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..core.errors import LocalProtocolError
from ..core.exit_codes import ExitCode
from ..experiments.compare import MEASURES, Comparison, Summary, compare, summarise, write_rows
from ..experiments.estimates import Estimate
from ..ordering import protocols
from ..report.chart import Curve, Point, draw
from ..sim.network import Network, parse_delay
from ..sim.workload import Workload
from .options import add_output, option
from .output import refuse_earlier
from .parser import Parser, meant
from .terminal import note, print_json, progress
from .terrain_option import read_terrain

DESCRIPTION = """\
Feed the same schedule to every protocol: the same sends at the same times, and the same delays for what a
sender transmits to a destination itself. Prints what each carries, adds, holds back, delays and computes,
with 95 % confidence intervals over the seeds. A protocol asked for something outside its assumptions is
listed with the reason instead of figures.

With --trackers, run the same random computations under several trackers and compare what their messages
carry: entries (event identifiers), bits as encoded, bits with 32-bit counts and a bitmap, null events and
memory (bytes of a tracker's snapshot), as means per message with 95 % confidence intervals. Trackers that
need FIFO links get them; `happened help protocols` lists them.
"""

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
    parser.add_argument(
        "--seeds",
        type=int,
        default=5,
        metavar="K",
        help="runs of each kind, with seeds that count up (default: 5)",
    )
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
    tracking.add_argument(
        "--messages-each", type=int, metavar="M", help="messages sent by each process (default: 200)"
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.trackers is not None:
        _refuse(arguments, ORDERING, "is for ordering protocols: leave it out with --trackers")
        from .compare_trackers import compare_trackers

        return compare_trackers(arguments)
    _refuse(arguments, TRACKING, "is for trackers: give --trackers, or leave it out")
    terrain = read_terrain(arguments.topology)
    processes = arguments.processes or ((10,) if terrain is None else (terrain.applications,))
    try:
        comparison = Comparison(
            arguments.protocols or tuple(protocols()),
            processes,
            tuple(range(arguments.seed, arguments.seed + arguments.seeds)),
            _given(arguments.messages, 20_000),
            Workload(_given(arguments.pattern, "multicast"), _given(arguments.interval, 0.1)),
            Network(parse_delay(_given(arguments.delay, "exp:0.1")), arguments.fifo),
            terrain,
        )
    except ValueError as error:
        raise LocalProtocolError(str(error)) from error
    refuse_earlier(arguments.out, ["compare.parquet"], force=arguments.force)
    with progress("comparing", comparison.runs * comparison.messages, "messages") as bar:
        rows = list(compare(comparison, progress=bar.update))
    summaries = summarise(rows)
    if arguments.json:
        print_json([_as_json(summary) for summary in summaries])
    else:
        _print(summaries, several=arguments.seeds > 1)
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
        write_rows(rows, arguments.out / "compare.parquet")
        _plot(summaries, arguments.out)
        note(f"written to {arguments.out}")
    undelivered = any(summary.undelivered for summary in summaries)
    return ExitCode.VIOLATED if undelivered else ExitCode.HOLDS


def _given(value: T | None, default: T) -> T:
    return default if value is None else value


def _refuse(arguments: argparse.Namespace, names: Sequence[str], reason: str) -> None:
    for name in names:
        if getattr(arguments, name) not in (None, False):
            raise LocalProtocolError(f"--{name.replace('_', '-')} {reason}")


def _as_json(summary: Summary) -> dict[str, Any]:
    estimates = {name: {"mean": e.mean, "error": e.error} for name, e in summary.estimates.items()}
    return {**summary._asdict(), "estimates": estimates}


def _print(summaries: Sequence[Summary], *, several: bool) -> None:
    wide = max(len(summary.protocol) for summary in summaries)
    for n in dict.fromkeys(summary.processes for summary in summaries):
        print(f"{n} processes")
        print(" " * wide, *(f"{measure.title:>16}" for measure in MEASURES))
        for summary in summaries:
            if summary.processes != n:
                continue
            if summary.not_applicable is not None:
                print(f"{summary.protocol:<{wide}} not applicable: {summary.not_applicable}")
                continue
            cells = (_cell(summary.estimates.get(measure.name), several) for measure in MEASURES)
            print(f"{summary.protocol:<{wide}}", *(f"{cell:>16}" for cell in cells))
            if summary.undelivered:
                print(f"{'':<{wide}} {summary.undelivered:,} messages were never delivered")
        print()
    for measure in MEASURES:
        print(f"{measure.title:<12} {measure.meaning}")


def _cell(estimate: Estimate | None, several: bool) -> str:
    if estimate is None:
        return "-"
    digits = 0 if estimate.mean >= 1000 else 1 if estimate.mean >= 10 else 2
    spread = f" ±{estimate.error:,.{digits}f}" if several else ""  # with one run there is no interval
    return f"{estimate.mean:,.{digits}f}{spread}"


def _plot(summaries: Sequence[Summary], out: Path) -> None:
    names = dict.fromkeys(summary.protocol for summary in summaries)
    for measure in MEASURES:
        lines = [
            Curve(
                name,
                [
                    Point(summary.processes, *summary.estimates[measure.name])
                    for summary in summaries
                    if summary.protocol == name and measure.name in summary.estimates
                ],
            )
            for name in names
        ]
        if any(line.points for line in lines):
            (out / f"{measure.name}.svg").write_text(draw(measure.meaning, "processes", lines))


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
