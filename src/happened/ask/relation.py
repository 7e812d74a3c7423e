"""How two events are related, and all that happened before or after one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..causality.linearization import Ints
from ..causality.reach import future_of, past_of
from ..causality.witness import path_by_column
from .finding import find_event
from .history import Asked, History, Occurrence, load, load_whole


class ChainStep(NamedTuple):
    """An event of a chain, and how the one before it led to it: `process`, `message`, `cause`, or `begin`.

    took   ns since the event before it, None if one of them has no time
    """

    edge: str
    event: Occurrence
    took: int | None


@dataclass(frozen=True)
class Path:
    """`relation` is `before` (first before second), `after`, `concurrent` or `same`.

    steps    the chain from the one that happened before to the other; none if they are concurrent
    reason   why they are concurrent, or how they are related, in a sentence
    """

    relation: str
    first: Occurrence
    second: Occurrence
    steps: tuple[ChainStep, ...]
    reason: str


def path(trace: Asked, first: str, second: str) -> Path:
    """The causal chain between two events, whichever way it leads, or why there is none."""
    history = load(trace, [first, second], past_only=True)
    a, b = find_event(history, first, "first"), find_event(history, second, "last")
    if (found := _chain(history, a, b, "before")) is not None:
        return found
    a, b = find_event(history, first, "last"), find_event(history, second, "first")
    if (found := _chain(history, b, a, "after")) is not None:
        return found
    one, other = history.occurrence(a), history.occurrence(b)
    return Path("concurrent", one, other, (), _why_concurrent(history, a, b))


def _chain(history: History, a: int, b: int, relation: str) -> Path | None:
    """The path from a to b, if it leads that way; `relation` is that of the first event asked for."""
    one, other = history.occurrence(a), history.occurrence(b)
    if a == b:
        return Path("same", one, other, (), f"{one.id} and {other.id} are one event")
    if not history.is_before(a, b):
        return None
    events = path_by_column(history.union, history.knows(int(history.union.process[a])), a, b)
    reason = f"{one.id} happened before {other.id}"
    ends = (one, other) if relation == "before" else (other, one)
    return Path(relation, *ends, chain(history, events), reason)


def chain(history: History, events: Sequence[int]) -> tuple[ChainStep, ...]:
    """The events of a causal chain as steps."""
    told = history.occurrences(events)
    return (
        *(ChainStep("begin", first, None) for first in told[:1]),
        *(
            ChainStep(history.edge(events[at - 1], events[at]), told[at], since(told[at - 1], told[at]))
            for at in range(1, len(told))
        ),
    )


def since(cause: Occurrence, effect: Occurrence) -> int | None:
    """Nanoseconds from one event to another."""
    return None if cause.time is None or effect.time is None else effect.time - cause.time


def _why_concurrent(history: History, a: int, b: int) -> str:
    one, other = history.occurrence(a), history.occurrence(b)
    if one.computation != other.computation:
        return (
            f"they belong to two computations, {one.computation!r} and {other.computation!r}, and nothing in "
            "one happened before anything in another"
        )
    return f"{_newest_known(history, b, a)}, and {_newest_known(history, a, b)}"


def _newest_known(history: History, e: int, of: int) -> str:
    """What event e knows of the process of an event that is not in its past."""
    knower, known = history.occurrence(e), history.occurrence(of)
    count = int(history.knows(int(history.union.process[of]))[e])
    if not count:
        return f"{knower.id} knows of no event of {known.process}"
    return f"the newest event of {known.process} that {knower.id} knows of is {known.process}#{count}"


def past(trace: Asked, event: str) -> pa.Table:
    """All events that happened before one, causes before effects."""
    history = load(trace, [event], past_only=True)
    e = find_event(history, event, "last")
    return _others(history, e, past_of(history.edges, np.array([e])))


def future(trace: Asked, event: str) -> pa.Table:
    """All events that one happened before, causes before effects."""
    history = load_whole(trace, [event])
    e = find_event(history, event, "first")
    return _others(history, e, future_of(history.edges, np.array([e])))


def _others(history: History, e: int, marked: Ints) -> pa.Table:
    marked[e] = False
    return history.events_table(np.flatnonzero(marked))
