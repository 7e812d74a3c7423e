"""What a node takes from a topology file: its place and links, everybody's names, and who only forwards.

Assumes    every process of a system is given the same file; peers compare its digest when they meet.
Promises   what the file claims was checked (happened.topology), and the ordering protocol relays, so that two
           processes without a link reach each other. Members are numbered in the order of the file.
Leaves out changes of the file while the system runs: nobody joins or leaves.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ..core.destinations import pack, unpack
from ..core.errors import LocalProtocolError
from ..core.places import Place
from ..ordering import Facts, Relays, protocols


class Site(NamedTuple):
    """The part of a topology that one process stands in."""

    source: str  # the file
    name: str
    me: int  # its index
    members: tuple[str, ...]  # routers among them, in the order of their indices
    routers: int  # bit set: those that only forward
    groups: Mapping[str, tuple[str, ...]]
    place: Place
    digest: str  # of the graph, its claims, and the routes that follow from them

    @property
    def links(self) -> tuple[str, ...]:
        """The names of those whom this process is linked with."""
        return tuple(self.members[link] for link in unpack(self.place.neighbours))

    def reachable(self, peers: Mapping[str, str]) -> dict[str, str]:
        """The addresses of those whom this process is linked with, out of everybody's."""
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

    def check_members(self, members: Sequence[str] | None) -> None:
        if members is not None and tuple(members) != self.members:
            raise LocalProtocolError(
                f"`members` is {', '.join(members)}, and {self.source} has {', '.join(self.members)}: with a "
                "topology, leave `members` out"
            )

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
    """Refuse a protocol whose messages do not travel along links."""
    if facts.relays is not Relays.ROUTERS:
        able = ", ".join(sorted(p for p, each in protocols().items() if each.relays is Relays.ROUTERS))
        raise LocalProtocolError(
            f"{facts.name} sends to every destination directly and can make no use of {file}; use one of "
            f"these, whose messages travel along links: {able}"
        )


def read_site(path: Path, name: str, facts: Facts) -> Site:
    """The site of process `name`. Raises CausalityError if the file is wrong, does not have it, or the
    protocol of these facts cannot use it."""
    check_relays(facts, path)
    from ..topology import derive, load, to_document  # which need networkx and PyYAML

    topology = load(path)
    routes = derive(topology)
    if name not in routes.names:
        raise LocalProtocolError(
            f"{path} has no process called {name!r}; there are: {', '.join(routes.names[:10])}"
            f"{', …' * (len(routes.names) > 10)}"
        )
    me = routes.names.index(name)
    told = json.dumps([to_document(topology), routes.names, routes.places], separators=(",", ":"))
    routers = pack(i for i, each in enumerate(routes.names) if each in topology.routers)
    return Site(
        str(path),
        name,
        me,
        routes.names,
        routers,
        dict(topology.groups),
        routes.places[me],
        hashlib.sha256(told.encode()).hexdigest(),
    )
