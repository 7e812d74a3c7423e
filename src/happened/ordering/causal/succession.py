"""Processes that join a communication graph, new links, and routers that fail (the report's §4.4).

Each function takes the machines of all processes by index and changes them at once: the report leaves the
agreement on a membership to a membership service, and so does this. `places` are those of the new graph, for
everybody who stays. A router that fails stays failed; whoever succeeds it is another process.

(i)   A newcomer that changes no separator, and (ii) one that connects parts never connected before: `admit`
      finds no separator that stopped being one, so there is nothing to learn. Messages name their
      destinations one by one: a group's name, read after the newcomer is in it, would block others.
(iii) A newcomer or a new link that leads past a separator, one of this graph or of an earlier one: what was
      left out of messages there can now be needed on the other side. `admit` gives the histories of all to
      the newcomer, or to both ends of the link, which must have delivered what these name.
      Where the way between two processes changes, what they sent each other must have arrived: on the
      new way, later messages do not follow it.
(iv)  A router that was the only way: `succeed` with its journal, with a witness, or with everybody's history.
      Its channels must have been flushed before: whatever it sent has arrived, and whatever was sent to it
      has arrived at the journal's machine or at the witness. What it sent may be known to nobody yet, and a
      witness not yet told of it would send past it. The successor has no more links than it and the router
      had; if it is to have some, `admit` them next.
"""

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import TypeVar

from ...core.destinations import unpack
from ...core.errors import LocalProtocolError
from ...core.places import Branch, Place, Watch, check
from ..machine import Effect
from .histories import Histories
from .topological import Topological

M = TypeVar("M", Histories, Topological)


def admit(machines: MutableMapping[int, M], places: Mapping[int, Place], newcomer: M | None = None) -> None:
    """Move everybody to the places of a graph with more processes or links: scenarios (i), (ii) and (iii).

    Refused, and nothing changed, while a process at a new link has yet to deliver what the others know of.
    """
    everybody: dict[int, M] = {**machines, **({newcomer.me: newcomer} if newcomer is not None else {})}
    _check_all(places, list(everybody.values()))
    before = {p: machine.place for p, machine in machines.items()}
    # Not only the members of separators that stop being one now: what was left out at one that an earlier
    # change has led past is known to those who learnt it then, and to no one else behind them.
    told = [entry for machine in machines.values() for entry in machine.history()]
    learning = [newcomer] if newcomer is not None and _leads_past(before, places[newcomer.me]) else []
    for p, machine in machines.items():
        # A newcomer's own neighbours need nothing: whatever takes the new way passes the newcomer.
        if places[p].neighbours & ~before[p].neighbours & ~_bit(newcomer):
            learning.append(machine)
    for machine in learning:
        if missing := machine.awaits(told):
            names = ", ".join(f"M{name}" for name in dict.fromkeys(missing))
            raise LocalProtocolError(f"process {machine.me} must deliver {names} before it gets a new link")
    for machine in machines.values():
        if newcomer is not None:
            machine.join(newcomer.me)
    for machine in learning:
        machine.adopt(told)
    _move(machines, places)
    if newcomer is not None:
        _tell_who_left(newcomer, machines.values())
        newcomer.move(places[newcomer.me])
    machines.update(everybody)


def _tell_who_left(newcomer: M, others: Iterable[M]) -> None:
    gone = 0
    for machine in others:
        gone |= machine.gone
    for process in unpack(gone & ~newcomer.gone):
        newcomer.leave(process)


def _leads_past(before: Mapping[int, Place], place: Place) -> bool:
    """Whether a newcomer at this place connects processes that were connected before."""
    met = 0
    for neighbour in unpack(place.neighbours):
        if met >> neighbour & 1:
            return True
        around, met = 1 << neighbour, met | 1 << neighbour
        while around:
            near = 0
            for p in unpack(around):
                near |= before[p].neighbours if p in before else 0
            around = near & ~met
            met |= near
    return False


def _bit(machine: M | None) -> int:
    return 0 if machine is None else 1 << machine.me


def succeed(
    machines: MutableMapping[int, Topological],
    dead: int,
    places: Mapping[int, Place],
    successor: Topological,
    *,
    journal: Topological | None = None,
    witness: Topological | None = None,
) -> list[Effect]:
    """Let a process take a dead router's place, and perform what that one has left to do: scenario (iv).

    The successor, new or the witness itself, knows what the journal's machine or the witness knows; without
    either, what all others know together. That keeps the order, but what only the dead router had is lost.
    """
    if witness is not None and all(watch.forwarder != dead for watch in witness.place.watches):
        raise LocalProtocolError(f"process {witness.me} is no witness of process {dead}")
    source = journal or witness
    if source is not None and source.pending():
        held = ", ".join(f"M{held.message.sender, held.message.clock}" for held in source.pending())
        raise LocalProtocolError(
            f"the channels of process {dead} are not flushed: {held} still waits for others"
        )
    _check_all(places, [machine for machine in (*machines.values(), successor) if machine.me != dead])
    machines.pop(dead, None)
    if successor.me not in machines:
        for machine in machines.values():
            machine.join(successor.me)
    if source is None:
        # What the dead router sent and nobody has delivered yet is known only to those who hold it.
        for known in machines.values():
            if known is not successor:
                successor.adopt((*known.history(), *known.overdue()))
    elif source is not successor:
        successor.adopt(source.history())
    left = witness.unforwarded(dead) if witness is not None else ()
    for machine in machines.values():
        machine.leave(dead)
    stood = source.place if source is not None else places[successor.me]
    if journal is not None:
        stood = Place(0, (), watches=(Watch(dead, stood.branches),))
    _move(machines, places, dead, successor.me)
    if successor.me not in machines:
        _tell_who_left(successor, machines.values())
        successor.move(_inherited(places[successor.me], stood, successor.me, dead, successor.me))
        machines[successor.me] = successor
    return successor.forward(left)


def retire(machines: MutableMapping[int, Topological], dead: int, places: Mapping[int, Place]) -> None:
    """Do without a process that forwards nothing: one at the edge, or a witness.

    What was left out at a separator that it was a member of is known to the members that remain.
    """
    _check_all(places, [machine for machine in machines.values() if machine.me != dead])
    machines.pop(dead, None)
    for machine in machines.values():
        machine.leave(dead)
    _move(machines, places)


def invalidated(before: Mapping[int, Place], after: Mapping[int, Place]) -> int:
    """The members of the separators past which the new graph leads from one side to another, as a bit set."""
    now = {separator.members: separator.components for p in after for separator in after[p].separators}
    members = 0
    for separator in {separator for place in before.values() for separator in place.separators}:
        linked = 0
        for p in unpack(separator.members):
            linked |= before[p].neighbours if p in before else 0
        # A side that the separator was not linked to was never reached: nothing was left out on its account.
        sides = [component for component in separator.components if component & linked]
        parts = now.get(separator.members)
        if parts is None or any(sum(bool(side & part) for side in sides) > 1 for part in parts):
            members |= separator.members
    return members


def _check_all(places: Mapping[int, Place], machines: Sequence[M]) -> None:
    """Refuse bad places before anybody has changed."""
    n = max(machine.n for machine in machines)
    for machine in machines:
        if machine.me not in places:
            raise LocalProtocolError(f"process {machine.me} stays and is given no place in the new graph")
        check(places[machine.me], machine.me, n)


def _move(
    machines: Mapping[int, M], places: Mapping[int, Place], dead: int | None = None, heir: int | None = None
) -> None:
    for p, machine in machines.items():
        machine.move(_inherited(places[p], machine.place, p, dead, heir))


def _inherited(place: Place, before: Place, me: int, dead: int | None, heir: int | None) -> Place:
    """What those who left sent may still be on its way: it comes from where they were, or their heir is."""
    watched = {heir if f == dead and heir is not None else f: branches for f, branches in before.watches}
    old = watched.get(me, before.branches)  # a witness that succeeds stands where its forwarder stood
    return place._replace(
        branches=_with_the_lost(me, place.branches, old, heir),
        watches=tuple(Watch(f, _with_the_lost(f, its, watched.get(f, ()), heir)) for f, its in place.watches),
    )


def _with_the_lost(
    me: int, now: tuple[Branch, ...], before: tuple[Branch, ...], heir: int | None
) -> tuple[Branch, ...]:
    branches = {branch.towards: branch for branch in now}
    reached = 1 << me
    for branch in now:
        reached |= branch.behind
    for old in before:
        lost = old.behind & ~reached
        around = [old.towards, *(b.towards for b in before if b.block == old.block)]
        heirs = [branches[p] for p in around if p in branches]
        if heir is not None and old.towards not in branches:
            heirs = [b for b in branches.values() if b.behind >> heir & 1] or heirs
        if lost and heirs:
            towards = heirs[0].towards
            branches[towards] = branches[towards]._replace(behind=branches[towards].behind | lost)
    return tuple(branches.values())
