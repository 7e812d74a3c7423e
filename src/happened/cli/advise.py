"""Replay a recorded trace under every protocol: the same sends, the same arrivals. Prints what each protocol
would have carried, added and delayed on these messages, fewest bytes first, and which of their assumptions
the trace violates. Deliveries count as arrivals where no arrival was recorded. Then does the same for
trackers: entries and bits on each message, and null events.
"""

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .. import trace
from ..core.errors import LocalProtocolError
from ..core.exit_codes import ExitCode
from ..experiments.advise import Advice, Finding, Optimality, advise, write_advice, write_tracker_advice
from ..experiments.trackers import TRACKERS, TrackerFinding
from ..ordering import protocols
from ..trace.store import AnyPath
from ..tracking import create
from .compare import protocol_names
from .options import add_output, add_where, option, stored_path
from .output import refuse_earlier
from .parser import Parser
from .startup import spark_session
from .terminal import figure, note, print_answer, progress, rows_of, saying, table

IN_PROCESS_EVENTS = 50_000
"""Up to this size, a replay in this process takes about as long as starting Spark."""

EPILOG = f"""\
examples:
  happened advise run                                   all protocols on what `simulate --out run` left
  happened advise run --protocols ks,rst,bss --json
  happened advise run --master spark://host:7077 --out /shared/advice

More than {IN_PROCESS_EVENTS:,} events are replayed on Spark, a task per protocol and batch of computations.
DIR gets advice.parquet, a row per protocol, and trackers.parquet. On a cluster every executor must reach it.

exit codes: 0 done, 1 ks did not carry the necessary information, 2 bad usage or input, 3 nothing was sent
"""


def add_arguments(parser: Parser) -> None:
    about = "a trace of `simulate` or `import`, Parquet or JSON lines"
    option(parser, "trace TRACE", about, type=stored_path)
    option(parser, "--protocols", "without it all there are", type=protocol_names)
    about = f"none: no trackers (default: {','.join(TRACKERS)})"
    option(parser, "--trackers", about, type=_tracker_names)
    option(parser, "--topology", "processes of the trace are found by their names")
    add_where(parser, f"{IN_PROCESS_EVENTS:,} events")
    add_output(parser, "a directory: the tables")
    option(parser, "--json")


def run(arguments: argparse.Namespace) -> int:
    out: Path | None = arguments.out
    names = arguments.protocols or tuple(protocols())
    trackers = TRACKERS if arguments.trackers is None else arguments.trackers
    refuse_earlier(out, ["advice.parquet", "trackers.parquet"], force=arguments.force)
    terrain = arguments.topology
    if arguments.master is None and (arguments.local or trace.count(arguments.trace) <= IN_PROCESS_EVENTS):
        with progress("replaying", len(names) + len(trackers), "protocols") as bar:
            table = trace.read(arguments.trace)
            advice = advise(table, names, bar.update, trackers, terrain)
    else:
        if terrain is not None:
            raise LocalProtocolError("--topology needs --local: such a trace is replayed in this process")
        advice = _on_spark(arguments.trace, names, trackers, arguments.master, out)
    print_answer(arguments, lambda: _document(str(arguments.trace), advice), _report(advice))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_advice(advice, out / "advice.parquet")
        write_tracker_advice(advice, out / "trackers.parquet")
        note(f"written to {out}")
    if advice.optimality is not None and not advice.optimality.holds:
        return ExitCode.VIOLATED
    return ExitCode.HOLDS if advice.survey["messages"] else ExitCode.UNDECIDED


def _tracker_names(text: str) -> tuple[str, ...]:
    names = () if text == "none" else tuple(text.split(","))
    for name in names:
        try:
            create(name, 0, 2)
        except LocalProtocolError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    return names


def _on_spark(
    path: AnyPath, names: tuple[str, ...], trackers: tuple[str, ...], master: str | None, out: Path | None
) -> Advice:
    from ..experiments.advise import advise_on_spark

    if not isinstance(path, Path):
        raise LocalProtocolError(f"{path}: Spark replays local traces only; copy it here, or give --local")
    if out is None and master is not None and not master.startswith("local"):
        raise LocalProtocolError(f"{master} needs --out DIR, a directory that all its executors reach")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    note("--local replays the trace in this process instead")
    with (
        spark_session(master, "replaying") as spark,
        tempfile.TemporaryDirectory(prefix=".advise-", dir=out) as scratch,
        saying() as say,
    ):
        parts = Path(scratch) / "parts"
        return advise_on_spark(spark, path, names, parts, progress=say, trackers=trackers)


def _report(advice: Advice) -> Iterator[str]:
    found = advice.survey
    if not found["messages"]:
        yield "nothing to advise on: the trace has no send with a destination"
        return
    where = f"computation{'s' if found['computations'] > 1 else ''} of up to {found['processes']:,} processes"
    sent = f"{found['messages']:,} messages to {found['copies']:,} destinations"
    yield f"{sent} in {found['computations']:,} {where}\n"
    for assumption in advice.assumptions:
        yield f"  {assumption.name:<17} {'holds ' if assumption.holds else 'BROKEN'}  {assumption.found}"
    yield ""
    yield from (f"note: {said}" for said in advice.notes)
    if advice.notes:
        yield ""
    yield from (*table(COLUMNS, rows_of(advice.findings, _cells)), "", LEGEND)
    if advice.trackers:
        events = max(found.relevant_events or 0 for found in advice.trackers)
        yield f"\ntrackers on {events:,} relevant events, per message and destination; null events in all"
        yield from table(TRACKER_COLUMNS, rows_of(advice.trackers, _tracker_cells))
    if advice.optimality is not None:
        yield f"\n{_optimality(advice.optimality)}"


COLUMNS = ("promises", "entries", "bytes", "model bytes", "added msgs", "delay", "delayed", "held at end")
LEGEND = """\
entries, bytes   control information per message and destination, as counted by the protocol and as encoded
model bytes      the same with 4-byte clocks and 2-byte ids
added msgs       transmissions per message beyond the first-hand ones; they take no time here
delay            mean time (or events of the receiver) between arrival and delivery
delayed          deliveries that waited
held at end      recorded to have arrived and never delivered, here or still at its sender"""


def _cells(found: Finding) -> list[str]:
    delay = f"{figure(found.added_events)} ev"
    if found.added_delay is not None:
        delay = f"{figure(found.added_delay * 1e3)} ms"
    sizes = (found.entries, found.control_bytes, found.model_bytes, found.added)
    return [found.order, *map(figure, sizes), delay, f"{found.delayed:,}", f"{found.held_at_end:,}"]


TRACKER_COLUMNS = ("entries", "max", "bits", "model bits", "null events", "tells")


def _tracker_cells(found: TrackerFinding) -> list[str]:
    sizes = (figure(found.entries), f"{found.most_entries:,}", figure(found.bits))
    return [*sizes, figure(found.model_bits), f"{found.null_events:,}", found.tells]


def _optimality(found: Optimality) -> str:
    if found.holds:
        return f"optimal: ks carried = necessary, {found.carried:,} units on {found.edges:,} edges"
    return (
        f"NOT OPTIMAL: ks carried {found.carried:,} units and {found.necessary:,} are necessary; "
        f"{found.differing:,} of {found.edges:,} edges differ. This is a fault of happened: please report it"
    )


def _document(path: str, advice: Advice) -> dict[str, Any]:
    optimality, found = advice.optimality, advice._asdict()
    holds = None if optimality is None else optimality._asdict() | {"holds": optimality.holds}
    protocols = found.pop("findings")
    return found | {"trace": path, "protocols": protocols, "optimality": holds}
