"""`happened track`: what timestamping relevant events costs, by protocol, pattern and number of processes."""

import argparse
import re
from pathlib import Path
from typing import Any

from ..core.errors import LocalProtocolError
from ..core.exit_codes import ExitCode
from ..report.chart import Line, Point, draw
from ..sim.tracking_study import MEASURES, Row, Study, is_fifo, study
from ..sim.workload import PATTERNS, parse_pattern
from ..tracking import protocols
from .output import add_force, refuse_earlier
from .terminal import local_path, print_json, progress

DESCRIPTION = """\
Run the same random computations under several trackers and compare what their messages carry: entries
(event identifiers), bits as encoded, bits with 32-bit counts and a bitmap, null events
and memory (bytes of a tracker's snapshot), as means per message with 95 % confidence intervals.
"""

EPILOG = f"""\
example:
  happened track --protocols vector,p1,p1-prime,p2:4,p3,p3-reduced --processes 10:50:10 --relevant 0.2

protocols  {", ".join(protocols())}
           p2:4 is p2 with at most 4 entries per message; those that need FIFO links get them
patterns   uniform (one other process), {", ".join(PATTERNS)}
"""

PLOTTED = ("entries", "bits", "model_bits", "null_events", "memory")
UNITS = {
    "entries": "entries per message",
    "bits": "encoded bits per message",
    "model_bits": "bits per message, 32-bit counts",
    "null_events": "null events per message",
    "memory": "bytes of state per process",
}


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "track",
        help="what timestamping relevant events costs",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--protocols", default="vector,p1,p3,p3-reduced", metavar="NAME,…", help="default: %(default)s")
    add(
        "--processes",
        type=_range,
        default=[10],
        metavar="N|A:B:STEP",
        help="a number, or from A to B in steps; default: 10",
    )
    add("--pattern", type=_pattern, default="uniform", help="who sends to whom (below); default: %(default)s")
    add(
        "--relevant",
        type=float,
        default=0.1,
        metavar="P",
        help="probability of a relevant event after a send or a delivery; default: %(default)s",
    )
    add("--messages", type=int, default=200, metavar="M", help="per process; default: %(default)s")
    add("--seeds", type=int, default=5, metavar="K", help="computations per point; default: %(default)s")
    add("--seed", type=int, default=1, metavar="S", help="of the first computation; default: %(default)s")
    add("--out", type=local_path, metavar="DIR", help="draw the curves here, as SVG")
    add_force(parser)
    add("--json", action="store_true", help="the result as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    names = arguments.protocols.split(",")
    for name in names:
        is_fifo(name)
    try:
        settings = Study(
            pattern="unicast" if arguments.pattern == "uniform" else arguments.pattern,
            relevant=arguments.relevant,
            messages=arguments.messages,
            seeds=arguments.seeds,
            seed=arguments.seed,
        )
    except ValueError as error:
        raise LocalProtocolError(str(error)) from error
    drawings = [_drawing(settings, measure) for measure in PLOTTED]
    refuse_earlier(arguments.out, drawings, force=arguments.force)
    runs = len(names) * len(arguments.processes) * settings.seeds
    with progress("tracking", runs, "computations") as bar:
        rows = study(settings, names, arguments.processes, bar.update)
    if arguments.json:
        print_json(_as_json(settings, rows))
    else:
        _print(settings, rows)
    if arguments.out is not None:
        _draw(settings, rows, arguments.out)
    return ExitCode.HOLDS


def _print(settings: Study, rows: list[Row]) -> None:
    print(
        f"pattern {settings.pattern}, {settings.relevant:g} relevant, {settings.messages} messages a "
        f"process, {_seeds(settings)}"
    )
    print(
        f"{'protocol':<22} {'n':>4} {'entries':>15} {'max':>5} {'bits':>16} {'model bits':>16} "
        f"{'null events':>16} {'memory, B':>10}"
    )
    several = settings.seeds > 1
    for row in rows:
        m = row.measures
        print(
            f"{row.protocol:<22} {row.processes:>4} {_spread(m['entries'], 2, several):>15} "
            f"{m['most_entries'].mean:>5.0f} {_spread(m['bits'], 1, several):>16} "
            f"{_spread(m['model_bits'], 1, several):>16} {_spread(m['null_events'], 3, several):>16} "
            f"{m['memory'].mean:>10,.0f}"
        )


def _seeds(settings: Study) -> str:
    if settings.seeds == 1:
        return f"seed {settings.seed}; means per message"
    return f"{settings.seeds} seeds from {settings.seed}; means per message ± 95 %"


def _spread(estimate: tuple[float, float], digits: int, several: bool) -> str:
    mean, half_width = estimate
    return f"{mean:.{digits}f} ±{half_width:.{digits}f}" if several else f"{mean:.{digits}f}"


def _as_json(settings: Study, rows: list[Row]) -> dict[str, Any]:
    return {
        "study": settings.as_json(),
        "rows": [
            {
                "protocol": row.protocol,
                "processes": row.processes,
                "fifo": row.fifo,
                **{name: row.measures[name]._asdict() for name in MEASURES},
            }
            for row in rows
        ],
    }


def _draw(settings: Study, rows: list[Row], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for measure in PLOTTED:
        series: dict[str, list[Point]] = {}
        for row in rows:
            mean, half_width = row.measures[measure]
            series.setdefault(row.protocol, []).append(Point(row.processes, mean, half_width))
        title = f"{UNITS[measure]}: {settings.pattern}, {settings.relevant:g} relevant"
        picture = draw(title, "processes", [Line(*each) for each in series.items()])
        (out / _drawing(settings, measure)).write_text(picture)


def _drawing(settings: Study, measure: str) -> str:
    return f"{settings.pattern.replace(':', '-')}-{measure.replace('_', '-')}.svg"


def _range(text: str) -> list[int]:
    if not re.fullmatch(r"\d{1,6}(:\d{1,6}:\d{1,6})?", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"a number such as 10, or a range such as 10:50:10, not {text!r}")
    first, *rest = map(int, text.split(":"))
    last, step = rest or (first, 1)
    if first < 2 or last < first or step < 1:
        raise argparse.ArgumentTypeError(f"at least two processes, going up: {text!r} does not")
    return list(range(first, last + 1, step))


def _pattern(text: str) -> str:
    if text != "uniform":
        try:
            parse_pattern(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    return text
