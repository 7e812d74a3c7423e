"""Why an event happened, and why so late.

The causes of an event are its immediate predecessors: of the event before it on its process, the send of what
it delivers and what it names as causes, those that no other of them has in its past. Events of one process
that brought nothing from elsewhere and are not relevant are passed over, and counted.

Of each event's causes, the one with the latest time is the one it waited for last. Following those back to
the beginning gives the critical path in time: why it happened so late.
"""

from dataclasses import dataclass, field

import numpy as np

from ..causality.computation import DELIVER, RECEIVE
from ..causality.reach import NEVER, waited_chain
from .finding import find_event
from .history import Asked, History, Occurrence, load
from .relation import ChainStep, chain, since

MOST_CAUSES = 500  # Of one answer; more are not read by people
DEPTH = 5  # Levels of causes that are told if nothing that matters comes before

EXPANDED, RELEVANT, ELSEWHERE, DEEP, ABOVE, FIRST = "", "relevant", "elsewhere", "depth", "above", "first"
"""Why the causes of a cause are not told: they are; it is relevant; it happened in another service; `depth`
levels are told; it stands above; it has none."""


@dataclass(frozen=True)
class Cause:
    """A cause in the tree of an answer."""

    event: Occurrence
    edge: str  # how it led to its effect: `process`, `message` or `cause`
    between: int  # events of the process that were passed over
    waited: int | None  # ns from it to its effect; None if one of them has no time
    last: bool  # whether its effect waited for it last
    end: str  # why its own causes are not told, one of the words above
    causes: tuple["Cause", ...] = ()


@dataclass(frozen=True)
class Why:
    """An event, the tree of its causes, and its critical path in time from the beginning to the event.

    is_arrival  whether it is the arrival of a message, of which its send is no cause: only of its delivery
    """

    event: Occurrence
    causes: tuple[Cause, ...]
    late: tuple[ChainStep, ...]  # empty where the trace has no times
    cut: bool = False  # whether causes are left out because there are more than MOST_CAUSES
    is_arrival: bool = False
    delivery: Occurrence | None = None  # the delivery that such an arrival led to, if there was one


def why(trace: Asked, event: str, *, depth: int | None = None) -> Why:
    """The causes of an event as a tree, and the chain of causes it waited for.

    depth   levels of the tree, whatever they are. None: back to relevant events and to what happened in other
            services, at most DEPTH levels
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
