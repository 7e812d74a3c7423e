"""Suggest zones and gateways from how often each process sends to each other one.

Zones are communities: sets whose members send to one another more often than chance predicts (maximal
modularity, by the method of Blondel, Guillaume, Lambiotte & Lefebvre, "Fast unfolding of communities in large
networks", 2008, a local search: good, not always best). Each zone is a broadcast network, and its gateway is
the member with the most traffic to other zones, whose own messages need no extra hop. Gateways, and processes
in no zone, are linked with each other directly. There are two levels, however many zones.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import networkx as nx

Volumes = Mapping[tuple[str, str], int]
"""How many copies of messages went from one process to another."""

_SEED = 1  # fixed, so that every search starts alike


def suggest(volumes: Volumes, processes: Iterable[str] = ()) -> dict[str, Any]:
    """The document of a topology (see `documents`); it has no zones if the traffic shows none.

    `processes` are added whether they send or not.
    """
    zones = [zone for zone in _communities(volumes) if len(zone) > 1]
    if len(zones) < 2:
        zones = []
    home = {name: i for i, zone in enumerate(zones) for name in zone}
    crossing: Counter[str] = Counter()
    for (sender, to), copies in volumes.items():
        if home.get(sender, sender) != home.get(to, to):
            crossing[sender] += copies
            crossing[to] += copies
    gateways = [max(zone, key=lambda name: crossing[name]) for zone in zones]
    everybody = dict.fromkeys([*sorted({name for pair in volumes for name in pair}), *processes])
    inner = home.keys() - set(gateways)
    document: dict[str, Any] = {"processes": [name for name in everybody if name not in inner]}
    if zones:
        document["zones"] = {
            f"zone-{gateway}": {
                "processes": [name for name in zone if name != gateway],
                "gateways": [gateway],
                "links": "all",
            }
            for zone, gateway in zip(zones, gateways, strict=True)
        }
    return document


def kept_inside(document: Mapping[str, Any], volumes: Volumes) -> float:
    """The share of copies whose sender and destination are in one zone of a document of `suggest`."""
    home: dict[str, str] = {}
    for name, zone in document.get("zones", {}).items():
        home |= dict.fromkeys((*zone["processes"], *zone["gateways"]), name)
    inside = sum(n for (a, b), n in volumes.items() if a in home and home[a] == home.get(b))
    return inside / max(sum(volumes.values()), 1)


def _communities(volumes: Volumes) -> list[list[str]]:
    """The communities and their members sorted by name: the same traffic gives the same zones."""
    names = sorted({name for pair in volumes for name in pair})
    index = {name: i for i, name in enumerate(names)}
    graph: nx.Graph[int] = nx.Graph()  # of numbers: the order of a set of strings differs from run to run
    graph.add_nodes_from(range(len(names)))
    for (sender, to), copies in sorted(volumes.items()):
        a, b = index[sender], index[to]
        if a != b:
            graph.add_edge(a, b, weight=copies + graph.get_edge_data(a, b, {"weight": 0})["weight"])
    found = nx.community.louvain_communities(graph, seed=_SEED) if names else []
    return sorted(sorted(names[i] for i in members) for members in found)
