"""`happened stream`: what caused what in a trace that is still being written."""

import argparse
import logging
import signal
from collections.abc import Mapping
from typing import Any

from ..causality.live import Rules
from ..causality.questions.order import QUESTION as ORDER
from ..core.errors import CausalityError, LocalProtocolError, TraceFormatError
from ..trace.location import was_complete
from ..trace.store import AnyPath
from . import stream_spans
from .analyzing import tell
from .options import add_completeness, option
from .parser import Parser
from .stream_spans import OTLP_SETTLE, seconds
from .terminal import note, positive, stored_path

LOOKING = 0.5  # seconds until a signal is noticed
SETTLE = 600
STARTS = 3
"""How often a query is started again if Spark did not wait for its Python process."""

DESCRIPTION = """\
Follow a trace while it is being written, on Spark Structured Streaming: exact timestamps, immediate
predecessors and early deliveries with witnesses, as tables that grow with every batch. An event is held until
its causes have arrived. Interrupt or kill it, and start it again with the same --out: it resumes where it
was.

With --otlp, receive spans from OpenTelemetry's exporters and collectors instead: early deliveries, critical
paths and skew of the last minutes as tables and on a page, while the system runs.
"""
EPILOG = """\
examples:
  happened stream run --out live                 a finished trace, to its end
  happened stream nodes/trace --out live --follow --every 2     nodes that are running; ends with Ctrl-C
  happened stream --otlp --out live              spans, over gRPC on 4317 and HTTP on 4318; live/page.html

exit codes, as of `happened check`: 0 causal order holds, 1 violated, 2 bad input or parts of it quarantined,
3 undecided. With --follow, Ctrl-C or SIGTERM ends it, and the exit code is about the results so far.
"""


OF_STATE = ("arrived", "ended", "live", "state_bytes")
"""Totals that are about the stream and not about the trace."""


def add_arguments(parser: Parser) -> None:
    add = parser.add_argument
    add(
        "trace",
        type=stored_path,
        nargs="?",
        metavar="TRACE",
        help="a directory of parts or JSON lines, or a file of those",
    )
    option(
        parser, "--out", "a directory of tables; an earlier one is continued", type=stored_path, required=True
    )
    add(
        "--follow",
        action="store_true",
        help="wait for more events, until interrupted (default: end with the present content)",
    )
    add(
        "--every",
        type=float,
        default=1.0,
        metavar="S",
        help="with --follow or --otlp, seconds between batches",
    )
    option(parser, "--settle", f"(default: {SETTLE}; with --otlp, {OTLP_SETTLE:g})", type=seconds)
    add("--batch-bytes", type=positive, metavar="N", help="about this many bytes of files in a batch")
    add("--receives", action="store_true", help="use receives as deliveries, of which the trace has none")
    add("--relevant-only", action="store_true", help="predecessors among events marked relevant only")
    add_completeness(parser)
    option(parser, "--master", "without it on local[*]")
    option(parser, "--json")
    stream_spans.add_options(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.otlp:
        return stream_spans.run(arguments)
    if arguments.trace is None:
        raise LocalProtocolError("name a trace to follow, or receive spans with --otlp")
    if not arguments.trace.exists():
        raise TraceFormatError("no such file or directory", file=str(arguments.trace))
    if arguments.follow and arguments.complete:
        raise LocalProtocolError("a trace that still grows is not complete: drop --follow or --complete")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    from ..spark.live.live_job import follow, has_not_begun
    from ..spark.live.trace_source import TraceTail
    from ..spark.session import session

    rules = Rules(
        retire=int((arguments.settle or SETTLE) * 1000),
        receives=arguments.receives,
        relevant_only=arguments.relevant_only,
    )
    out: AnyPath = arguments.out
    spark = session(arguments.master, brief=not arguments.follow, streams=True)
    shown = _Shown(out)
    for left in reversed(range(STARTS)):
        query = follow(
            spark,
            arguments.trace,
            out,
            checkpoint=str(out / "checkpoint"),
            rules=rules,
            most_bytes=arguments.batch_bytes,
            once=not arguments.follow,
            seconds=arguments.every,
        )
        try:
            interrupted = _wait(query, shown)
            break
        except CausalityError as error:
            if not left or not has_not_begun(error):
                raise
            note("the machine is busy: Spark's Python process did not start in time, and is started again")
    if interrupted and not arguments.follow:  # held events wait for what was not read
        raise KeyboardInterrupt
    return tell(
        _summary(shown.totals(), arguments, TraceTail(str(arguments.trace)).root),
        arguments,
        f"tables are in {out}; look at the trace with: happened view {arguments.trace} --serve",
    )


class _Shown:
    """Reports each batch that was committed since the command was started."""

    def __init__(self, out: AnyPath) -> None:
        from ..spark.live import live_job

        self._job, self._out = live_job, out
        self._seen = len(live_job.manifests(out))

    def look(self) -> None:
        found = self._job.manifests(self._out)
        for path in found[self._seen :]:
            note(self._job.progress_of(path).line())
        self._seen = len(found)

    def totals(self) -> dict[str, int]:
        manifest = self._job.last_manifest(self._out)
        return {} if manifest is None else manifest["totals"]


def _wait(query: Any, shown: _Shown) -> bool:
    """Wait until the query ends; an interrupt stops it after the current batch. Whether one came.

    Signals are only noted: this thread may be waiting for an answer of Spark's, and asking something else
    would mix up the two. PySpark's own handler of interrupts would cancel the batch.
    """
    interrupted = False

    def note_it(*_: object) -> None:
        nonlocal interrupted
        interrupted = True

    before = {number: signal.signal(number, note_it) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        while not query.awaitTermination(LOOKING):
            shown.look()
            if interrupted:
                query.stop()
                break
        shown.look()
    except Exception as error:  # an error in a batch, inside a page of Java's
        raise CausalityError(_cause(str(error))) from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return interrupted


def _cause(told: str) -> str:
    """Our own error message inside Spark's, if there is one."""
    for line in told.splitlines():
        for name in ("TraceFormatError: ", "CausalityError: "):
            if name in line:
                return line.split(name, 1)[1].strip()
    return told.splitlines()[0]


def _summary(totals: Mapping[str, int], arguments: argparse.Namespace, root: AnyPath) -> dict[str, Any]:
    """The totals so far, in the form of `happened analyze --only order`; the judgement depends on them."""
    complete = was_complete(root) if arguments.complete is None else arguments.complete
    judged = dict.fromkeys((name for name in ORDER.totals if name != "total_violations"), 0)
    kept = {name: count for name, count in totals.items() if name not in OF_STATE}
    return {"complete": complete and not arguments.follow, **judged, "quarantined": 0, **kept}
