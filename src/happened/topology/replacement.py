"""The topology after one process is gone for good: without that process, or with another in its place."""

from collections.abc import Iterable
from dataclasses import replace

import networkx as nx

from .communication import Topology, TopologyError
from .separators import separates


def without(topology: Topology, failed: str, heir: str | None = None) -> Topology:
    """The topology without the failed process. The heir, a present process that keeps its own links, takes
    its place in the lists of gateways and separators, where the first member forwards."""
    return _replaced(topology, failed, heir, linked=None)


def with_heir(topology: Topology, failed: str, heir: str) -> Topology:
    """The topology with an heir, new or present, in the failed process's place; the heir gets its links."""
    return _replaced(topology, failed, heir, linked=heir)


def _replaced(topology: Topology, failed: str, heir: str | None, linked: str | None) -> Topology:
    """`linked` gets the links of the failed process; None: nobody does."""
    if failed not in topology.graph:
        raise TopologyError(f"the topology has no process called {failed!r}")
    member = heir if heir is not None and heir not in topology.graph else None

    def listed(names: Iterable[str], successor: str | None) -> tuple[str, ...]:
        mapped = (successor if name == failed else name for name in names)
        return tuple(dict.fromkeys(name for name in mapped if name is not None))

    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(listed(topology.graph, heir))
    links = (listed(ends, linked) if failed in ends else ends for ends in topology.graph.edges)
    graph.add_edges_from(link for link in links if len(link) == 2)
    zones = {
        name: replace(zone, gateways=listed(zone.gateways, heir), members=listed(zone.members, member))
        for name, zone in topology.zones.items()
    }
    groups = {name: listed(members, member) for name, members in topology.groups.items()}
    claimed = dict.fromkeys(listed(members, heir) for members in topology.separators)
    return Topology(
        graph,
        frozenset(listed(sorted(topology.routers), member)),
        zones,
        {name: members for name, members in groups.items() if members},
        tuple(members for members in claimed if members and separates(graph, members)),
    )
