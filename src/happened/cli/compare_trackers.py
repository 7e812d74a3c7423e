"""`happened compare --trackers`: what timestamping relevant events costs, by protocol and processes."""

import argparse
from pathlib import Path
from typing import Any

from ..core.errors import LocalProtocolError
from ..core.exit_codes import ExitCode
from ..experiments.tracking_study import MEASURES, Row, Study, is_fifo, study
from ..report.chart import Curve, Point, draw
from .output import refuse_earlier
from .terminal import print_json, progress

PLOTTED = ("entries", "bits", "model_bits", "null_events", "memory")
UNITS = {
    "entries": "entries per message",
    "bits": "encoded bits per message",
    "model_bits": "bits per message, 32-bit counts",
    "null_events": "null events per message",
    "memory": "bytes of state per process",
}


def compare_trackers(arguments: argparse.Namespace) -> int:
    names, processes = arguments.trackers.split(","), arguments.processes or (10,)
    for name in names:
        is_fifo(name)
    try:
        settings = Study(
            pattern=arguments.pattern or "unicast",
            relevant=0.1 if arguments.relevant is None else arguments.relevant,
            messages=200 if arguments.messages_each is None else arguments.messages_each,
            seeds=arguments.seeds,
            seed=arguments.seed,
        )
    except ValueError as error:
        raise LocalProtocolError(str(error)) from error
    drawings = [_drawing(settings, measure) for measure in PLOTTED]
    refuse_earlier(arguments.out, drawings, force=arguments.force)
    runs = len(names) * len(processes) * settings.seeds
    with progress("tracking", runs, "computations") as bar:
        rows = study(settings, names, list(processes), bar.update)
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
        picture = draw(title, "processes", [Curve(*each) for each in series.items()])
        (out / _drawing(settings, measure)).write_text(picture)


def _drawing(settings: Study, measure: str) -> str:
    return f"{settings.pattern.replace(':', '-')}-{measure.replace('_', '-')}.svg"
