"""Routes derived from a topology: one hypertree, and for each separator one forwarder with its witnesses.

Causal order on every hop does not give causal order between application messages if routes have cycles: a
copy by one gateway can overtake a message that another gateway still holds. So all messages travel on one
hypertree. Its blocks are links, or broadcast networks (members linked pairwise) that stay whole because no
route leads around them; blocks meet in single processes and close no cycle.

Of a separator with several members one is the forwarder; the others, its *witnesses*, are leaves of the tree
and get a copy of each message addressed to the forwarder. Witnesses must be linked with the forwarder, with
one another, and with each of the forwarder's neighbours on the tree. If no member can be a forwarder on these
terms, the separator has no witnesses: it can still filter (which needs none), but nobody can take over.

Routers filter at the cuts of the links that these routes use, and at the known separators of the whole graph
that have several members, since these cut the used links as well. Topological timestamping (Rodrigues and
Veríssimo, rule R9) requires one thing of a separator S: no chain of messages leads from one side of S to
another except through its members. Unused links of the physical graph do not matter. So a cut of the graph of
the links *in use* (`core.places.in_use`) is a separator, and every router on the tree is such a cut, whatever
cycles the physical graph has: a path between two of its blocks that avoids it would close a cycle. A process
and its witnesses form one cut together, since they have links with all its neighbours. Only a witness of two
forwarders can connect sides that the tree separates. Changing the routes changes these cuts: all messages
sent before must have arrived by then (net/site_changes.py).

`derive` gives each process its `core.places.Place`, the value that its protocol machine is made with;
`verify` checks these values against the graph and uses nothing else.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import networkx as nx

from ..core.destinations import pack, unpack
from ..core.places import Branch, Place, Separator, WatchedForwarder, reach
from ..core.places import check as check_place
from .communication import Topology, TopologyError
from .separators import NamedSeparator, in_one_piece, shared


@dataclass(frozen=True)
class RoutingPlan:
    names: tuple[str, ...]  # the processes' names, by index
    places: tuple[Place, ...]
    root: str  # a process in the middle of the tree; routing treats it like any other
    blocks: tuple[tuple[str, ...], ...]  # the first member of each block is the nearest to the root
    witnesses: Mapping[str, tuple[str, ...]]  # key: the forwarder
    unwitnessed: tuple[tuple[str, ...], ...]  # separators of several members that cannot have witnesses

    @cached_property
    def links(self) -> frozenset[frozenset[str]]:
        """The links that messages travel on, without those that only carry copies for witnesses."""
        return frozenset(frozenset(link) for block in self.blocks for link in combinations(block, 2))

    @cached_property
    def filters(self) -> list[NamedSeparator]:
        """The separators where some process filters, each once, with the present processes on each side."""
        here = pack(i for i, place in enumerate(self.places) if place.branches)
        found = dict.fromkeys(cut for place in self.places for cut in place.separators)
        separators = []
        for members, sides in found:
            present = sorted((side & here for side in sides if side & here), key=lambda side: side & -side)
            parts = tuple(frozenset(self._named(side)) for side in present)
            separators.append(NamedSeparator(self._named(members), ("cut of the routes",), parts))
        return separators

    def _named(self, processes: int) -> tuple[str, ...]:
        return tuple(self.names[i] for i in unpack(processes))

    def path(self, sender: str, to: str) -> list[str]:
        """The processes on a message's route, both ends included."""
        index = {name: i for i, name in enumerate(self.names)}
        here, goal, way = index[sender], index[to], [sender]
        while here != goal:
            here = next(branch.towards for branch in self.places[here].branches if branch.behind >> goal & 1)
            way.append(self.names[here])
        return way


def derive(
    topology: Topology,
    *,
    filter_at: Iterable[Collection[str]] | None = None,
    report: bool = True,
    names: Sequence[str] | None = None,
) -> RoutingPlan:
    """Routes for a connected topology.

    filter_at   the separators at which histories are filtered; by default the cuts of the links in use,
                claimed separators and boundaries of zones
    report      whether a forwarder reports what it forwards to its witnesses, so that one of them can take
                over; otherwise witnesses only get copies of messages addressed to the forwarder
    names       the processes' names by index; by default in the order of the topology. After a join or a
                failure: the previous names, then the newcomers, so that members keep their indices; names
                that the topology no longer has get a place without routes
    """
    graph = topology.graph
    if not graph or not nx.is_connected(graph):
        raise TopologyError("only a connected graph can be routed")
    names = tuple(graph) if names is None else tuple(names)
    if len(set(names)) < len(names) or not set(graph) <= set(names):
        raise TopologyError("names are those of all processes, each given once")
    known = shared(topology)
    carriers, witnesses, unwitnessed = _appoint(graph, known)
    root = _middle(carriers)
    blocks = _hypertree(carriers, root)
    homes: dict[str, str] = {}  # witness -> its first forwarder, on which it hangs as a leaf
    for forwarder, watching in witnesses.items():
        for witness in watching:
            homes.setdefault(witness, forwarder)
    blocks += [(forwarder, witness) for witness, forwarder in homes.items()]
    places = _Placing(graph, names, blocks, witnesses, report).places(known, filter_at)
    routes = RoutingPlan(names, places, root, tuple(blocks), witnesses, tuple(unwitnessed))
    verify(graph, places, names)
    return routes


def _appoint(
    graph: "nx.Graph[str]", separators: Iterable[tuple[str, ...]]
) -> tuple["nx.Graph[str]", dict[str, tuple[str, ...]], list[tuple[str, ...]]]:
    """The graph that carries messages, each forwarder's witnesses, and the separators without witnesses."""
    carriers = nx.Graph(graph)
    witnesses: dict[str, tuple[str, ...]] = {}
    watching: set[str] = set()
    unwitnessed = []
    for members in separators:
        for forwarder in members:
            others = tuple(name for name in members if name != forwarder)
            if forwarder in watching or not witnesses.keys().isdisjoint(others):
                continue
            together = tuple(dict.fromkeys((*witnesses.get(forwarder, ()), *others)))
            if _can_witness(graph, carriers, forwarder, together):
                witnesses[forwarder] = together
                watching.update(others)
                break
        else:
            unwitnessed.append(members)
    return carriers, witnesses, unwitnessed


def _can_witness(
    graph: "nx.Graph[str]", carriers: "nx.Graph[str]", forwarder: str, witnesses: tuple[str, ...]
) -> bool:
    """Remove the witnesses from the carriers, and the forwarder's links to neighbours that the witnesses
    cannot hear, if the carriers stay connected; return whether they do."""
    if not all(graph.has_edge(*pair) for pair in combinations((forwarder, *witnesses), 2)):
        return False
    gone = set(witnesses)
    unheard = {x for x in carriers[forwarder] if not all(graph.has_edge(x, w) for w in witnesses if w != x)}

    def neighbours(name: str) -> Iterable[str]:
        cut = gone | unheard if name == forwarder else gone | {forwarder} if name in unheard else gone
        return (other for other in carriers[name] if other not in cut)

    # Only a vertex that loses a link can be cut off. Vertices still linked with the forwarder are not.
    around = {x for w in witnesses if w in carriers for x in carriers[w]} | unheard
    heard = set(neighbours(forwarder))
    if not in_one_piece(neighbours, {forwarder, *around} - gone - heard):
        return False
    carriers.remove_nodes_from(witnesses)
    carriers.remove_edges_from([(forwarder, x) for x in unheard])
    return True


def _middle(graph: "nx.Graph[str]") -> str:
    """A vertex in the middle of a long shortest path: the centre of a tree, near it elsewhere; O(links)."""
    start = next(iter(graph))
    for _ in range(2):
        way: list[str] = list(nx.single_source_shortest_path(graph, start).values())[-1]
        start = way[-1]
    return way[len(way) // 2]


def _hypertree(graph: "nx.Graph[str]", root: str) -> list[tuple[str, ...]]:
    """The blocks of a hypertree over all vertices, each beginning with its member nearest to the root.

    Two biconnected components share at most one vertex and close no cycle. A component whose members are all
    linked pairwise stays whole; any other is replaced by its breadth-first tree: the search enters a
    component through one member, on every path from the root, and reaches all other members from within the
    component.
    """
    order = {root: 0}
    parent: dict[str, str] = {}
    for above, below in nx.bfs_edges(graph, root):
        order[below] = len(order)
        parent[below] = above
    blocks: list[tuple[str, ...]] = []
    for component in nx.biconnected_components(graph):
        members = sorted(component, key=order.__getitem__)
        k = len(members)
        if graph.subgraph(component).number_of_edges() == k * (k - 1) // 2:
            blocks.append(tuple(members))
        else:
            blocks += [(parent[name], name) for name in members[1:]]
    return sorted(blocks, key=lambda block: order[block[0]])


class _Placing:
    """Turn blocks into places: which processes each leads to, as bit sets, from leaves to root."""

    def __init__(
        self,
        graph: "nx.Graph[str]",
        names: Sequence[str],
        blocks: Sequence[tuple[str, ...]],
        witnesses: Mapping[str, tuple[str, ...]],
        report: bool,
    ) -> None:
        self._graph = graph
        self._names = names
        self._index = {name: i for i, name in enumerate(names)}
        self._everybody = pack(self._index[name] for name in graph)
        self._witnesses = witnesses
        self._report = report
        self._blocks_of: dict[str, list[int]] = {name: [] for name in graph}
        self._blocks = blocks
        for number, block in enumerate(blocks):
            for name in block:
                self._blocks_of[name].append(number)
        # For each vertex, the set of itself and the vertices whose path to the root leads through it. Blocks
        # nearer to the root come first, blocks of witnesses last: in reverse order, the sets further down are
        # complete.
        self._below = {name: 1 << self._index[name] for name in self._graph}
        for block in reversed(blocks):
            for name in block[1:]:
                self._below[block[0]] |= self._below[name]

    def places(
        self, known: Iterable[tuple[str, ...]], filter_at: Iterable[Collection[str]] | None
    ) -> tuple[Place, ...]:
        branches = {name: self._branches(name) for name in self._graph}
        filters: dict[str, list[Separator]] = {name: [] for name in self._graph}
        for cut in self._cuts(branches, known, filter_at):
            for i in unpack(cut.members):
                filters[self._names[i]].append(cut)
        watched: dict[str, list[str]] = {name: [] for name in self._graph}
        for forwarder, watching in self._witnesses.items() if self._report else ():
            for witness in watching:
                watched[witness].append(forwarder)
        return tuple(
            Place(
                self._bits(self._graph[name]),
                branches[name],
                tuple(filters[name]),
                self._bits(self._witnesses.get(name, ())) if self._report else 0,
                tuple(WatchedForwarder(self._index[f], branches[f]) for f in watched[name]),
            )
            if name in self._graph
            else Place(0, ())
            for name in self._names
        )

    def _cuts(
        self,
        branches: Mapping[str, tuple[Branch, ...]],
        known: Iterable[tuple[str, ...]],
        filter_at: Iterable[Collection[str]] | None,
    ) -> Iterable[Separator]:
        """The cuts to filter at; departed processes are a side of their own."""
        by_index = {self._index[name]: its for name, its in branches.items()}
        witnesses = {self._index[f]: self._bits(watching) for f, watching in self._witnesses.items()}
        found = {cut.members: cut for cut in _cuts_in_use(by_index, witnesses)}
        for name_set in known:
            members = self._bits(name_set)
            if members not in found:
                found[members] = Separator(members, _sides_without(by_index, witnesses, members))
        departed = ((1 << len(self._names)) - 1) & ~self._everybody
        if departed:
            found = {m: cut._replace(components=(*cut.components, departed)) for m, cut in found.items()}
        if filter_at is None:
            return found.values()
        asked = []
        for names in filter_at:
            cut = found.get(self._bits(names)) if all(name in self._graph for name in names) else None
            if cut is None:
                listed = ", ".join(names)
                raise TopologyError(f"{{{listed}}} is no separator known here: claim it in the topology")
            asked.append(cut)
        return asked

    def _branches(self, name: str) -> tuple[Branch, ...]:
        branches = []
        for local, number in enumerate(self._blocks_of[name]):
            block = self._blocks[number]
            for other in block:
                if other != name:
                    copies = self._bits(w for w in self._witnesses.get(other, ()) if w != name)
                    branches.append(Branch(self._index[other], self._behind(block, other), local, copies))
        return tuple(branches)

    def _behind(self, block: tuple[str, ...], name: str) -> int:
        """The set of processes that the other members of a block reach through the named member."""
        if name != block[0]:
            return self._below[name]
        rest = self._everybody
        for other in block[1:]:
            rest &= ~self._below[other]
        return rest

    def _bits(self, names: Iterable[str]) -> int:
        return pack(self._index[name] for name in names)


def verify(graph: "nx.Graph[str]", places: Sequence[Place], names: Sequence[str] = ()) -> None:
    """Raise TopologyError unless these places make one hypertree over the links of the graph.

    Two local conditions suffice: the branches of each process partition all other processes; and the
    processes behind a branch are, from the neighbour's point of view, the neighbour and all processes behind
    its branches of other blocks. With a cycle, some process would be behind two branches.
    """
    names = names or list(graph)
    n = len(names)
    index = {name: i for i, name in enumerate(names)}
    everybody = pack(index[name] for name in graph)
    block_towards = [{b.towards: b.block for b in place.branches} for place in places]
    beside = [_beside(place) for place in places]
    for me, place in enumerate(places):
        if names[me] not in graph:
            continue
        check_place(place, me, n)
        if place.neighbours != pack(index[name] for name in graph[names[me]]):
            raise _unroutable(names[me], "is not placed among its neighbours")
        reached = 1 << me
        for branch in place.branches:
            reached |= branch.behind
            there = branch.towards
            if me not in block_towards[there]:
                raise _unroutable(names[me], f"sends to {names[there]}, which has no way back")
            onward = 1 << there | beside[there][block_towards[there][me]]
            if onward != branch.behind:
                lost = ", ".join(names[i] for i in unpack(onward ^ branch.behind))
                raise _unroutable(names[me], f"and {names[there]} do not agree on the way to {lost}")
            _verify_witnesses(names, places, me, branch)
        if reached != everybody:
            raise _unroutable(names[me], "does not reach everybody")


def _beside(place: Place) -> dict[int, int]:
    """For each block, the set of processes behind the place's branches of other blocks."""
    behind: dict[int, int] = {}
    for branch in place.branches:
        behind[branch.block] = behind.get(branch.block, 0) | branch.behind
    everybody = reach(place)
    return {block: everybody & ~reached for block, reached in behind.items()}


def _verify_witnesses(names: Sequence[str], places: Sequence[Place], me: int, branch: Branch) -> None:
    """Check that a witness forwards nothing, and that the branch lists all witnesses of the neighbour."""
    for witness in unpack(branch.copies):
        if len({b.block for b in places[witness].branches}) != 1:
            raise _unroutable(names[witness], f"is a witness of {names[branch.towards]} and forwards itself")
    reported = places[branch.towards].witnesses
    if reported and branch.copies != reported & ~(1 << me):
        raise _unroutable(names[me], f"leaves out a witness of {names[branch.towards]}")


def _unroutable(name: str, what: str) -> TopologyError:
    return TopologyError(f"routes do not fit together: {name} {what}")


Branches = Mapping[int, Sequence[Branch]]
"""Key: the process. Processes without a place in the graph are absent."""


def _cuts_in_use(branches: Branches, witnesses: Mapping[int, int]) -> Iterator[Separator]:
    """The cuts around single forwarders: each forwarder, together with its witnesses if it has any."""
    once = several = 0  # witnesses of at least one forwarder, of several
    for watching in witnesses.values():
        several |= once & watching
        once |= watching
    bridges = [(w, links) for w, links in _links_of_witnesses(branches, witnesses) if several >> w & 1]
    for me, its in branches.items():
        members = 1 << me | witnesses.get(me, 0)
        blocks: dict[int, int] = {}
        for branch in its:
            blocks[branch.block] = blocks.get(branch.block, 0) | branch.behind & ~members
        sides = [side for side in blocks.values() if side]
        for witness, links in bridges:
            if not members >> witness & 1:
                sides = _connected(sides, links | 1 << witness)
        if len(sides) > 1:
            yield Separator(members, tuple(sides))


def _sides_without(branches: Branches, witnesses: Mapping[int, int], members: int) -> tuple[int, ...]:
    """The components that remain when a set of members is removed from the graph of links in use."""
    links = {me: pack(branch.towards for branch in its) for me, its in branches.items()}
    for witness, its_links in _links_of_witnesses(branches, witnesses):
        links[witness] |= its_links
        for other in unpack(its_links):
            links[other] |= 1 << witness
    reached, sides = members, []
    for start in branches:
        side, around = 0, 1 << start & ~reached
        while around:
            side |= around
            near = 0
            for p in unpack(around):
                near |= links[p]
            around = near & ~reached & ~side
        if side:
            sides.append(side)
            reached |= side
    return tuple(sides)


def _links_of_witnesses(branches: Branches, witnesses: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """For each witness of each forwarder: the processes that send it copies, and those that get copies with
    it."""
    for forwarder, watching in witnesses.items():
        around = 1 << forwarder | watching | pack(branch.towards for branch in branches[forwarder])
        for witness in unpack(watching):
            yield witness, around & ~(1 << witness)


def _connected(sides: Iterable[int], links: int) -> list[int]:
    """The sides, with all sides that these links touch merged into one."""
    one, others = 0, []
    for side in sides:
        if side & links:
            one |= side
        else:
            others.append(side)
    return [one, *others] if one else others
