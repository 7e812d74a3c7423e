"""The false claims of a topology, each with the names of the processes or links that disprove it."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import networkx as nx

from .communication import Topology, TopologyError
from .separators import in_order, parts, parts_without_each, past

SHOWN = 6  # names shown of a long list


def refuse(topology: Topology, source: str = "topology") -> None:
    """Raise TopologyError if the topology has problems: the first one in full, and how many more."""
    found = problems(topology)
    if found:
        more = f" (and {len(found) - 1} more: see `happened topology check`)" if len(found) > 1 else ""
        raise TopologyError(f"{source}: {found[0]}{more}")


def problems(topology: Topology) -> list[str]:
    found = [*_unknown_names(topology), *_shared_members(topology)]
    apart = parts(topology.graph, ())
    if len(apart) > 1:
        listed = " | ".join(listing(in_order(topology.graph, part)) for part in apart[:SHOWN])
        return [*found, f"the graph is disconnected, in {len(apart)} parts: {listed}; link them"]
    return [*found, *_leaking_zones(topology), *_false_separators(topology)]


def single_points(topology: Topology) -> dict[str, list[list[str]]]:
    """The processes without which some applications cannot reach each other; for each, the groups of
    applications that it separates. No process can take over its role, since no other path leads past it."""
    applications = frozenset(topology.applications)
    place = {name: i for i, name in enumerate(topology.graph)}
    found = {}
    for name, sides in parts_without_each(topology.graph).items():
        cut = [part & applications for part in sides if not part.isdisjoint(applications)]
        if len(cut) > 1:  # most cuts are small: sorting them is faster than walking through the graph
            found[name] = [sorted(part, key=place.__getitem__) for part in cut]
    return {name: found[name] for name in topology.graph if name in found}


def _unknown_names(topology: Topology) -> Iterator[str]:
    for what, members in (
        *((f"group {name!r}", members) for name, members in topology.groups.items()),
        *((f"separator {listing(members)}", members) for members in topology.separators),
    ):
        unknown = [name for name in members if name not in topology.graph]
        if unknown:
            yield f"{what} names {listing(unknown)}, unknown here; declare it as a process"
    for name, members in topology.groups.items():
        routers = [member for member in members if member in topology.routers]
        if routers:
            yield f"group {name!r} names {listing(routers)}, a router: routers only forward"


def _shared_members(topology: Topology) -> Iterator[str]:
    homes: dict[str, list[str]] = defaultdict(list)
    for zone in topology.zones.values():
        for member in zone.members:
            homes[member].append(zone.name)
    for member, zones in homes.items():
        if len(zones) > 1:
            yield f"{member!r} is in two zones, {listing(zones)}; choose one, or make it a gateway of both"


def _leaking_zones(topology: Topology) -> Iterator[str]:
    """Zones whose gateways do not separate them from the rest, with the links that bypass the gateways."""
    for zone in topology.zones.values():
        inside = topology.inside(zone.name)
        if not zone.gateways or not inside:
            continue
        # A path from inside to outside that avoids the gateways has a first link that leaves the zone.
        leaks = sorted((a, b) for a, b in nx.edge_boundary(topology.graph, inside) if b not in zone.gateways)
        if leaks:
            ways = ", ".join(f"{a} – {b}" for a, b in leaks[:SHOWN])
            gateways = listing(zone.gateways)
            yield f"zone {zone.name!r} is not behind its gateways {gateways}: {ways} goes past them"


def _false_separators(topology: Topology) -> Iterator[str]:
    for members in topology.separators:
        if any(name not in topology.graph for name in members) or len(parts(topology.graph, members)) > 1:
            continue
        way = past(topology.graph, members)
        if way:
            why = f"{' – '.join(way)} connects past it"
        else:
            around = [name for name in topology.graph if name not in members]
            why = f"without it {listing(around) or 'nobody'} is left, in one piece"
        yield f"{listing(members)} is no separator: {why}"


def listing(names: Iterable[str] | Sequence[str]) -> str:
    """Names in braces; only the first few of a long list."""
    every = list(names)
    rest = f", … {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return "{" + ", ".join(every[:SHOWN]) + rest + "}" if every else ""
