"""Who can send to whom directly, who administers whom, and what is claimed about both.

A topology is a value: the communication graph (vertices are processes, routers among them; an edge is a
bidirectional link), the zones of its administrative structure, named groups of destinations, and sets that
its author claims to be separators. The claims may be false; `checks.problems` tests them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import networkx as nx

from ..core.errors import CausalityError

MOST_LINKS = 1_000_000
"""A zone of 1,500 processes linked pairwise has more links; a file that asks for more is refused."""


class TopologyError(CausalityError):
    """A topology is unreadable or makes a false claim; names the file, the place and the names concerned."""


@dataclass(frozen=True, slots=True)
class Zone:
    """A unit of administration: a site, a department, a machine.

    `gateways` are claimed to separate the zone's inside from all other processes, and belong to neither; the
    first forwards, the others are witnesses. A gateway may serve several zones; a member has one zone.
    """

    name: str
    parent: str | None
    gateways: tuple[str, ...]
    members: tuple[str, ...]  # direct members only, without those of nested zones


@dataclass(frozen=True, slots=True)
class Topology:
    graph: "nx.Graph[str]"  # vertices in the order in which processes were declared
    routers: frozenset[str] = frozenset()  # processes that forward and are no destinations of the application
    zones: Mapping[str, Zone] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    separators: tuple[tuple[str, ...], ...] = ()  # claimed to be separators; the first member forwards

    @property
    def applications(self) -> tuple[str, ...]:
        """The processes that are no routers, in the order in which they were declared."""
        return tuple(name for name in self.graph if name not in self.routers)

    def inside(self, zone: str) -> frozenset[str]:
        """All members of a zone and of its nested zones, without the zone's own gateways."""
        within: set[str] = set(self.zones[zone].members)
        for inner in self.zones.values():
            if inner.parent == zone:
                within |= self.inside(inner.name) | set(inner.gateways)
        return frozenset(within - set(self.zones[zone].gateways))


def from_traffic(sends: Iterable[tuple[str, Iterable[str]]]) -> Topology:
    """The graph of (sender, destinations) pairs, one for each message; no process is linked to itself."""
    graph: nx.Graph[str] = nx.Graph()
    for sender, destinations in sends:
        graph.add_node(sender)
        graph.add_edges_from((sender, to) for to in destinations if to != sender)
    return Topology(graph)
