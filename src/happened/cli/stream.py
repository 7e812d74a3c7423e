"""Follow a trace while it is being written, on Spark Structured Streaming: exact timestamps, immediate
predecessors and early deliveries with witnesses, as tables that grow with every batch. An event is held until
its causes have arrived. Interrupt or kill it, and start it again with the same --out: it resumes where it
was.

With --otlp, receive spans from OpenTelemetry's exporters and collectors instead: early deliveries, critical
paths and skew of the last minutes as tables and on a page, while the system runs.
"""

import argparse
import logging
from collections.abc import Mapping
from typing import Any

from ..causality.live import Rules
from ..causality.questions.order import QUESTION as ORDER
from ..core.errors import CausalityError, LocalProtocolError
from ..trace.location import was_complete
from ..trace.store import AnyPath
from . import stream_spans
from .analyzing import refuse_absent, tell
from .options import add_completeness, given, option, positive, stored_path
from .parser import Parser
from .stream_spans import OTLP_SETTLE, ended_by_signal, seconds
from .terminal import note

LOOKING = 0.5  # seconds until a signal is noticed
SETTLE = 600
STARTS = 3
"""How often a query is started again if Spark did not wait for its Python process."""

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
    about = "a directory of parts or JSON lines, or a file of those"
    option(parser, "trace TRACE", about, type=stored_path, nargs="?")
    about = "a directory of tables; an earlier one is continued"
    option(parser, "--out", about, type=stored_path, required=True)
    about = "wait for more events, until interrupted (default: end with the present content)"
    option(parser, "--follow", about)
    option(parser, "--every S", "with --follow or --otlp, seconds between batches", type=float, default=1.0)
    option(parser, "--settle", f"(default: {SETTLE}; with --otlp, {OTLP_SETTLE:g})", type=seconds)
    option(parser, "--batch-bytes N", "about this many bytes of files in a batch", type=positive)
    option(parser, "--receives", "use receives as deliveries, of which the trace has none")
    option(parser, "--relevant-only", "predecessors among events marked relevant only")
    add_completeness(parser)
    option(parser, "--master", "without it on local[*]")
    option(parser, "--json")
    stream_spans.add_options(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.otlp:
        return stream_spans.run(arguments)
    if arguments.trace is None:
        raise LocalProtocolError("name a trace to follow, or receive spans with --otlp")
    refuse_absent(arguments.trace)
    if arguments.follow and arguments.complete:
        raise LocalProtocolError("a trace that still grows is not complete: drop --follow or --complete")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    from ..spark.live.live_job import follow, has_not_begun
    from ..spark.live.trace_source import TraceTail
    from ..spark.session import session

    retire = int((arguments.settle or SETTLE) * 1000)
    rules = Rules(retire=retire, **given(arguments, "receives relevant_only"))
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
    interrupts: list[bool] = []
    try:
        with ended_by_signal(lambda: interrupts.append(True), once=False):
            while not query.awaitTermination(LOOKING):
                shown.look()
                if interrupts:
                    query.stop()
                    break
            shown.look()
    except Exception as error:  # an error in a batch, inside a page of Java's
        raise CausalityError(_cause(str(error))) from error
    return bool(interrupts)


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
