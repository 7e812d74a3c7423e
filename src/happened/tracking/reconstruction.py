"""Exact vectors from dependency vectors: the fixed point of Hélary, Melideo & Raynal (2000), section 5.2.

In      the dependency vectors of *all* relevant events of a computation, null events included, in any order.
Out     their vectors, in the same numbering: counts include null events unless `renumbered` is applied.
Cost    events × n × n: one join for each entry of each event. On one machine; spark/rebuild.py is for more.

An event's vector is the maximum of the dependency vectors of its causal past, itself included. The paper
iterates to it event by event. Dependencies are acyclic and a process's events form a chain, so joining the
*vectors* of the events that an event directly names, each computed once, gives the same fixed point.
"""

from collections.abc import Iterable, Mapping, Sequence

from ..core.errors import LocalProtocolError
from .piggyback import EventId, Timestamp


def vectors(timestamps: Iterable[Timestamp]) -> dict[EventId, tuple[int, ...]]:
    """The vector of every event, from the timestamps of a protocol that tells dependencies."""
    named: dict[EventId, tuple[int, ...]] = {}
    for timestamp in timestamps:
        event = timestamp.process, timestamp.seq
        if timestamp.dependencies is None:
            raise LocalProtocolError(f"event {event} has no dependency vector; nothing to reconstruct from")
        named[event] = timestamp.dependencies
    found: dict[EventId, tuple[int, ...]] = {}
    for event in named:
        _close(event, named, found)
    return found


def _close(
    event: EventId, named: Mapping[EventId, Sequence[int]], found: dict[EventId, tuple[int, ...]]
) -> None:
    """Compute the vectors of `event` and of all its dependencies; uses a stack, since chains are long."""
    stack, entered = [event], set()
    while stack:
        at = stack[-1]
        if at in found:
            stack.pop()
            continue
        causes = _causes(at, named)
        missing = [cause for cause in causes if cause not in found]
        if not missing:
            found[at] = tuple(map(max, zip(named[at], *(found[cause] for cause in causes), strict=True)))
            stack.pop()
        elif at in entered:
            raise LocalProtocolError(f"event {at} depends on itself; these are not dependency vectors")
        else:
            entered.add(at)
            stack += missing


def _causes(event: EventId, named: Mapping[EventId, Sequence[int]]) -> list[EventId]:
    process, seq = event
    if event not in named:
        raise LocalProtocolError(f"event {event} is named as a cause and has no timestamp of its own")
    causes = [(k, count) for k, count in enumerate(named[event]) if count and k != process]
    return [(process, seq - 1), *causes] if seq > 1 else causes


def renumbered(
    timestamps: Iterable[Timestamp], found: Mapping[EventId, tuple[int, ...]]
) -> dict[EventId, tuple[int, ...]]:
    """The vectors of the application's own events, renumbered as if there were no null events."""
    null = {(t.process, t.seq) for t in timestamps if t.null}
    n = len(next(iter(found.values()), ()))
    own = [[0] for _ in range(n)]  # per process and seq, its non-null events so far
    for process, seq in sorted(found):
        own[process].append(own[process][-1] + ((process, seq) not in null))
    return {
        (process, own[process][seq]): tuple(own[k][count] for k, count in enumerate(vector))
        for (process, seq), vector in found.items()
        if (process, seq) not in null
    }
