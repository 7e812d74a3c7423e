"""Topologies from YAML, or from the nested lists and mappings that YAML stands for, and from GraphML.

A document describes a zone, the world. Every zone, the world included, may have

    processes   names
    routers     names of processes that only forward
    zones       nested zones: a name and the contents, a mapping like this one or just a list of processes
    links       lists of two or more names, linked pairwise; or `all`: link all processes below pairwise

A nested zone may also have

    gateways    names; the first forwards, the others are witnesses. Without this key a zone gets a router
                of its own name; with an empty list it has none, and `links` of an outer zone reach into it

The world may also have

    groups      a name, and a list of processes, for each group
    separators  lists of names that are claimed to be separators

Without `links`, each gateway of a zone is linked with the other gateways and with all processes and routers
of the zone and the gateways of its direct subzones; in a zone without gateways, these are linked pairwise.
A gateway is a router unless some zone names it among its processes.

Other keys, names that are not text, and repeated names are refused with their position in the document.

GraphML is for graph editors and other tools. Vertices are processes; edges are links, whatever direction
the file gives them. A vertex's name is its `label`, as graph editors write it, or else its id. Two other
attributes count: `router` (true: it only forwards) and `zone` (the name of its zone, which then has no
gateways of its own). The graph's attribute `structure` holds everything that GraphML cannot express: the
YAML document without its links, as JSON. If it is present, it overrides `router` and `zone`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations, product
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

import networkx as nx
import yaml

from .communication import MOST_LINKS, Topology, TopologyError, Zone

MOST_BYTES = 16 * 1024 * 1024
DEEPEST = 32  # greatest nesting depth of zones
EVERYWHERE = {"processes", "routers", "zones", "links"}
IN_A_ZONE = EVERYWHERE | {"gateways"}
IN_THE_WORLD = EVERYWHERE | {"groups", "separators"}


def read_yaml(path: Path) -> Topology:
    try:
        _refuse_large(path)
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise TopologyError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TopologyError(f"{path}: cannot be read: {error}") from error
    return from_document(_parse(text, str(path)), str(path))


def _refuse_large(path: Path) -> None:
    if path.stat().st_size > MOST_BYTES:
        raise TopologyError(f"{path}: larger than {MOST_BYTES >> 20} MiB; no topology is")


def from_document(document: Any, source: str = "") -> Topology:
    """A topology from nested mappings and lists; `source` is named in errors."""
    if document is None:
        raise TopologyError(
            f"{source or 'document'}: empty; name at least one process, as in `processes: [a, b]`"
        )
    reading = _Declarations(source)
    reading.zone((), None, document)
    return reading.topology()


class _Declarations:
    """The declarations read so far, and where each was made."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._processes: dict[str, str] = {}  # name -> place of its declaration
        self._routers: dict[str, str] = {}
        self._gateways: dict[str, None] = {}
        self._zones: dict[str, Zone] = {}
        self._links: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = []  # place, one end, other end
        self._groups: dict[str, tuple[str, ...]] = {}
        self._separators: list[tuple[str, ...]] = []

    def zone(self, path: tuple[str, ...], parent: str | None, content: Any) -> tuple[str, ...]:
        """Read a zone and its contents; return its gateways."""
        place = ".".join(path)
        if len(path) > 2 * DEEPEST:
            raise self._error(place, f"zones are nested more than {DEEPEST} deep")
        if path and isinstance(content, list):
            content = {"processes": content}
        allowed = IN_A_ZONE if path else IN_THE_WORLD
        content = self._mapping(content, place, allowed)
        name = path[-1] if path else None
        members: tuple[str, ...] = ()
        for key, known in (("processes", self._processes), ("routers", self._routers)):
            names = self._names(content.get(key, ()), f"{place}.{key}")
            members += names
            for each in names:
                known.setdefault(each, f"{place}.{key}")  # `checks.problems` reports a process in two zones
        gateways: tuple[str, ...] = ()
        if name is not None:
            gateways = self._names(content.get("gateways", [name]), f"{place}.gateways")
            if name in self._zones:
                raise self._error(place, f"there are two zones called {name!r}")
            self._zones[name] = Zone(name, parent, gateways, members)
            self._gateways |= dict.fromkeys(gateways)
        stations = [*members]
        inner = self._mapping(content.get("zones", {}), f"{place}.zones", None)
        for child, inside in inner.items():
            where = (*path, "zones", self._name(child, f"{place}.zones"))
            stations += self.zone(where, name, inside)
        self._link(content.get("links"), f"{place}.links", stations, gateways)
        if not path:
            self._claims(content)
        return gateways

    def _claims(self, content: Mapping[str, Any]) -> None:
        for name, members in self._mapping(content.get("groups", {}), "groups", None).items():
            group = self._name(name, "groups")
            self._groups[group] = self._names(members, f"groups.{group}", least=1)
        for i, members in enumerate(self._list(content.get("separators", ()), "separators")):
            self._separators.append(self._names(members, f"separators[{i}]", least=1))

    def _link(self, links: Any, place: str, stations: list[str], gateways: tuple[str, ...]) -> None:
        around = tuple(name for name in dict.fromkeys(stations) if name not in gateways)
        if links is None and gateways:
            self._links.append((place, around, gateways))
            self._links.append((place, gateways, gateways))
        elif links is None or links == "all":
            everybody = (*around, *gateways)
            self._links.append((place, everybody, everybody))
        else:
            for i, link in enumerate(self._list(links, place, "a list of links, or the word `all`")):
                ends = self._names(link, f"{place}[{i}]", least=2)
                self._links.append((f"{place}[{i}]", ends, ends))

    def topology(self) -> Topology:
        only_forward = [*self._routers, *(g for g in self._gateways if g not in self._routers)]
        for name in self._routers:
            if name in self._processes:
                places = f"{_shown(self._processes[name])} and {_shown(self._routers[name])}"
                raise self._error("", f"{name!r} is declared as a process and as a router: {places}")
        routers = [name for name in only_forward if name not in self._processes]
        graph: nx.Graph[str] = nx.Graph()
        graph.add_nodes_from([*self._processes, *routers])
        if not graph:
            raise self._error("", "no process is named; begin with `processes: [a, b]`")
        most = 0  # upper bound on the links: networkx counts all links on each call
        for place, one, other in self._links:
            unknown = [name for name in one if name not in graph]
            if unknown:
                raise self._error(place, f"{_listed(unknown)} is no process of this file; declare it under "
                                         "`processes`, `routers` or `gateways`")  # fmt: skip
            graph.add_edges_from(combinations(one, 2) if one is other else product(one, other))
            most += len(one) * len(other)
            if most > MOST_LINKS and graph.number_of_edges() > MOST_LINKS:
                raise self._error(place, f"makes more than {MOST_LINKS:,} links; use gateways between zones")
        return Topology(graph, frozenset(routers), self._zones, self._groups, tuple(self._separators))

    def _mapping(self, value: Any, place: str, allowed: set[str] | None) -> Mapping[Any, Any]:
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            raise self._error(place, f"needs names and what they stand for, not {value!r:.60}")
        unknown = [key for key in value if allowed is not None and key not in allowed]
        if allowed is not None and unknown:
            known = ", ".join(sorted(allowed))
            raise self._error(place, f"no key is called {_listed(unknown)} here; there are: {known}")
        return value

    def _list(self, value: Any, place: str, wanted: str = "a list") -> list[Any]:
        if value is None:
            return []
        if not isinstance(value, list | tuple):
            raise self._error(place, f"needs {wanted}, not {value!r:.60}")
        return list(value)

    def _names(self, value: Any, place: str, *, least: int = 0) -> tuple[str, ...]:
        names = tuple(self._name(name, place) for name in self._list(value, place, "a list of names"))
        if len(set(names)) < len(names):
            twice = dict.fromkeys(name for i, name in enumerate(names) if name in names[:i])
            raise self._error(place, f"names {_listed(twice)} twice")
        if len(names) < least:
            raise self._error(place, f"needs at least {least} name{'s' * (least > 1)}, not {len(names)}")
        return names

    def _name(self, value: Any, place: str) -> str:
        if not isinstance(value, str):
            raise self._error(
                place, f"a name is text, not {value!r:.60}; put it in quotes if it is meant as one"
            )
        if not value.strip() or not value.isprintable():
            raise self._error(place, f"a name has printable characters, not {value!r:.60}")
        return value

    def _error(self, place: str, reason: str) -> TopologyError:
        return TopologyError(": ".join(part for part in (self._source, _shown(place), reason) if part))


def _shown(place: str) -> str:
    return place.removeprefix(".")


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(repr(name) for name in names)


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    """A YAML loader that refuses repeated keys and aliases, since a reader may misunderstand them."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            problem = "aliases are not used in topologies"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"{key!r} is given twice", problem_mark=key_node.start_mark
                )
            seen.add(str(key))
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


def _parse(text: str, source: str) -> Any:
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark is not None else ""
        raise TopologyError(f"{source}{line}: not YAML I can read: {error.problem}") from error
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError) as error:
        # PyYAML does not check values against tags: `!!int ""`, `!!bool x`, `!!timestamp x`, `!!map [a]`.
        raise TopologyError(f"{source}: not YAML I can read: {error}") from error
    except RecursionError as error:
        raise TopologyError(f"{source}: nested too deeply") from error


def written(document: Mapping[str, Any]) -> str:
    """The YAML text of a document."""
    text: str = yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, default_flow_style=None)
    return text


def to_document(topology: Topology) -> dict[str, Any]:
    """The document of a topology, with every link spelt out; `from_document` restores the topology."""
    declared = {name for zone in topology.zones.values() for name in (*zone.members, *zone.gateways)}

    def kinds(names: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
        for key, router in (("processes", False), ("routers", True)):
            chosen = [name for name in names if (name in topology.routers) is router]
            if chosen:
                yield key, chosen

    def zones(parent: str | None) -> dict[str, Any]:
        return {
            zone.name: dict(kinds(zone.members)) | {"gateways": list(zone.gateways), "links": []}
            | ({"zones": inner} if (inner := zones(zone.name)) else {})
            for zone in topology.zones.values()
            if zone.parent == parent
        }  # fmt: skip

    # A gateway that is an application process and a member of no zone belongs to the world.
    members = {name for zone in topology.zones.values() for name in zone.members}
    own = [
        name
        for name in topology.graph
        if name not in declared or (name not in topology.routers and name not in members)
    ]
    document: dict[str, Any] = dict(kinds(own))
    if topology.zones:
        document["zones"] = zones(None)
    document["links"] = [list(edge) for edge in topology.graph.edges]
    if topology.groups:
        document["groups"] = {name: list(members) for name, members in topology.groups.items()}
    if topology.separators:
        document["separators"] = [list(members) for members in topology.separators]
    return document


STRUCTURE = "structure"


def read_graphml(path: Path) -> Topology:
    try:
        _refuse_large(path)
        graph = nx.read_graphml(path)
    except OSError as error:
        raise TopologyError(f"{path}: cannot be read: {error}") from error
    except (nx.NetworkXException, ParseError, ValueError, KeyError, TypeError) as error:
        raise TopologyError(f"{path}: not GraphML I can read: {error}") from error
    if STRUCTURE not in graph.graph:  # `structure` uses vertex ids
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
