"""The data pipeline: the questions of `causality`, answered on Spark, from a laptop to a cluster.

    import happened.spark as hs

    events = hs.read_trace(spark, "run")            # or any DataFrame of events
    hs.violations(events, order="causal").show()    # stamp, predecessors, messages, necessary, skew, …
    hs.analyze(events).summary()

This package calls the kernels of `causality` and adds only what scale needs: it decides which rows go to
which task and what tasks pass to each other. With io="spark", Spark reads, shuffles, keeps and writes; with
io="direct", tasks read and write Arrow and Parquet themselves, at paths or URLs that every executor reaches.
Everything runs on classic Spark and on Spark Connect.

library          DataFrames in and out; not_judged: errors and warnings about rows that could not be judged
event_rows       traces and frames as rows of events
record_frames    frames of spans, commits, messages and transactions; an import of whatever Spark can read
asked_frames     the functions of `happened.ask` for a frame; large_traces has them for a trace at a path
log_import       `happened import` of files on Spark
pipeline         from a trace at a path to tables in a directory: `happened analyze`
frame_answers    io="spark": answers about a frame shuffled by computation (laid_frames)
in_parts         io="direct": from splits to parts of tables, on Spark or inside one task
splits, sizes    which part of a trace each task reads, and how large each computation is
one_pass         reads every split once, answers for whole computations, and writes the edges of large ones
by_epoch         answers for computations that are too large for one task
live             follows traces while they are being written: `stream`, and `happened stream`
tasks, storage   how tasks get their work, and where they write results
workspace        how long answers are kept; writes a frame as files. writing: tables by Spark's own writers
phases           the phases of a run: announced, and recorded so that it can be resumed
session          the running session, or a new one
versions         what older versions of PySpark lack

Names are imported when they are first used, so importing this package imports nothing else. `deliver` is
`happened.streaming.deliver`, offered here too because people look for it here.
"""

from ..core.extras import imported_when_used

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .asked_frames import critical_path, future, influenced, past, requests, why
    from .library import (
        Analysis,
        analyze,
        dependencies,
        measures,
        messages,
        necessary,
        predecessors,
        quarantine,
        read_trace,
        release,
        skew,
        stamp,
        verify_clocks,
        verify_trackers,
        violations,
    )
    from .live.frames import Stream, stream
    from .not_judged import NotJudged
    from .record_frames import dag, history, log, spans

    deliver: Callable[..., Any]

__all__ = [
    "Analysis",
    "NotJudged",
    "Stream",
    "analyze",
    "critical_path",
    "dag",
    "deliver",
    "dependencies",
    "future",
    "history",
    "influenced",
    "log",
    "measures",
    "messages",
    "necessary",
    "past",
    "predecessors",
    "quarantine",
    "read_trace",
    "release",
    "requests",
    "skew",
    "spans",
    "stamp",
    "stream",
    "verify_clocks",
    "verify_trackers",
    "violations",
    "why",
]


_HOMES = {
    **dict.fromkeys(__all__, ".library"),
    **dict.fromkeys(("critical_path", "future", "influenced", "past", "requests", "why"), ".asked_frames"),
    **dict.fromkeys(("dag", "history", "log", "spans"), ".record_frames"),
    **dict.fromkeys(("Stream", "stream"), ".live.frames"),
    "NotJudged": ".not_judged",
    "deliver": "..streaming",
}

if not TYPE_CHECKING:  # a type checker that saw __getattr__ would accept any misspelt name
    __getattr__ = imported_when_used(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
