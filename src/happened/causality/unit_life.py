"""The life of one unit of necessary information: who must know it, which messages carry it, what ends it.

A unit (M, x) states that M was sent to x. By the propagation constraints of Kshemkalyani & Singhal (1998,
§3.4) it is necessary at an event iff send(M) is in the event's past and neither of these is:

    PC1   the delivery of M at x, nor
    PC2   the send of another message to x, causally after send(M).

Both are facts about the past, so at each process the unit is necessary from one event until another, its
*fixed point*, and never again after that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .computation import Computation, Event
from .linearization import Ints
from .necessary import Unit
from .stamps import stamp_computation

PC1, PC2 = "PC1", "PC2"


@dataclass(frozen=True, slots=True)
class KnowledgeInterval:
    """A process that must know the unit from event `first` until `end`; None: until the end of the trace."""

    process: str
    first: Event
    end: Event | None
    rule: str | None  # the constraint that ended the interval
    by: Event | None  # the delivery of M, or the later send, in the past of `end`


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
    """The life of the unit (message, destination). LookupError if the message was not sent there."""
    c = computation
    slot = _slot(c, unit)
    vectors, send = stamp_computation(c), int(c.slot_send[slot])
    delivery, dest = int(c.slot_delivery[slot]), int(c.slot_dest[slot])

    def knows(event: int, at: Any = slice(None)) -> Ints:
        """Whether each event, or each of some events, is the given event or has it in its past."""
        found: Ints = vectors[at, c.process[event]] >= c.seq[event]
        return found

    informed = knows(send)
    # For each process, its first send to the unit's destination causally after the unit's own send.
    after = [int(e) for e in c.slot_send[c.slot_dest == dest] if e != send and informed[e]]
    later: dict[int, int] = {}
    for e in sorted(after, key=lambda e: int(c.seq[e])):
        later.setdefault(int(c.process[e]), e)
    ends = [(PC1, delivery)] if delivery >= 0 else []
    ends += [(PC2, each) for each in later.values()]
    alive = informed & ~np.any([np.zeros(c.events, bool), *(knows(e) for _, e in ends)], axis=0)
    stretches = []
    for p, name in enumerate(c.process_names):
        chain = c.chain[c.chain_offsets[p] : c.chain_offsets[p + 1]]
        known = np.flatnonzero(informed[chain])
        if known.size == 0:
            continue
        over = np.flatnonzero(~alive[chain[known[0] :]]) + known[0]
        if over.size and over[0] == known[0]:
            continue  # it learns of the message and of the end of its unit at the same time
        first, end, rule, by = c.event(int(chain[known[0]])), None, None, None
        if over.size:
            e = int(chain[over[0]])
            rule, ended = next((rule, each) for rule, each in ends if knows(each, e))
            end, by = c.event(e), c.event(ended)
        stretches.append(KnowledgeInterval(name, first, end, rule, by))
    edges = [
        Edge(c.message_name(c.slot_message[s]), c.process_names[c.slot_dest[s]], c.event(c.slot_send[s]))
        for s in _carrying(c, alive, dest)
    ]
    return UnitLife(unit, c.event(send), c.event(delivery) if delivery >= 0 else None, stretches, edges)


def _slot(c: Computation, unit: Unit) -> int:
    for slot, (message, dest) in enumerate(zip(c.slot_message, c.slot_dest, strict=True)):
        if c.process_names[dest] == unit.destination and c.message_name(message) == unit.message:
            return slot
    raise LookupError(f"no message {unit.message!r} was sent to {unit.destination!r} in {c.name!r}")


def _carrying(c: Computation, alive: Ints, destination: int) -> list[int]:
    """The slots whose copies carry the unit: it is necessary just before their send. If the message also goes
    to the unit's destination, only that copy carries it."""
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
