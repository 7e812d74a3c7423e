"""Topologies as GraphML, for graph editors and other tools.

Vertices are processes, edges are links, whatever direction the file gives them. A vertex with a `label`, as
graph editors write it, has that for its name, and otherwise its id. Of its other attributes two count:
`router` (true: it only forwards) and `zone` (the name of its zone, which then has no gateways of its own).
What GraphML has no words for is kept in one attribute of the graph, `structure`: the YAML
document without its links, as JSON. Where it is there, it is believed instead of the two.
"""

import json
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

import networkx as nx

from .communication import Topology, TopologyError
from .documents import MOST_BYTES, from_document, to_document

STRUCTURE = "structure"


def read_graphml(path: Path) -> Topology:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise TopologyError(f"{path}: larger than {MOST_BYTES >> 20} MiB; no topology is")
        graph = nx.read_graphml(path)
    except OSError as error:
        raise TopologyError(f"{path}: cannot be read: {error}") from error
    except (nx.NetworkXException, ParseError, ValueError, KeyError, TypeError) as error:
        raise TopologyError(f"{path}: not GraphML I can read: {error}") from error
    if STRUCTURE not in graph.graph:  # which speaks of ids
        graph = _named_by_labels(graph, str(path))
    loops = sorted({one for one, other in graph.edges() if one == other})
    if loops:
        raise TopologyError(f"{path}: linked with itself: {', '.join(map(repr, loops))}; remove that edge")
    # A link given once in each direction is one link.
    links = [list(link) for link in dict.fromkeys(tuple(sorted(edge)) for edge in graph.edges())]
    document = _structure(graph, str(path)) | {"links": links}
    topology = from_document(document, str(path))
    undeclared = [name for name in graph if name not in topology.graph]
    if undeclared:
        raise TopologyError(f"{path}: {STRUCTURE} leaves out {', '.join(map(repr, undeclared))}")
    return topology


def _named_by_labels(graph: Any, source: str) -> Any:
    names: dict[Any, str] = {}
    ids: dict[str, Any] = {}
    for vertex, label in graph.nodes(data="label"):
        name = str(label).strip() if label is not None else ""
        names[vertex] = name = name or str(vertex)
        if name in ids:
            raise TopologyError(
                f"{source}: vertices {ids[name]!r} and {vertex!r} are both called {name!r}; label them apart"
            )
        ids[name] = vertex
    return nx.relabel_nodes(graph, names)


def _structure(graph: Any, source: str) -> dict[str, Any]:
    text = graph.graph.get(STRUCTURE)
    if text is not None:
        try:
            structure = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise TopologyError(f"{source}: {STRUCTURE} is not JSON: {error}") from error
        if not isinstance(structure, dict):
            raise TopologyError(f"{source}: {STRUCTURE} needs an object, not {text!r:.60}")
        return structure
    world: dict[str, Any] = {"processes": [], "routers": [], "zones": {}}
    for name, attributes in graph.nodes(data=True):
        zone = attributes.get("zone")
        empty: dict[str, Any] = {"processes": [], "routers": [], "gateways": [], "links": []}
        holder = world if zone is None else world["zones"].setdefault(zone, empty)
        holder["routers" if attributes.get("router", False) is True else "processes"].append(name)
    return world


def write_graphml(topology: Topology, path: Path) -> None:
    structure = to_document(topology)
    del structure["links"]
    graph = nx.Graph(topology.graph, **{STRUCTURE: json.dumps(structure)})
    zones = {name: zone.name for zone in topology.zones.values() for name in zone.members}
    for name in graph:
        graph.nodes[name]["router"] = name in topology.routers
        if name in zones:
            graph.nodes[name]["zone"] = zones[name]
    nx.write_graphml(graph, path)
