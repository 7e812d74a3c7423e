"""The data pipeline: what `causality` does on one machine, on Spark, from a laptop to a cluster.

    import happened.spark as hs

    events = hs.read_trace(spark, "run")            # or any DataFrame of events
    hs.violations(events, order="causal").show()    # stamp, predecessors, messages, necessary, skew, …
    hs.analyze(events).summary()

Shares the kernels of `causality` and adds only what scale needs: which rows go to which task, and what
passes between tasks. Wide data does not cross the JVM: tasks read and write Arrow and Parquet themselves,
so every path or URL must be reachable from every executor. Everything runs on classic Spark and on Spark
Connect.

library          DataFrames in and out; event_columns and workspace are how they become files
pipeline         from a trace at a path to tables in a directory: `happened analyze`
splits, sizes    what a task reads, and how large the computations are
one_pass         every split is read once: whole computations are answered, large ones leave edges
whole            computations that fit a task
by_epoch         those that do not
tasks, storage   how work gets to tasks, and where they leave what they made
preflight        whether executors reach what the driver does
phases           what a run has finished, for one that goes on
session          the session that is there, or one of our own; announcing, what Spark's pages show of us

The names below are looked up when they are first used: importing this imports nothing. `deliver` is that
of `happened.streaming`, which stands on this room, under the name that people look for here.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .library import (
        Analysis,
        analyze,
        measures,
        messages,
        necessary,
        predecessors,
        read_trace,
        release,
        skew,
        stamp,
        verify_clocks,
        verify_trackers,
        violations,
    )

    deliver: Callable[..., Any]

__all__ = [
    "Analysis",
    "analyze",
    "deliver",
    "measures",
    "messages",
    "necessary",
    "predecessors",
    "read_trace",
    "release",
    "skew",
    "stamp",
    "verify_clocks",
    "verify_trackers",
    "violations",
]


_HOMES = dict.fromkeys(__all__, ".library") | {"deliver": "..streaming"}


def _look_up(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from ..core.extras import how_to_install

    try:
        found = getattr(import_module(_HOMES[name], __name__), name)
    except ImportError as error:
        advice = how_to_install(error)
        if advice is None:
            raise
        raise ImportError(f"happened.spark.{name} cannot be used: {advice}", name=error.name) from error
    globals()[name] = found
    return found


if not TYPE_CHECKING:  # a type checker that saw this would let any misspelt name pass
    __getattr__ = _look_up  # PEP 562


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
