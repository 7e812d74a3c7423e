"""Why an event happened, and why it happened so late.

The causes of an event are its immediate predecessors: of the event before it on its process, the send of the
message it delivers and its recorded causes, those that are in the past of none of the others. The answer
skips, and counts, events of one process that received nothing from elsewhere and are not relevant.

Of each event's causes, the one with the latest time is the one the event waited for last. The chain of these
last causes back to the beginning is the critical path in time: it says why the event happened so late.
"""

from dataclasses import dataclass, field

import numpy as np

from ..causality.computation import DELIVER, RECEIVE
from ..causality.reach import NEVER, waited_chain
from .finding import find_event
from .history import Asked, History, Occurrence, load
from .relation import ChainStep, chain, since

MOST_CAUSES = 500  # Causes in one answer; people do not read more
DEPTH = 5  # Levels of causes shown where no relevant event or other service ends the branch earlier

EXPANDED, RELEVANT, ELSEWHERE, DEEP, ABOVE, FIRST = "", "relevant", "elsewhere", "depth", "above", "first"
"""Why the tree does not show the causes of a cause: "" (it does); the cause is relevant; it happened in
another service; it is at the greatest depth; the tree shows it further up; it has no causes."""


@dataclass(frozen=True)
class Cause:
    """A cause in the tree of an answer."""

    event: Occurrence
    edge: str  # how the cause led to its effect: `process`, `message` or `cause`
    between: int  # number of skipped events of the process between the cause and its effect
    waited: int | None  # ns from the cause to its effect; None if one of the two has no time
    last: bool  # whether this is the cause that the effect waited for last
    end: str  # why the tree does not show its causes, one of the words above
    causes: tuple["Cause", ...] = ()


@dataclass(frozen=True)
class Why:
    """An event, the tree of its causes, and its critical path in time from the beginning to the event.

    is_arrival  whether the event is a message's arrival: the send causes the delivery, not the arrival
    """

    event: Occurrence
    causes: tuple[Cause, ...]
    late: tuple[ChainStep, ...]  # empty if the trace has no times
    cut: bool = False  # whether causes are left out because there are more than MOST_CAUSES
    is_arrival: bool = False
    delivery: Occurrence | None = None  # for an arrival, the delivery that followed it, if there was one


def why(trace: Asked, event: str, *, depth: int | None = None) -> Why:
    """The causes of an event as a tree, and the chain of causes it waited for.

    depth   how many levels of the tree to show. None: stop each branch at a relevant event or another
            service, and at DEPTH levels
    """
    history = load(trace, [event], past_only=True)
    e = find_event(history, event, "last")
    c, tree = history.union, _Tree(history, e, depth)
    causes = tree.grown()
    when, waited = history.waits
    late = chain(history, waited_chain(when, waited, e) if when[e] != NEVER else [])
    is_arrival = c.kind[e] == RECEIVE and c.source[e] < 0
    delivered = np.flatnonzero(
        (c.kind == DELIVER) & (c.process == c.process[e]) & (c.message == c.message[e])
    )
    delivery = history.occurrence(int(delivered[0])) if is_arrival and delivered.size else None
    return Why(history.occurrence(e), causes, late, tree.is_cut, bool(is_arrival), delivery)


def immediate_causes(history: History, e: int) -> list[int]:
    """The direct causes of an event that are in the past of no other direct cause of it."""
    direct = history.causes(e)
    return [u for u in direct if not any(history.is_before(u, v) for v in direct)]


@dataclass
class _Node:
    """A node of the tree under construction: its event is known, its own causes are added later."""

    event: int
    effect: int
    edge: str
    between: int
    last: bool
    level: int
    end: str = EXPANDED
    nodes: list["_Node"] = field(default_factory=list)


class _Tree:
    """The tree of causes, built breadth-first, so that an event reached twice is expanded at its smallest
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
            event, effect = (self._history.occurrence(e) for e in (node.event, node.effect))
            of = tuple(causes[id(each)] for each in node.nodes)
            causes[id(node)] = Cause(
                event, node.edge, node.between, since(event, effect), node.last, node.end, of
            )
        return tuple(causes[id(node)] for node in roots)

    def _nodes(self, e: int, level: int) -> list[_Node]:
        history, nodes = self._history, []
        when, waited = history.waits
        for u in immediate_causes(history, e):
            cause, between, edge = u, 0, history.edge(u, e)
            # Walk back along the process while no message or cause came from elsewhere.
            while edge == "process" and not history.relevant[cause] and history.before[cause] >= 0:
                if immediate_causes(history, cause) != [history.before[cause]]:
                    break
                cause, between = int(history.before[cause]), between + 1
            last = u == waited[e] and when[u] != NEVER
            nodes.append(_Node(cause, e, edge, between, bool(last), level, self._end(cause, level)))
            self._told.add(cause)
        return nodes

    def _end(self, u: int, level: int) -> str:
        history, depth = self._history, self._depth
        places, _ = history.places
        if not history.causes(u):
            return FIRST
        if u in self._told:
            return ABOVE
        if level >= (DEPTH if depth is None else depth):
            return DEEP
        if depth is None and history.relevant[u]:
            return RELEVANT
        return ELSEWHERE if depth is None and places[u] != places[self._root] else EXPANDED
