"""Vertex cuts of the communication graph, and the sides they separate (Rodrigues and Veríssimo, ch. 3 to 5).

A set S is a separator iff the graph without S has at least two components. Forward and backward set are then
any split of the components into two sides: a rule that needs "some split with these vertices on one side and
those on the other" only has to check that the components of both are disjoint.

Measurements showed which of a graph's many separators are worth using: articulation points, and boundaries
of administrative zones with at most two members. Balanced cuts filter almost nothing, because a message that
crosses one has seldom been reported to all its members; they are found for comparison. Routers filter at
the cuts of the links that their routes use (`routes`), which include some of these separators.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

import networkx as nx

from .communication import Topology

USEFUL_BOUNDARY = 2
"""A zone's boundary of at most so many members is used as a separator even if nobody claims it."""
MOST_FOR_CUTS = 300_000
"""Cuts are looked for up to this product of vertices and links: a minimum cut needs flows between many
pairs, which take three seconds of Python for a grid of 20 by 20."""
_TRIES = 8  # number of runs of the bisection, which is a local search


@dataclass(frozen=True, slots=True)
class NamedSeparator:
    members: tuple[str, ...]  # the first forwards, the others are witnesses
    why: tuple[str, ...]  # the reasons to consider this separator
    parts: tuple[frozenset[str], ...]  # the components of the graph without it

    def part_of(self, name: str) -> frozenset[str]:
        """The component that a process is in; empty for a member of the separator."""
        return next((part for part in self.parts if name in part), frozenset())

    def sides(self, names: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
        """The smallest forward set that contains these names (members aside), and its backward set."""
        wanted = set(names)
        forward = frozenset(chain.from_iterable(part for part in self.parts if part & wanted))
        return forward, frozenset(chain.from_iterable(self.parts)) - forward


def parts(graph: "nx.Graph[str]", members: Collection[str]) -> tuple[frozenset[str], ...]:
    """The components of the graph without these members, in the order of their first vertices.

    A search of our own: through networkx's views 550 separators of 5,600 processes took 2.5 times as long.
    """
    reached, found = set(members), []
    for start in graph:
        if start not in reached:
            component, waiting = {start}, [start]
            while waiting:
                around = {name for name in graph.neighbors(waiting.pop()) if name not in reached} - component
                component |= around
                waiting += around
            reached |= component
            found.append(frozenset(component))
    return tuple(found)


def parts_without_each(graph: "nx.Graph[str]") -> dict[str, tuple[frozenset[str], ...]]:
    """For each articulation point of a connected graph its `parts`, from one depth-first search.

    Without v, the descendants of a child of v form a part if none has a link past v; the rest is a part too.
    The search numbers descendants consecutively, so that a part is a slice of its order.
    """
    root = next(iter(graph), None)
    if root is None:
        return {}
    order, place, low, size = [root], {root: 0}, {root: 0}, {root: 1}
    cut_off: dict[str, list[str]] = {}  # for each v, the children whose descendants are cut off without v
    waiting = [(root, root, iter(graph[root]))]
    while waiting:
        above, here, around = waiting[-1]
        for name in around:
            if name not in place:
                place[name] = low[name] = len(order)
                size[name] = 1
                order.append(name)
                waiting.append((here, name, iter(graph[name])))
                break
            if name != above:
                low[here] = min(low[here], place[name])
        else:
            waiting.pop()
            if here != root:
                size[above] += size[here]
                low[above] = min(low[above], low[here])
                if low[here] >= place[above]:
                    cut_off.setdefault(above, []).append(here)
    everybody = frozenset(graph)
    first = {name: i for i, name in enumerate(graph)}
    found = {}
    for name, children in cut_off.items():
        slices = [frozenset(order[place[c] : place[c] + size[c]]) for c in children]
        rest = everybody.difference({name}, *slices)
        placed = [(min(map(first.__getitem__, part)), part) for part in slices]
        if rest:  # the rest has nearly all vertices: its first is soon found
            placed.append((next(i for i, other in enumerate(graph) if other in rest), rest))
        if len(placed) > 1:
            found[name] = tuple(part for _, part in sorted(placed, key=lambda one: one[0]))
    return found


def separates(graph: "nx.Graph[str]", members: Collection[str]) -> bool:
    """Whether removing these members splits a connected graph; the cost depends on the part cut off only."""
    without = set(members)
    around = {name for member in members for name in graph[member]} - without
    return not in_one_piece(lambda name: (other for other in graph[name] if other not in without), around)


def in_one_piece(neighbours: Callable[[str], Iterable[str]], starts: Iterable[str]) -> bool:
    """Whether these vertices are connected.

    Runs one search from each vertex, in turn step by step, so that the smallest component is exhausted first;
    searches that meet continue as one.
    """
    fronts = {name: deque([name]) for name in starts}  # key: the first vertex of each search
    leader: dict[str, str] = {}  # reached vertex -> start of the search, or of the search it merged into

    def search_of(name: str) -> str:
        while name not in fronts:
            name = leader[name]
        return name

    while len(fronts) > 1:
        for first in list(fronts):
            if first not in fronts:
                continue
            if not fronts[first]:
                return len(fronts) == 1
            for name in neighbours(fronts[first].popleft()):
                if name not in leader and name not in fronts:
                    leader[name] = first
                    fronts[first].append(name)
                elif (other := search_of(name)) != first:
                    leader[other] = first
                    fronts[first] += fronts.pop(other)
    return True


def is_separator(graph: "nx.Graph[str]", members: Collection[str]) -> bool:
    return len(parts(graph, members)) > 1


def past(graph: "nx.Graph[str]", members: Collection[str]) -> list[str]:
    """A path between two neighbours of a set that avoids the set: the evidence that it is no separator.

    The longest of the shortest such paths; empty if the set is a separator or has fewer than two neighbours.
    """
    if is_separator(graph, members):
        return []
    rest = nx.restricted_view(graph, list(members), [])
    around = in_order(graph, {name for member in members for name in graph[member]} - set(members))
    if len(around) < 2:
        return []
    ways: dict[str, list[str]] = nx.single_source_shortest_path(rest, around[0])
    return max((ways[name] for name in around), key=len)


def articulation_points(graph: "nx.Graph[str]") -> list[str]:
    return list(in_order(graph, set(nx.articulation_points(graph))))


def minimum_cut(graph: "nx.Graph[str]") -> tuple[str, ...] | None:
    """A smallest separator; None in a complete graph, which has none."""
    n = len(graph)
    if graph.number_of_edges() == n * (n - 1) // 2:
        return None
    single = next(iter(articulation_points(graph)), None)
    return (single,) if single is not None else _named(graph, nx.minimum_node_cut(_numbered(graph)))


def balanced_cut(graph: "nx.Graph[str]") -> tuple[str, ...] | None:
    """A small separator with at most half of the vertices (rounded up) on either side.

    The edges between two halves form a bipartite graph, and a vertex cover of it is a separator of the
    halves. The bisection is a local search (Kernighan and Lin), so the cut is small but not always smallest;
    None if every cut that was found contains a whole half.
    """
    numbered = _numbered(graph)
    best: set[int] | None = None
    for seed in range(_TRIES if len(graph) > 2 else 0):
        half, other = nx.community.kernighan_lin_bisection(numbered, seed=seed)
        crossing = nx.Graph()
        crossing.add_nodes_from(half)
        crossing.add_edges_from(nx.edge_boundary(numbered, half, other))
        matching = nx.bipartite.hopcroft_karp_matching(crossing, half)
        cover = nx.bipartite.to_vertex_cover(crossing, matching, half)
        if not (cover >= half or cover >= other) and (best is None or len(cover) < len(best)):
            best = cover
    return _named(graph, best) if best is not None else None


def boundary(topology: Topology, zone: str) -> tuple[str, ...]:
    """The separator between a zone and the rest: its gateways, or else its members with links outward."""
    gateways = topology.zones[zone].gateways
    if gateways:
        return gateways
    inside = topology.inside(zone)
    return in_order(
        topology.graph, {a for a, b in nx.edge_boundary(topology.graph, inside) if b not in inside}
    )


def useful(topology: Topology) -> list[NamedSeparator]:
    """The separators of the graph that are worth filtering at: the sets of `reasons` that separate."""
    return _distinct(topology, reasons(topology))


def reasons(topology: Topology) -> dict[tuple[str, ...], list[str]]:
    """The sets that may be worth filtering at, with reasons: claimed, the boundary of a zone with few
    members, or an articulation point. Members are in the order in which the set was first found."""
    return _merged([*_claimed_and_small(topology), *_articulations(topology)])


def shared(topology: Topology) -> list[tuple[str, ...]]:
    """The separators of several members, of which one forwards and the others witness: claimed ones, small
    boundaries, and the gateways of a zone, however many."""
    gateways = (("gateways", zone.gateways) for zone in topology.zones.values())
    found = _merged([*_claimed_and_small(topology), *gateways])
    return [members for members in found if len(members) > 1 and separates(topology.graph, members)]


def every(topology: Topology) -> list[NamedSeparator]:
    """The useful separators, then larger boundaries, then a minimum and a balanced cut of a small graph."""
    graph = topology.graph
    cuts: list[tuple[str, tuple[str, ...] | None]] = []
    if len(graph) * graph.number_of_edges() <= MOST_FOR_CUTS:
        cuts = [("minimum cut", minimum_cut(graph)), ("balanced cut", balanced_cut(graph))]
    found = [*_claimed_and_small(topology), *_articulations(topology), *_boundaries(topology)]
    found += [(why, members) for why, members in cuts if members is not None]
    return _distinct(topology, _merged(found))


_Found = list[tuple[str, tuple[str, ...]]]


def _claimed_and_small(topology: Topology) -> _Found:
    """The claimed separators, and the boundaries of few members."""
    small = (found for found in _boundaries(topology) if len(found[1]) <= USEFUL_BOUNDARY)
    return [*(("claimed", members) for members in topology.separators), *small]


def _boundaries(topology: Topology) -> _Found:
    return [(f"boundary of {zone}", boundary(topology, zone)) for zone in topology.zones]


def _articulations(topology: Topology) -> _Found:
    return [("articulation point", (name,)) for name in articulation_points(topology.graph)]


def _merged(found: Iterable[tuple[str, tuple[str, ...]]]) -> dict[tuple[str, ...], list[str]]:
    """Each set once, with one order of its members and all reasons for which it was found."""
    first: dict[frozenset[str], tuple[str, ...]] = {}
    merged: dict[tuple[str, ...], list[str]] = {}
    for why, members in found:
        if members:
            known = merged.setdefault(first.setdefault(frozenset(members), members), [])
            if why not in known:
                known.append(why)
    return merged


def _distinct(topology: Topology, found: Mapping[tuple[str, ...], list[str]]) -> list[NamedSeparator]:
    """The sets among these that are separators, with the components they separate."""
    single: dict[str, tuple[frozenset[str], ...]] | None = None
    if any(len(members) == 1 for members in found) and nx.is_connected(topology.graph):
        single = parts_without_each(topology.graph)
    separators = []
    for members, why in found.items():
        if single is not None and len(members) == 1:
            parted = single.get(members[0], ())
        else:
            parted = parts(topology.graph, members)
        if len(parted) > 1:
            separators.append(NamedSeparator(members, tuple(why), parted))
    return separators


def _numbered(graph: "nx.Graph[str]") -> "nx.Graph[int]":
    """The graph with numbers for names, because the order of a set of strings differs between runs."""
    numbered: nx.Graph[int] = nx.convert_node_labels_to_integers(graph)
    return numbered


def _named(graph: "nx.Graph[str]", numbers: Collection[int]) -> tuple[str, ...]:
    return tuple(name for i, name in enumerate(graph) if i in numbers)


def in_order(graph: "nx.Graph[str]", names: Collection[str]) -> tuple[str, ...]:
    """These names in the order of the graph's vertices."""
    return tuple(name for name in graph if name in names)
