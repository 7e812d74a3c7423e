"""The life of one unit of necessary information: who must know it, what carries it, and what ends it.

A unit (M, x) says that M was sent to x. By the propagation constraints of Kshemkalyani & Singhal (1998,
§3.4) it is necessary at an event iff send(M) is in the event's past and neither is

    PC1   the delivery of M at x, nor
    PC2   the send of another message to x, causally after send(M).

Both are facts about the past, so at each process the unit is necessary from one event on until another, its
*fixed point*: after that it is never necessary there again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .computation import Computation, Event
from .linearization import Ints
from .necessary import Unit
from .stamps import stamp_computation

PC1, PC2 = "PC1", "PC2"


@dataclass(frozen=True, slots=True)
class KnowledgeInterval:
    """A process that must know the unit from event `first` on, until `end`; None: to the end of the trace."""

    process: str
    first: Event
    end: Event | None
    rule: str | None  # what ended it
    by: Event | None  # the delivery of M, or the send of the later message, that `end` knows of


@dataclass(frozen=True, slots=True)
class Edge:
    """A copy of a message that must carry the unit."""

    message: str
    destination: str
    send: Event


@dataclass(frozen=True, slots=True)
class UnitLife:
    unit: Unit
    send: Event
    delivery: Event | None
    stretches: Sequence[KnowledgeInterval]
    edges: Sequence[Edge]


def unit_life(computation: Computation, unit: Unit) -> UnitLife:
    """The life of the unit of a message and a destination. LookupError if no such message was sent there."""
    c = computation
    slot = _slot(c, unit)
    vectors, send = stamp_computation(c), int(c.slot_send[slot])
    delivery = int(c.slot_delivery[slot])
    knows = _includes(c, vectors, send)
    delivered = _includes(c, vectors, delivery) if delivery >= 0 else np.zeros(c.events, bool)
    later = _later_sends(c, vectors, slot)
    replaced = np.zeros(c.events, bool)
    for each in later:
        replaced |= _includes(c, vectors, each)
    alive = knows & ~delivered & ~replaced

    def ended(e: int) -> tuple[str, int]:
        if delivered[e]:
            return PC1, delivery
        return PC2, next(each for each in later if vectors[e, c.process[each]] >= c.seq[each])

    stretches = []
    for p, name in enumerate(c.process_names):
        chain = c.chain[c.chain_offsets[p] : c.chain_offsets[p + 1]]
        known = np.flatnonzero(knows[chain])
        if known.size == 0:
            continue
        over = np.flatnonzero(~alive[chain[known[0] :]]) + known[0]
        if over.size and over[0] == known[0]:
            continue  # it learns of the message and of what makes the unit redundant at once
        first = c.event(int(chain[known[0]]))
        if over.size:
            end = int(chain[over[0]])
            rule, by = ended(end)
            stretches.append(KnowledgeInterval(name, first, c.event(end), rule, c.event(by)))
        else:
            stretches.append(KnowledgeInterval(name, first, None, None, None))
    edges = [_edge(c, s) for s in _carrying(c, alive, int(c.slot_dest[slot]))]
    return UnitLife(unit, c.event(send), c.event(delivery) if delivery >= 0 else None, stretches, edges)


def _slot(c: Computation, unit: Unit) -> int:
    to_it = np.flatnonzero(c.slot_dest == _process(c, unit.destination))
    for slot in to_it:
        if c.message_name(int(c.slot_message[slot])) == unit.message:
            return int(slot)
    raise LookupError(f"no message {unit.message!r} was sent to {unit.destination!r} in {c.name!r}")


def _process(c: Computation, name: str) -> int:
    return c.process_names.index(name) if name in c.process_names else -1


def _edge(c: Computation, slot: int) -> Edge:
    message, to = int(c.slot_message[slot]), c.process_names[c.slot_dest[slot]]
    return Edge(c.message_name(message), to, c.event(int(c.slot_send[slot])))


def _includes(c: Computation, vectors: Ints, event: int) -> Ints:
    """Of every event, whether its past has this one, or it is this one."""
    found: Ints = vectors[:, c.process[event]] >= c.seq[event]
    return found


def _later_sends(c: Computation, vectors: Ints, slot: int) -> list[int]:
    """Of each process, its first send to the unit's destination causally after the unit's own."""
    send = c.slot_send[slot]
    same = np.flatnonzero((c.slot_dest == c.slot_dest[slot]) & (c.slot_send != send))
    after = [int(e) for e in c.slot_send[same] if vectors[e, c.process[send]] >= c.seq[send]]
    first: dict[int, int] = {}
    for e in sorted(after, key=lambda e: int(c.seq[e])):
        first.setdefault(int(c.process[e]), e)
    return list(first.values())


def _carrying(c: Computation, alive: Ints, destination: int) -> list[int]:
    """The slots whose copies carry it: it is necessary just before the send, and a message for the unit's own
    destination tells nobody else."""
    slots = []
    for m in range(len(c.send)):
        e = int(c.send[m])
        before = int(c.seq[e]) - 1
        if before == 0 or not alive[c.chain[c.chain_offsets[c.process[e]] + before - 1]]:
            continue
        of_message = range(int(c.dest_offsets[m]), int(c.dest_offsets[m + 1]))
        to_it = [s for s in of_message if c.slot_dest[s] == destination]
        slots += to_it or list(of_message)
    return slots
