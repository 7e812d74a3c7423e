"""Questions to a trace, as functions: why something happened, what led to what, where the time went.

    load(trace)                   a history, to ask several questions of one trace
    why(trace, event)             its causes as a tree, and why it happened so late: Why
    path(trace, first, second)    the chain from one to the other, or why they are concurrent: Path
    past(trace, event)            all that happened before it, a table
    future(trace, event)          all that it happened before, a table
    influenced(trace, request)    the requests that influenced it, each with a chain that shows it: Influences
    critical_path(trace)          where the time of requests went, and what would be saved: CriticalPath
    diff(first, second)           what is caused in one run and not in the other: Difference

`trace` is a path, a table of `trace.read`, a history, or the directory that an analysis left. Events are
named as people have them: `process#seq`, a span's id, a message, a label or a part of one (`finding`).
UnknownName and AmbiguousName say what else there is.
"""

from .causes import Cause, Why, why
from .critical import CriticalPath, RequestPath, Segment, Share, critical_path
from .difference import Caused, Difference, diff
from .history import History, Occurrence, load
from .naming import AmbiguousName, NoTimes, UnknownName
from .relation import ChainStep, Influence, Influences, Path, future, influenced, past, path

__all__ = [
    "AmbiguousName", "Cause", "Caused", "ChainStep", "CriticalPath", "Difference", "History", "Influence",
    "Influences", "NoTimes", "Occurrence", "Path", "RequestPath", "Segment", "Share", "UnknownName", "Why",
    "critical_path", "diff", "future", "influenced", "load", "past", "path", "why",
]  # fmt: skip
