"""Questions to a trace, as functions: why something happened, what led to what, where the time went.

    load(trace)                   a history, to ask several questions of one trace
    why(trace, event)             an event's causes as a tree, and why the event happened so late: Why
    path(trace, first, second)    the causal chain between two events, or why they are concurrent: Path
    past(trace, event)            all events that happened before one, a table
    future(trace, event)          all events that one happened before, a table
    influenced(trace, request)    the requests that influenced one, each with a chain: Influences
    critical_path(trace)          where the time of requests went, and what places would save: CriticalPath
    diff(first, second)           what one run caused and the other did not: Difference

`trace` is a path, a table of `trace.read`, a history, or the directory that an analysis wrote. Callers name
events as people do: `process#seq`, a span's id, a message, a label or a part of a label (`finding`).
UnknownName and AmbiguousName list the names that would have fitted.
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
