"""A node's part of a topology file: its place and links, everybody's names, and which processes only forward.

Assumes    every process of a system is given the same file; peers compare its digest when they meet.
Promises   the file's claims were checked (happened.topology), and the ordering protocol relays, so that
           processes without a link reach each other. Members are numbered in the order of the file; after
           changes at run time (site_changes.py), members of earlier files come first.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.destinations import pack, unpack
from ..core.errors import LocalProtocolError
from ..core.places import Place
from ..ordering import Facts, Relays, protocols

if TYPE_CHECKING:
    from ..topology import Topology


class Site(NamedTuple):
    """The place of one process in a topology."""

    source: str  # the file
    name: str
    me: int  # its index
    members: tuple[str, ...]  # all, with routers, in the order of their indices
    routers: int  # bit set: the members that only forward
    groups: Mapping[str, tuple[str, ...]]
    place: Place
    digest: str  # of the graph, its claims and routes, and `times_before`
    base: str = ""  # the digest without `times_before`
    edges: frozenset[frozenset[str]] = frozenset()  # all links, by the names at their ends
    departed: int = 0  # bit set: members of earlier topologies that this one lacks
    addresses: Mapping[str, str] = MappingProxyType({})  # those that a change has told
    times_before: int = 0  # how often this topology was there before
    witnesses: Mapping[int, int] = MappingProxyType({})  # by forwarder, a bit set
    document: Mapping[str, Any] = MappingProxyType({})  # the topology itself

    @property
    def links(self) -> tuple[str, ...]:
        return tuple(self.members[link] for link in unpack(self.place.neighbours))

    def reachable(self, peers: Mapping[str, str]) -> dict[str, str]:
        """The addresses of the processes that this one is linked with, out of everybody's."""
        if unknown := sorted(peers.keys() - set(self.members)):
            raise LocalProtocolError(
                f"{self.source} has no process called {unknown[0]!r}, which is among the peers of "
                f"{self.name!r}; there are: {', '.join(self.members[:10])}{', …' * (len(self.members) > 10)}"
            )
        if unheard := [name for name in self.links if name not in peers]:
            raise LocalProtocolError(
                f"{self.source} links {self.name!r} with {', '.join(unheard)}: say where they are, in `peers`"
            )
        return {name: peers[name] for name in self.links}

    @property
    def forwarders(self) -> frozenset[str]:
        return frozenset(self.members[router] for router in unpack(self.routers))

    def check_traffic(self, to: Iterable[int]) -> None:
        """Refuse a multicast from a router, or to one."""
        if self.routers >> self.me & 1:
            raise LocalProtocolError(
                f"{self.name!r} is a router in {self.source}: it forwards and sends nothing of its own; "
                "declare it among `processes` if it has an application"
            )
        if asked := pack(to) & self.routers:
            names = ", ".join(self.members[router] for router in unpack(asked))
            raise LocalProtocolError(
                f"{names} only forwards in {self.source} and is no destination; declare it among `processes`"
            )


def check_relays(facts: Facts, file: Path) -> None:
    """Refuse a protocol whose messages are not forwarded along links."""
    if facts.copies.relays is not Relays.ROUTERS:
        able = ", ".join(sorted(p for p, each in protocols().items() if each.copies.relays is Relays.ROUTERS))
        raise LocalProtocolError(
            f"{facts.name} sends to every destination directly and can make no use of {file}; use one of "
            f"these, whose messages travel along links: {able}"
        )


def read_site(path: Path, name: str, facts: Facts, members: Sequence[str] | None = None) -> Site:
    """The site of process `name`. Raises CausalityError if the file is wrong or lacks the process, or if the
    protocol of these facts cannot use the topology.

    members   all members in the order of their indices, for a process that is started after changes of the
              topology; default: the processes of the file
    """
    check_relays(facts, path)
    from ..topology import load  # topology needs networkx and PyYAML

    topology = load(path)
    if members is not None and (unnamed := [each for each in topology.graph if each not in members]):
        raise LocalProtocolError(
            f"`members` is {', '.join(members)}, and {path} has {unnamed[0]!r} too: with a topology, leave "
            "`members` out, or give those that the change of the topology was answered with"
        )
    if name not in topology.graph:
        names = list(topology.graph)
        some = ", ".join(names[:10]) + ", …" * (len(names) > 10)
        raise LocalProtocolError(f"{path} has no process called {name!r}; there are: {some}")
    return _site(topology, str(path), name, tuple(members or topology.graph))


def _site(
    topology: "Topology", source: str, name: str, names: tuple[str, ...], times_before: int = 0
) -> Site:
    from ..topology import derive, to_document

    routes = derive(topology, names=names)
    document = to_document(topology)
    told = json.dumps([document, routes.names, routes.places], separators=(",", ":"))
    base = hashlib.sha256(told.encode()).hexdigest()
    me = names.index(name)
    return Site(
        source,
        name,
        me,
        names,
        pack(i for i, each in enumerate(names) if each in topology.routers),
        dict(topology.groups),
        routes.places[me],
        hashlib.sha256(f"{base} {times_before}".encode()).hexdigest() if times_before else base,
        base,
        frozenset(map(frozenset, topology.graph.edges)),
        pack(i for i, each in enumerate(names) if each not in topology.graph),
        witnesses={
            names.index(forwarder): pack(map(names.index, watching))
            for forwarder, watching in routes.witnesses.items()
        },
        document=document,
    )


# What processes tell each other about another topology.


def proposal(path: Path, present: Site, addresses: Mapping[str, str], past: Sequence[str]) -> str:
    """The proposal of a file's topology as the next one, with the addresses for its new links.
    Raises CausalityError if the file is no topology, brings back a departed member, or lacks an address.

    past   the bases of all topologies so far: they tell a returning topology from its earlier self
    """
    from ..topology import load

    topology = load(path)
    for back in unpack(present.departed):
        if present.members[back] in topology.graph:
            raise LocalProtocolError(
                f"{path}: {present.members[back]!r} has left; a process that joins needs a new name"
            )
    return proposed(topology, str(path), present, addresses, past)


def proposed(
    topology: "Topology",
    source: str,
    present: Site,
    addresses: Mapping[str, str],
    past: Sequence[str],
    **more: Any,
) -> str:
    """`proposal` for a topology that was read from `source`; `more`: further entries of the proposal."""
    from ..topology import to_document

    names = [*present.members, *(name for name in topology.graph if name not in present.members)]
    new = {name for link in topology.graph.edges if frozenset(link) not in present.edges for name in link}
    if unheard := sorted(new - addresses.keys()):
        raise LocalProtocolError(
            f"{source} has new links of {', '.join(unheard)}: say where they are, in `addresses`"
        )
    addresses = {name: address for name, address in addresses.items() if name in new}
    said = {"topology": to_document(topology), "names": names, "addresses": dict(addresses)} | more
    following = site_of(json.dumps(said | {"times before": 0}), present.name)
    # The digest covers the order of the file, in which a process that begins with it reads it.
    return json.dumps(said | {"times before": past.count(following.base)})


def site_of(text: str, name: str) -> Site:
    """The site of a process in a proposed topology. Raises CausalityError if the proposal is not valid."""
    from ..topology import TopologyError, from_document, refuse

    try:
        said: dict[str, Any] = json.loads(text)
        names, addresses, times_before = tuple(said["names"]), dict(said["addresses"]), said["times before"]
        topology = from_document(said["topology"], "the proposed topology")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise TopologyError(f"the proposed topology cannot be read: {error}") from error
    if not all(isinstance(each, str) for each in (*names, *addresses, *addresses.values())):
        raise TopologyError("the proposed topology cannot be read: names and addresses are text")
    if not isinstance(times_before, int) or name not in names:
        raise TopologyError(f"the proposed topology cannot be read: it does not number {name!r}, or itself")
    refuse(topology, "the proposed topology")
    site = _site(topology, "the present topology", name, names, times_before)
    return site._replace(addresses=addresses, times_before=times_before)
