"""The cuts of the links in use: where routers leave information out.

Topological timestamping (Rodrigues and Veríssimo, rule R9) asks for one thing about a separator S: that no
chain of messages leads from one side of it to another but through its members. What could be sent over other
links of the physical graph does not matter if nothing is. All messages travel on one hypertree, and copies of
some to witnesses; so a cut of the graph of *these* links (`core.places.in_use`) separates, and every router
on a tree is one, whatever cycles the physical graph has.

In that graph a process without witnesses parts its blocks from one another: a way between two of them that
avoids it would close a cycle. With witnesses it does so together with them, since they have links with all
its neighbours. Only a witness of two forwarders can connect what the tree parts.

Who changes the routes changes these cuts: all that was sent must have arrived then (net/site_changes.py).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..core.destinations import pack, unpack
from ..core.places import Branch, Separator

Branches = Mapping[int, Sequence[Branch]]
"""By process. Those who are in no place of the graph are not among the keys."""


def cuts(branches: Branches, witnesses: Mapping[int, int]) -> Iterator[Separator]:
    """The cuts of one forwarder each: itself, and its witnesses if it has any."""
    several = _of_several(witnesses.values())
    bridges = [(w, links) for w, links in links_of_witnesses(branches, witnesses) if several >> w & 1]
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


def sides_without(branches: Branches, witnesses: Mapping[int, int], members: int) -> tuple[int, ...]:
    """The components of the graph of links in use without any set of members."""
    links = {me: pack(branch.towards for branch in its) for me, its in branches.items()}
    for witness, its_links in links_of_witnesses(branches, witnesses):
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


def links_of_witnesses(branches: Branches, witnesses: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """For each witness of each forwarder, whom it gets copies from and who gets copies along with it."""
    for forwarder, watching in witnesses.items():
        around = 1 << forwarder | watching | pack(branch.towards for branch in branches[forwarder])
        for witness in unpack(watching):
            yield witness, around & ~(1 << witness)


def _of_several(watching: Iterable[int]) -> int:
    """Those who are among several of these sets."""
    once = twice = 0
    for witnesses in watching:
        twice |= once & witnesses
        once |= witnesses
    return twice


def _connected(sides: Iterable[int], links: int) -> list[int]:
    """The sides, those that these links lead to made one."""
    one, others = 0, []
    for side in sides:
        if side & links:
            one |= side
        else:
            others.append(side)
    return [one, *others] if one else others
