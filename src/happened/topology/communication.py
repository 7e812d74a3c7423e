"""Who can send to whom directly, who administers whom, and what is claimed about both.

A topology is a value: the communication graph (vertices are processes, routers among them; an edge is a
link that works both ways), the zones of its administrative structure, named groups of destinations, and
sets that somebody claims to be separators. Its claims may be false; `checks.problems` judges them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import networkx as nx

from ..core.errors import CausalityError

MOST_LINKS = 1_000_000
"""A zone of 1,500 processes linked pairwise would already make more; a file that asks for it is refused."""


class TopologyError(CausalityError):
    """A topology cannot be read, or claims what is not so; names the file, the place and the offenders."""


@dataclass(frozen=True, slots=True)
class Zone:
    """A site, a department, a node: whatever is administered as one.

    `gateways` are claimed to separate its inside from the rest of the world, and stand outside both; the
    first one forwards, the others are witnesses. A gateway may serve several zones; a member has one.
    """

    name: str
    parent: str | None
    gateways: tuple[str, ...]
    members: tuple[str, ...]  # directly in it, those of zones within not included


@dataclass(frozen=True, slots=True)
class Topology:
    graph: "nx.Graph[str]"  # vertices in the order in which processes were declared
    routers: frozenset[str] = frozenset()  # forward, and are no destinations of the application
    zones: Mapping[str, Zone] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    separators: tuple[tuple[str, ...], ...] = ()  # claimed; of each, the first forwards

    @property
    def applications(self) -> tuple[str, ...]:
        """The processes that are no routers, in the order of their declaration."""
        return tuple(name for name in self.graph if name not in self.routers)

    def inside(self, zone: str) -> frozenset[str]:
        """Everything in a zone and in the zones within it, save the zone's own gateways."""
        within: set[str] = set(self.zones[zone].members)
        for inner in self.zones.values():
            if inner.parent == zone:
                within |= self.inside(inner.name) | set(inner.gateways)
        return frozenset(within - set(self.zones[zone].gateways))


def from_traffic(sends: Iterable[tuple[str, Iterable[str]]]) -> Topology:
    """The graph that traffic shows: (sender, destinations) of each message; nobody is linked to itself."""
    graph: nx.Graph[str] = nx.Graph()
    for sender, destinations in sends:
        graph.add_node(sender)
        graph.add_edges_from((sender, to) for to in destinations if to != sender)
    return Topology(graph)
