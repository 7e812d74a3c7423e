"""Run a protocol in virtual time: processes send at random times, and a network delays, reorders or
duplicates their messages. The same seed and parameters give the same run, bit for bit. With --out, the
events are recorded as a trace that `happened check` judges, with a ledger of every transmission's control
information.
"""

import argparse
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from ..core.exit_codes import ExitCode
from ..ordering import DEFAULT, protocols
from ..sim.network import Network, parse_delay, parse_partition
from ..sim.run import MOST_TOLD, Parameters, simulate
from ..sim.scenes import story_text
from ..sim.workload import Workload, parse_pattern
from .options import add_output, given, option, usage_errors
from .parser import Parser
from .terminal import print_answer, progress

T = TypeVar("T")

SHOWN = 10  # undelivered messages that are printed; --json has them all

EPILOG = """\
example:
  happened simulate --processes 10 --messages 10000 --pattern multicast --delay exp:0.1 --seed 1 --out run

`happened help patterns` lists patterns and delays, `happened help protocols` protocols and trackers.
DIR gets trace/part-*.parquet, ledger/transmissions.parquet and summary.json; with --story, story.html too.
"""
STORY = (
    f"write a story of each step, as `happened play` does, for at most {MOST_TOLD} messages; with --tracker, "
    "about the tracker"
)


def add_arguments(parser: Parser) -> None:
    option(parser, "--protocol", choices=sorted(protocols()), default=DEFAULT)
    option(parser, "--processes", "default: 10, or those of the topology", type=int)
    option(parser, "--topology", "every packet crosses its links, hop by hop")
    option(parser, "--messages", default=10_000)
    option(parser, "--pattern", type=_pattern, default="multicast")
    option(parser, "--interval", "exponential", type=_or_usage(float), default=0.1)
    option(parser, "--delay", type=_or_usage(parse_delay), default="exp:0.1")
    option(parser, "--fifo")
    option(parser, "--duplicate P", "probability that a packet arrives twice", type=float, default=0.0)
    about = "cut these processes off from the rest for a while; may be repeated"
    many = {"type": _or_usage(parse_partition), "action": "append", "default": []}
    option(parser, "--partition START:END:p0,p1", about, **many)
    option(parser, "--tracker")
    option(parser, "--relevant", "with --tracker", default=0.1)
    option(parser, "--seed", "without it drawn, and printed")
    option(parser, "--story", STORY)
    add_output(parser, "a directory: trace, ledger and summary")
    option(parser, "--units", "record the units each message carries, for `check --necessary`")
    option(parser, "--json")


def run(arguments: argparse.Namespace) -> int:
    terrain = arguments.topology
    processes = arguments.processes
    if processes is None:
        processes = 10 if terrain is None else terrain.applications
    with usage_errors():
        parameters = Parameters(
            seed=secrets.randbits(32) if arguments.seed is None else arguments.seed,
            **given(arguments, "protocol messages tracker relevant"),
            processes=processes,
            workload=Workload(arguments.pattern, arguments.interval),
            network=Network(arguments.delay, arguments.fifo, arguments.duplicate, tuple(arguments.partition)),
            terrain=terrain,
        )
    with progress("simulating", parameters.messages, "messages") as bar:
        summary = simulate(
            parameters,
            arguments.out,
            **given(arguments, "units force story"),
            progress=bar.update,
        )
    if arguments.story and arguments.out is not None:
        from ..view.story_page import story_page

        (arguments.out / "story.html").write_text(story_page(summary["story"]), encoding="utf-8")
    print_answer(arguments, lambda: summary, _lines(summary, arguments.out))
    return ExitCode.VIOLATED if summary["undelivered"] else ExitCode.HOLDS


_SPREADS = (
    ("entries", "entries", 0),
    ("units", "units", 0),
    ("control_bytes", "control bytes", 0),
    ("model_bytes", "model bytes", 0),
    ("log_units", "log units", 0),
    ("held", "held messages", 0),
    ("wait", "waiting, s", 3),
    ("late", "added delay, s", 3),
)
_TRACKING = (("tracking_entries", "tracker entries", 0), ("tracking_bytes", "tracker bytes", 0))


def _lines(summary: dict[str, Any], out: Path | None) -> Iterator[str]:
    if "story" in summary:
        yield from (*story_text(summary["story"]), "")
    ledger, parameters = summary["ledger"], summary["parameters"]
    yield f"{'seed':<16} {parameters['seed']:>12}"
    yield f"{'virtual time':<16} {summary['virtual_seconds']:>12,.3f} s"
    for name in ("messages", "transmissions", "added", "arrivals", "deliveries"):
        yield f"{name:<16} {ledger[name]:>12,}"
    yield f"{'undelivered':<16} {len(summary['undelivered']):>12,}"
    yield f"\n{'':<16} {'mean':>12} {'p99':>12} {'max':>12}"
    for name, title, digits in _SPREADS if parameters["tracker"] is None else (*_SPREADS, *_TRACKING):
        if (spread := ledger[name]) is not None:
            p99 = f"{spread['p99']:,.3f}" if "p99" in spread else ""
            yield f"{title:<16} {spread['mean']:>12,.3f} {p99:>12} {spread['max']:>12,.{digits}f}"
    for left in summary["undelivered"][:SHOWN]:
        reason = ", ".join(left["waits_for"]) or "no reason its machine gives"
        yield f"{left['process']} never delivered {left['message']}: waits for {reason}"
    if out is not None:
        yield f"\nrecorded in {out}; judge it with: happened check {out}"


def _or_usage(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Turn a parser's error into a usage error of argparse, with the same text."""

    def parse_or_complain(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse_or_complain


def _pattern(text: str) -> str:
    _or_usage(parse_pattern)(text)
    return text
