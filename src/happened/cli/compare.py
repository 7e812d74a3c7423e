"""`happened compare`: what each protocol costs on the same schedule."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..core.errors import LocalProtocolError
from ..core.exit_codes import ExitCode
from ..experiments.compare import MEASURES, Comparison, Estimate, Summary, compare, summarise, write_rows
from ..ordering import protocols
from ..report.chart import Line, Point, draw
from ..sim.network import DELAYS, Network, parse_delay
from ..sim.workload import PATTERNS, Workload
from .output import add_force, refuse_earlier
from .terminal import local_path, note, print_json, progress
from .terrain_option import add_topology, read_terrain

DESCRIPTION = """\
Feed the same schedule to every protocol: the same sends at the same times, and the same delays for what a
sender transmits to a destination itself. Tell what each carries, adds, holds back, delays and computes, with
95 % confidence intervals over the seeds. A protocol asked for something outside its assumptions is listed
with the reason instead of figures.
"""

EPILOG = f"""\
example:
  happened compare --protocols ks,rst,ses --processes 10:50:10 --pattern multicast --delay exp:0.1 --out DIR

patterns   {", ".join(PATTERNS)}
delays     {", ".join(DELAYS)} (seconds)

DIR gets compare.parquet (one row per run) and a plot of each measure as SVG.
"""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "compare",
        help="what each protocol costs on the same schedule",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--protocols",
        type=protocol_names,
        default=tuple(protocols()),
        metavar="A,B",
        help="default: all there are",
    )
    add("--processes", type=_counts, metavar="N", help="as 10, 10,30 or 10:50:10; default: 10")
    add_topology(parser, "the network to send over; its processes are those that are compared")
    add(
        "--messages", type=int, default=20_000, metavar="M", help="sent in all, per run; default: %(default)s"
    )
    add(
        "--seeds",
        type=int,
        default=5,
        metavar="K",
        help="runs of each kind, seeds 1 to K; default: %(default)s",
    )
    add("--pattern", default="multicast", help="who is sent to (below); default: %(default)s")
    add(
        "--interval",
        type=float,
        default=0.1,
        metavar="MEAN",
        help="seconds between sends; default: %(default)s",
    )
    add("--delay", default="exp:0.1", help="of a packet (below); default: %(default)s")
    add("--fifo", action="store_true", help="packets of one channel arrive in the order sent")
    add("--out", type=local_path, metavar="DIR", help="write the table and the plots here")
    add_force(parser)
    add("--json", action="store_true", help="the summary as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    terrain = read_terrain(arguments.topology)
    processes = arguments.processes or ((10,) if terrain is None else (terrain.applications,))
    try:
        comparison = Comparison(
            arguments.protocols,
            processes,
            tuple(range(1, arguments.seeds + 1)),
            arguments.messages,
            Workload(arguments.pattern, arguments.interval),
            Network(parse_delay(arguments.delay), arguments.fifo),
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
    spread = f" ±{estimate.error:,.{digits}f}" if several else ""  # one run says nothing of the next
    return f"{estimate.mean:,.{digits}f}{spread}"


def _plot(summaries: Sequence[Summary], out: Path) -> None:
    names = dict.fromkeys(summary.protocol for summary in summaries)
    for measure in MEASURES:
        lines = [
            Line(
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
            known = ", ".join(sorted(protocols()))
            raise argparse.ArgumentTypeError(f"no ordering protocol is called {name!r}; there are: {known}")
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
