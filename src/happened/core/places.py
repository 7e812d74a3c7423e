"""The place of a process in a communication graph: what a topological machine must know of the graph, as
plain data.

The graph has an edge between two processes that may address each other; routers are processes in it. Messages
are routed on one hypertree of *blocks* that meet in single processes and form no cycle; a block is a link, or
a broadcast network whose members address each other directly. Sets of processes are bit sets. The links that
carry routed messages and copies for witnesses are a subgraph, the links in use; a vertex cut of that subgraph
separates processes, since no message takes another link.

Invariant  `behind` of the branches of a place are disjoint and do not contain the place itself; branches,
           copies and witnesses are neighbours. `check` refuses anything else.
"""

from typing import Any, NamedTuple

from .destinations import unpack
from .errors import require


class Branch(NamedTuple):
    """A neighbour that forwards messages, and the processes that it reaches."""

    towards: int
    behind: int  # all processes reached through `towards`, itself included
    block: int = 0  # a message that arrives from a block is forwarded only to other blocks
    copies: int = 0  # the witnesses of `towards`: they are addressed along with it


class Separator(NamedTuple):
    """A vertex cut S of the graph of links in use (`in_use`), and the components of that graph without S."""

    members: int
    components: tuple[int, ...]


class WatchedForwarder(NamedTuple):
    """What a witness must know of a forwarder to work out which messages it still has to forward."""

    forwarder: int
    branches: tuple[Branch, ...]


class Place(NamedTuple):
    neighbours: int
    branches: tuple[Branch, ...]
    separators: tuple[Separator, ...] = ()  # the separators that contain this process
    witnesses: int = 0  # bit set: processes that get a copy of everything this process sends
    watches: tuple[WatchedForwarder, ...] = ()  # the forwarders that the process is a witness of


def onward(branches: tuple[Branch, ...], origin: int, dests: int) -> list[Branch]:
    """The branches on which a message of `origin` is forwarded: none in the block that it arrives from."""
    source = next((branch.block for branch in branches if branch.behind >> origin & 1), None)
    return [branch for branch in branches if branch.behind & dests and branch.block != source]


def outgoing(place: Place, me: int, dests: int) -> int:
    """The neighbours to which process `me` at this place sends a message for `dests`: the next hops towards
    `dests`, and witnesses."""
    following = onward(place.branches, me, dests)
    links = place.witnesses if following else 0
    for branch in following:
        links |= 1 << branch.towards | branch.copies
    return links & place.neighbours & ~(1 << me)


def reach(place: Place) -> int:
    """The set of processes that are behind some branch."""
    reached = 0
    for branch in place.branches:
        reached |= branch.behind
    return reached


def in_use(place: Place) -> int:
    """The neighbours with which this process exchanges messages: those on routes, and those that get or send
    copies for witnesses; all neighbours if nothing is routed."""
    if not place.branches:
        return place.neighbours
    links = place.witnesses
    for branch in place.branches:
        links |= 1 << branch.towards | branch.copies
    for watch in place.watches:
        links |= 1 << watch.forwarder
        for branch in watch.branches:  # a process that sends to the forwarder sends a copy to us, its witness
            links |= 1 << branch.towards
    return links & place.neighbours  # a watched forwarder has a branch towards ourselves


def senders_by_link(place: Place) -> dict[int, int]:
    """Per neighbour, the processes whose messages may arrive over the link with it: all processes if we are a
    witness of that neighbour, otherwise those behind it, for us or for a forwarder whose witness we are."""
    senders: dict[int, int] = {}
    for branches in (place.branches, *(watch.branches for watch in place.watches)):
        for branch in branches:
            senders[branch.towards] = senders.get(branch.towards, 0) | branch.behind
    for watch in place.watches:
        senders[watch.forwarder] = -1
    return senders


def onward_by_link(place: Place) -> dict[int, int]:
    """Per neighbour that forwards to us, the neighbours to which we may forward its messages, copies
    included."""
    onward = {}
    for branch in place.branches:
        onto = place.witnesses
        for other in place.branches:
            if other.block != branch.block:
                onto |= 1 << other.towards | other.copies
        onward[branch.towards] = onto & ~(1 << branch.towards)
    return onward


def alone(me: int, n: int) -> Place:
    """The place of a process in a single zone: it addresses every other and forwards or filters nothing."""
    others = ((1 << n) - 1) & ~(1 << me)
    return Place(others, tuple(Branch(p, 1 << p) for p in unpack(others)))


def check(place: Place, me: int, n: int) -> None:
    """Raise if this place is impossible for process `me` of n."""
    everybody, itself = (1 << n) - 1, 1 << me
    strangers = place.neighbours & (itself | ~everybody)
    require(not strangers, f"the neighbours of process {me} must be other processes, out of {n}")
    reached = 0
    for branch in place.branches:
        strangers = (1 << branch.towards | branch.copies) & ~place.neighbours
        why = f"process {me} addresses its neighbours only, and {_names(strangers)} is not one"
        require(not strangers, why)
        require(
            not branch.behind & (reached | itself | ~everybody) and branch.behind >> branch.towards & 1,
            f"the branch of process {me} towards {branch.towards} must reach that process, and "
            "processes that no other branch reaches",
        )
        reached |= branch.behind
    strangers = place.witnesses & ~place.neighbours
    why = f"the witnesses of process {me} must be among its neighbours; {_names(strangers)} is not"
    require(not strangers, why)
    for separator in place.separators:
        _check_separator(separator, me, everybody)


def _check_separator(separator: Separator, me: int, everybody: int) -> None:
    name = "{" + _names(separator.members) + "}"
    own = separator.members >> me & 1 and not separator.members & ~everybody
    require(own, f"process {me} filters at the separators it belongs to, and not at {name}")
    covered = separator.members
    for component in separator.components:
        twice = component & covered
        require(not twice, f"process {_names(twice)} is on two sides of separator {name}")
        covered |= component
    missing = everybody & ~covered
    require(covered == everybody, f"process {_names(missing)} is on no side of separator {name}")


def _names(processes: int) -> str:
    return ", ".join(map(str, unpack(processes)))


def restored(fields: tuple[Any, ...]) -> Place:
    """Rebuild a place from the nested tuples that were made of it."""
    neighbours, branches, separators, witnesses, watches = fields
    return Place(
        neighbours,
        tuple(Branch(*branch) for branch in branches),
        tuple(Separator(*separator) for separator in separators),
        witnesses,
        tuple(WatchedForwarder(forwarder, tuple(Branch(*b) for b in its)) for forwarder, its in watches),
    )
