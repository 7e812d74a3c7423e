"""Processes that join a communication graph, new links, and routers that fail: Rodrigues & Veríssimo, §4.4.

This is what their report asks for, with the weakest flush that keeps the order: an oracle of what histories
must tell. A running system flushes everything (net/site_changes.py) and needs none of it.

Each function takes the machines of all processes by index and changes them at once: their report leaves the
agreement on a membership to a membership service, and so does this. `places` are those of the new graph, for
everybody who stays. A router that fails stays failed; whoever succeeds it is another process.

(i)   A newcomer at the edge, and (ii) one that connects parts never connected before: it has nothing to
      learn, for no way leads past a separator. Messages name their destinations one by one: a group's name,
      read after the newcomer is in it, would block others.
(iii) A newcomer or a new link that leads past a separator, one of this graph or of an earlier one: what was
      left out of messages there can now be needed on the other side. The histories of all go to the newcomer,
      or to both ends of the link, which must have delivered what these name. What is on its way to a
      forwarder must have arrived before a newcomer can be its witness, for whom it has no copy.
(iv)  A router that was the only way: `succeed` with its journal, with a witness, or with everybody's history.
      Its channels must have been flushed before: whatever it sent has arrived, and whatever was sent to it
      has arrived at the journal's machine or at the witness. What it sent may be known to nobody yet, and a
      witness not yet told of it would send past it. The successor has no more links than it and the router
      had; if it is to have some, `admit` them next.

Links and separators are those that the routes use (`core.places.in_use`), not those of the physical graph. So
a link is new when routes begin to lead over it, and that may be after a departure or a failure as well, if
routes change elsewhere. The new separators are sound at once, whatever is still on its way over links no
longer in use: whoever leaves something out at them does so after the change, so all that causally follows is
sent after it too, over links in use now. What needs care are the old ones, and that is (iii).

Where the way between two processes leads past others than before, a successor in a router's place aside, what
they sent each other must have arrived: on the new way, later messages do not follow it. So must what a third
process has on its way to one of them, unless the new way meets that of the third earlier than the old one
did: who knows of it may send past it otherwise. If it was for others as well, its copies for all of them
must have arrived, also for those who have left: a router that has yet to send one takes the new way too.

Whoever leaves may have sent what is still on its way. So in the places of those who stay it remains, as one
more process behind the branch that it was behind (`_move`): what it sent came from there.
"""

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import TypeVar

from happened.core.destinations import pack, unpack
from happened.core.errors import LocalProtocolError
from happened.core.places import Branch, Place, WatchedForwarder, check, in_use, reach
from happened.ordering.causal.extended_history import HistoryEntry
from happened.ordering.causal.histories import Histories
from happened.ordering.causal.topological import Topological, Unforwarded
from happened.ordering.machine import Effect, MessageKey

M = TypeVar("M", Histories, Topological)


def awaits(machine: M, entries: Iterable[HistoryEntry]) -> tuple[MessageKey, ...]:
    """The messages of another process's history that were sent to this one, which has not delivered them."""
    return tuple(machine._history.missing(entries))


def adopt(machine: M, entries: Iterable[HistoryEntry]) -> None:
    """Let a process take over the history of another, for a new place in the graph, as if that past were its
    own. Like a timestamp, it can be taken only when what it names and was sent to it has been delivered."""
    entries = tuple(entries)
    _check_delivered(machine, entries)
    history = machine._history
    for entry in entries:
        history._add(entry, entry.copied)
    history._infer({entry.sender for entry in entries})
    history._sweep()


def overdue(machine: Topological) -> list[HistoryEntry]:
    """The hop messages that arrived and wait for others, and those they name: not yet in its history."""
    return [
        entry
        for hop, _ in machine._parking
        for entry in (*hop.entries, HistoryEntry(hop.sender, hop.clock, hop.dests, 1 << hop.sender))
    ]


def unforwarded(witness: Topological, forwarder: int) -> tuple[Unforwarded, ...]:
    """What this forwarder got and was not seen to forward, in the order it may be forwarded in."""
    return tuple(witness._unforwarded.get(forwarder, {}).values())


def forward(machine: Topological, left: Iterable[Unforwarded]) -> list[Effect]:
    """Send on what another forwarder has left behind."""
    effects: list[Effect] = []
    for carried, due in left:
        if due and carried.dests >> machine.me & 1:
            effects.append(machine.delivery(carried))
        effects += machine._pass_on(carried)
    return effects


def inherit(machine: Topological, predecessor: Topological) -> None:
    """Let a process take over what another knew whose place it takes, and what that kept as a witness."""
    adopt(machine, predecessor.history())
    for forwarder, left in predecessor._unforwarded.items():
        machine._unforwarded.setdefault(forwarder, {}).update(left)


def admit(machines: MutableMapping[int, M], places: Mapping[int, Place], newcomer: M | None = None) -> None:
    """Move everybody to the places of a graph with more processes or links: scenarios (i), (ii) and (iii).

    Refused, and nothing changed, while a process at a new link has yet to deliver what the others know of.
    """
    everybody: dict[int, M] = {**machines, **({newcomer.me: newcomer} if newcomer is not None else {})}
    _check_all(places, list(everybody.values()))
    before = {p: machine.place.branches for p, machine in machines.items()}
    # A newcomer's own neighbours need nothing: whatever takes the new way passes the newcomer.
    learning = _with_new_links(machines.values(), places, 0 if newcomer is None else 1 << newcomer.me)
    if newcomer is not None and _leads_past(machines, places[newcomer.me]):
        learning.append(newcomer)
    told = _histories(machines.values()) if learning else []
    for machine in learning:
        _check_delivered(machine, told)
    if newcomer is not None:
        for machine in machines.values():
            machine.join(newcomer.me)
    for machine in learning:
        adopt(machine, told)
    machines.update(everybody)
    _move(machines, places, before)


def _with_new_links(machines: Iterable[M], places: Mapping[int, Place], exempt: int) -> list[M]:
    """Those whom the routes give a link that was not in use, with others than the exempt."""
    return [
        machine
        for machine in machines
        if in_use(places[machine.me]) & ~in_use(machine.place) & ~exempt & ~(1 << machine.me)
    ]


def _histories(machines: Iterable[M]) -> list[HistoryEntry]:
    """What these know together.

    Whoever has a new link needs everybody's. Not only the members of separators that stop being one now: what
    was left out at one that an earlier change has led past is known to those who learnt it then, and to no
    one else behind them.
    """
    return [entry for machine in machines for entry in machine.history()]


def _check_delivered(machine: M, told: Iterable[HistoryEntry]) -> None:
    """Refuse that a process learns of messages that it has yet to deliver."""
    if missing := awaits(machine, told):
        names = ", ".join(f"M{name}" for name in dict.fromkeys(missing))
        raise LocalProtocolError(f"process {machine.me} must deliver {names} before it gets a new link")


def _leads_past(machines: Mapping[int, M], place: Place) -> bool:
    """Whether a newcomer at this place connects processes that are connected, or may have been.

    Once somebody has left, the graph no longer shows who was.
    """
    if in_use(place).bit_count() > 1 and _gone(machines):
        return True
    met = 0
    for neighbour in unpack(in_use(place)):
        if met >> neighbour & 1:
            return True
        met |= _connected(machines, neighbour)
    return False


def _connected(machines: Mapping[int, M], start: int) -> int:
    reached, around = 0, 1 << start
    while around:
        reached |= around
        near = 0
        for p in unpack(around):
            near |= in_use(machines[p].place) if p in machines else 0
        around = near & ~reached
    return reached


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
    From the journal of a witness it also has what that one kept for its forwarders. A process that has been
    succeeded is refused: its journal is out of date, and `last_to_fail` tells whose is not.
    """
    if _gone(machines) >> dead & 1:
        raise LocalProtocolError(
            f"process {dead} has left or was succeeded: start from who failed last in its place"
        )
    watched = dict(witness.place.watches) if witness is not None else {}
    if witness is not None and dead not in watched:
        raise LocalProtocolError(f"process {witness.me} is no witness of process {dead}")
    source = journal or witness
    if source is not None and source.pending():
        held = ", ".join(f"M{held.message.sender, held.message.clock}" for held in source.pending())
        raise LocalProtocolError(
            f"the channels of process {dead} are not flushed: {held} still waits for others"
        )
    staying = [m for m in machines.values() if m.me not in (dead, successor.me)]
    _check_all(places, [*staying, successor])
    own = in_use(successor.place) if successor.me in machines else 0
    learning, told = _lessons(staying, successor, own, dead, places, source)
    for machine in learning:
        _check_delivered(machine, told)
    machines.pop(dead, None)
    if successor.me not in machines:
        for machine in machines.values():
            machine.join(successor.me)
    for machine in learning:
        adopt(machine, told)
    if journal is not None:
        inherit(successor, journal)
    elif witness is not None and witness is not successor:
        adopt(successor, witness.history())
    left = unforwarded(witness, dead) if witness is not None else ()
    before = {machine.me: machine.place.branches for machine in staying}
    if source is not None:  # the successor stands where the router stood
        before[successor.me] = journal.place.branches if journal is not None else watched[dead]
    machines[successor.me] = successor
    _move(machines, places, before, dead, successor.me)
    return forward(successor, left)


def _lessons(
    staying: Sequence[Topological],
    successor: Topological,
    own: int,
    dead: int,
    places: Mapping[int, Place],
    source: Topological | None,
) -> tuple[list[Topological], list[HistoryEntry]]:
    """Who has to learn what all know when somebody succeeds a router, and what that is.

    Routes may change elsewhere. The successor has new links if they are neither its own nor the router's; if
    nobody knows what the router knew, it learns from all in any case.
    """
    learning = _with_new_links(staying, places, 1 << successor.me)
    routers = pack(machine.me for machine in staying if in_use(machine.place) >> dead & 1)
    if source is None or in_use(places[successor.me]) & ~own & ~routers:
        learning.append(successor)
    if not learning:
        return [], []
    told = _histories([*staying, successor] if source in (None, successor) else [*staying, successor, source])
    if source is None:
        # What the dead router sent and nobody has delivered yet is known only to those who hold it.
        told += [entry for machine in staying for entry in overdue(machine)]
    return learning, told


def retire(machines: MutableMapping[int, Topological], dead: int, places: Mapping[int, Place]) -> None:
    """Do without a process that forwards nothing: one at the edge, or a witness.

    What was left out at a separator that it was a member of is known to the members that remain.
    """
    staying = [machine for machine in machines.values() if machine.me != dead]
    _check_all(places, staying)
    if cut_off := _forwarded_to(staying, dead):
        names = ", ".join(map(str, unpack(cut_off)))
        raise LocalProtocolError(f"process {dead} forwards to {names}: let somebody succeed() it")
    learning = _with_new_links(staying, places, 0)
    told = _histories(staying) if learning else []
    for machine in learning:
        _check_delivered(machine, told)
    for machine in learning:
        adopt(machine, told)
    machines.pop(dead, None)
    _move(machines, places, {machine.me: machine.place.branches for machine in staying}, dead)


def _forwarded_to(machines: Sequence[Topological], router: int) -> int:
    """Those whom somebody reaches through this process, of those who have not left."""
    behind = 0
    for machine in machines:
        for branch in machine.place.branches:
            if branch.towards == router:
                behind |= branch.behind & ~machine.gone
    return behind & ~(1 << router)


def _check_all(places: Mapping[int, Place], machines: Sequence[M]) -> None:
    """Refuse bad places before anybody has changed."""
    n = max(machine.n for machine in machines)
    for machine in machines:
        if machine.me not in places:
            raise LocalProtocolError(f"process {machine.me} stays and is given no place in the new graph")
        check(places[machine.me], machine.me, n)


def _gone(machines: Mapping[int, M]) -> int:
    gone = 0
    for machine in machines.values():
        gone |= machine.gone
    return gone


def _move(
    machines: Mapping[int, M],
    places: Mapping[int, Place],
    before: Mapping[int, tuple[Branch, ...]],
    dead: int | None = None,
    heir: int | None = None,
) -> None:
    """Everybody learns who has left, and stands at a place where those still are.

    before   the branches that a process, or the router it succeeds, had; a newcomer had none
    """
    gone = _gone(machines) | (1 << dead if dead is not None else 0)
    branches = {p: _inherited(places[p], old, p, gone, heir) for p, old in before.items()}
    for p in machines.keys() - before.keys():
        branches[p] = _as_neighbours_see_it(places[p], p, gone, branches)
    for p, machine in machines.items():
        for process in unpack(gone & ~machine.gone):
            machine.leave(process)
        # A witness judges by what its forwarder does, newcomer or not.
        watches = tuple(WatchedForwarder(f, branches.get(f, its)) for f, its in places[p].watches)
        machine.move(places[p]._replace(branches=branches[p], watches=watches))


def _inherited(
    place: Place, before: tuple[Branch, ...], me: int, gone: int, heir: int | None
) -> tuple[Branch, ...]:
    """The branches of a place, with those who left behind the branch that leads to where they were.

    That is to the neighbour they were behind; if it has left as well, to its heir; if it has none, to anybody
    of the same block, since what came from there was sent to all of that. If the block was a link, nothing
    leads there any more: what comes by it goes on everywhere. No rule that only looks at the new graph will
    do: a leaf of ours and a process of a block with us look the same in it, and only what the latter sent
    has reached the others of that block.
    """
    branches = list(place.branches)
    reached = 1 << me | reach(place)
    for old in before:
        lost = old.behind & gone & ~reached
        block = [other.towards for other in before if other.block == old.block]
        for p in (old.towards, *(() if heir is None else (heir,)), *block):
            leading = [i for i, branch in enumerate(branches) if branch.behind >> p & 1]
            if leading:
                branches[leading[0]] = _with(branches[leading[0]], lost)
                break
    return tuple(branches)


def _as_neighbours_see_it(
    place: Place, me: int, gone: int, branches: Mapping[int, tuple[Branch, ...]]
) -> tuple[Branch, ...]:
    """The branches of a newcomer's place: whoever left and is not on our side of a neighbour is behind it."""
    found, left = [], gone & ~reach(place)
    for branch in place.branches:
        theirs = branches.get(branch.towards, ())
        ours = next((their.block for their in theirs if their.behind >> me & 1), None)
        behind = left
        for their in theirs:
            if their.block == ours:
                behind &= ~their.behind
        left &= ~behind
        found.append(_with(branch, behind))
    return tuple(found)


def _with(branch: Branch, more: int) -> Branch:
    return branch._replace(behind=branch.behind | more)
