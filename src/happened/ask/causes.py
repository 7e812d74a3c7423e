"""Why an event happened, and why so late.

The causes of an event are its immediate predecessors: of the event before it on its process, the send of what
it delivers and what it names as causes, those that no other of them has in its past. Events of one process
that brought nothing from elsewhere and are not relevant are passed over, and counted.

Of each event's causes, the one with the latest time is the one it waited for last. Following those back to
the beginning gives the critical path in time: why it happened so late.
"""

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from ..causality.computation import DELIVER, RECEIVE
from ..causality.reach import NEVER, waited_chain
from .finding import find_event
from .history import Asked, History, Occurrence, load
from .relation import ChainStep, chain, since

MOST_CAUSES = 500
"""Of one answer; more are not read by people."""
DEPTH = 5
"""Levels of causes that are told if nothing that matters comes before."""

EXPANDED, RELEVANT, ELSEWHERE, DEEP, ABOVE, FIRST = "", "relevant", "elsewhere", "depth", "above", "first"
"""Why the causes of a cause are not told: they are; it is relevant; it happened in another service; `depth`
levels are told; it stands above; it has none."""


@dataclass(frozen=True)
class Cause:
    """A cause in the tree of an answer.

    edge     how it led to its effect: `process`, `message` or `cause`
    between  events of the process that were passed over
    waited   ns from it to its effect; None if one of them has no time
    last     whether its effect waited for it last
    end      why its own causes are not told, one of the words above
    """

    event: Occurrence
    edge: str
    between: int
    waited: int | None
    last: bool
    end: str
    causes: tuple["Cause", ...] = ()


@dataclass(frozen=True)
class Why:
    """An event, the tree of its causes, and its critical path in time from the beginning to the event.

    late        empty where the trace has no times
    cut         whether causes are left out because there are more than MOST_CAUSES
    is_arrival  whether it is the arrival of a message, of which its send is no cause: only of its delivery
    delivery    the delivery that such an arrival led to, if there was one
    """

    event: Occurrence
    causes: tuple[Cause, ...]
    late: tuple[ChainStep, ...]
    cut: bool = False
    is_arrival: bool = False
    delivery: Occurrence | None = None


def why(trace: Asked, event: str, *, depth: int | None = None) -> Why:
    """The causes of an event as a tree, and the chain of causes it waited for.

    depth   levels of the tree, whatever they are. None: back to relevant events and to what happened in other
            services, at most DEPTH levels
    """
    history = load(trace, [event], past_only=True)
    e = find_event(history, event, "last")
    tree = _Tree(history, e, depth)
    causes, late = tree.grown(), chain(history, _waits(history, e))
    return Why(history.occurrence(e), causes, late, tree.is_cut, *_arrival(history, e))


def _arrival(history: History, e: int) -> tuple[bool, Occurrence | None]:
    """Whether an event is a receive that no send caused, and the first delivery of its message there."""
    c = history.union
    if c.kind[e] != RECEIVE or c.source[e] >= 0:
        return False, None
    mine = (c.kind == DELIVER) & (c.process == c.process[e]) & (c.message == c.message[e])
    delivered = np.flatnonzero(mine)
    return True, history.occurrence(int(delivered[0])) if delivered.size else None


def immediate_causes(history: History, e: int) -> list[int]:
    """The direct causes of an event that no other of them has in its past."""
    direct = history.causes(e)
    return [u for u in direct if not any(history.is_before(u, v) for v in direct)]


@dataclass
class _Node:
    """A node of the tree while it grows: the event is known, its own causes are added later."""

    event: int
    effect: int
    edge: str
    between: int
    last: bool
    level: int
    end: str = EXPANDED
    nodes: list["_Node"] = field(default_factory=list)


class _Tree:
    """The tree of causes, grown level by level, so that an event reached twice is expanded at its smallest
    depth."""

    def __init__(self, history: History, root: int, depth: int | None) -> None:
        self._history, self._root, self._depth = history, root, depth
        self._told: set[int] = set()
        self.is_cut = False

    def grown(self) -> tuple[Cause, ...]:
        roots = self._nodes(self._root, 1)
        level, every = roots, [*roots]
        while level:
            following = []
            for node in level:
                if node.end == EXPANDED and len(every) < MOST_CAUSES:
                    node.nodes = self._nodes(node.event, node.level + 1)
                    following += node.nodes
                    every += node.nodes
                self.is_cut |= node.end == EXPANDED and not node.nodes
            level = following
        causes: dict[int, Cause] = {}
        for node in reversed(every):
            causes[id(node)] = self._cause(node, tuple(causes[id(of)] for of in node.nodes))
        return tuple(causes[id(node)] for node in roots)

    def _cause(self, node: _Node, causes: tuple[Cause, ...]) -> Cause:
        event, effect = (self._history.occurrence(e) for e in (node.event, node.effect))
        waited = since(event, effect)
        return Cause(event, node.edge, node.between, waited, node.last, node.end, causes)

    def _nodes(self, e: int, level: int) -> list[_Node]:
        last = self._last(e)
        nodes = []
        for u in immediate_causes(self._history, e):
            edge = self._history.edge(u, e)
            cause, between = self._passed_over(u) if edge == "process" else (u, 0)
            nodes.append(_Node(cause, e, edge, between, u == last, level, self._end(cause, level)))
            self._told.add(cause)
        return nodes

    def _last(self, e: int) -> int:
        """The cause that an event waited for last; -1 if no cause has a time."""
        when, waited = self._history.waits
        u = int(waited[e])
        return u if u >= 0 and when[u] != NEVER else -1

    def _passed_over(self, u: int) -> tuple[int, int]:
        """Walk back along a process while no message or cause came from elsewhere; returns the event and
        the number of events skipped."""
        history, passed = self._history, 0
        while not history.relevant[u] and history.before[u] >= 0:
            if immediate_causes(history, u) != [history.before[u]]:
                break
            u = int(history.before[u])
            passed += 1
        return u, passed

    def _end(self, u: int, level: int) -> str:
        history = self._history
        if not history.causes(u):
            return FIRST
        if u in self._told:
            return ABOVE
        if level >= (DEPTH if self._depth is None else self._depth):
            return DEEP
        if self._depth is not None:
            return EXPANDED
        if history.relevant[u]:
            return RELEVANT
        places, _ = history.places
        return ELSEWHERE if places[u] != places[self._root] else EXPANDED


def _waits(history: History, e: int) -> list[int]:
    """The chain of causes waited for last, from the beginning to e; none if e has no time.

    Of several steps in a row along one process, only the ends are told.
    """
    when, waited = history.waits
    if when[e] == NEVER:
        return []
    path = waited_chain(when, waited, e)
    along = [history.edge(u, v) == "process" for u, v in pairwise(path)]
    inner = {at for at, both in enumerate(pairwise(along), 1) if all(both)}
    return [u for at, u in enumerate(path) if at not in inner]
