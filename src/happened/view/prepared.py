"""A computation prepared for display: all values that depend on its order, each computed once.

A page shows all of it, a server shows window after window; both take their scenes from here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa

from ..causality.computation import DELIVER, RECEIVE, Computation
from ..causality.linearization import MISDELIVERED, NEVER_SENT, REPEATED, Ints, linearize
from ..causality.predecessors import computation_predecessors
from ..causality.reach import edges_of, last_causes, level_rows, levels_of, waited_chain
from ..causality.skew import Times, times_of
from ..causality.stamps import stamp_computation
from ..causality.verdict import Cycle, Disagreement, EarlyDelivery, LostCause, Witness

MOST_CELLS = 400_000_000
"""Entries of all vectors of a computation, 1.6 GB; larger computations are shown without timestamps."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A violation as lists show it: a description, the events concerned, and the path that proves it."""

    title: str
    told: str
    events: tuple[int, ...]
    path: tuple[int, ...]


class Prepared:
    """One computation, encoded from `table`, and the witnesses that the judge found in it.

    Events are numbered as in the computation, in a topological order.
    """

    def __init__(
        self, computation: Computation, table: pa.Table, witnesses: Sequence[Witness | LostCause] = ()
    ) -> None:
        self.c = computation
        self.table = table
        self._witnesses = [each for each in witnesses if each.computation == computation.name]

    @property
    def fault_count(self) -> int:
        """The number of faults that a page lists: violations, repeated deliveries and misdeliveries."""
        astray = np.isin(self.c.fate, (REPEATED, MISDELIVERED, NEVER_SENT))
        return len(self._witnesses) + int(astray.sum())

    def recorded_causes(self, e: int) -> list[int]:
        """The causes that the trace records for an event, besides the send of its message."""
        found: list[int] = self.c.causes[self.c.cause_offsets[e] : self.c.cause_offsets[e + 1]].tolist()
        return found

    @cached_property
    def vectors(self) -> Ints | None:
        """The timestamps of all events; None if there would be too many entries."""
        return stamp_computation(self.c) if self.c.events * self.c.width <= MOST_CELLS else None

    @cached_property
    def levels(self) -> Ints:
        """Each event's position on the logical time axis."""
        return logical_axis(self.c)

    @cached_property
    def _clocks(self) -> Times | None:
        return times_of(self.c, self.table["time"])

    @cached_property
    def times(self) -> tuple[Ints, int] | None:
        """Nanoseconds since the earliest event, NaN for events without a time; and that earliest time."""
        found = self._clocks
        if found is None:
            return None
        origin = int(found.time[found.timed].min())
        # A difference too large for int64 wraps to a negative number, which is right if taken as unsigned.
        since = (found.time - origin).view(np.uint64).astype(np.float64)
        return np.where(found.timed, since, np.nan), origin

    @property
    def timed(self) -> bool:
        """Whether every event has a time; if not, the critical path depends on order alone."""
        return self._clocks is not None and bool(self._clocks.timed.all())

    @cached_property
    def arrivals(self) -> Ints:
        """For each delivery, the event by which its message arrived; -1 if none is recorded."""
        c = self.c
        arrived = np.full(c.events, -1, np.int32)
        keys = c.message.astype(np.int64) * c.processes + c.process
        received = np.flatnonzero((c.kind == RECEIVE) & (c.message >= 0))
        delivered = np.flatnonzero((c.kind == DELIVER) & (c.message >= 0))
        if not received.size or not delivered.size:
            return arrived
        known, first = np.unique(keys[received], return_index=True)
        at = np.minimum(np.searchsorted(known, keys[delivered]), known.size - 1)
        arrival = received[first[at]]
        held = (known[at] == keys[delivered]) & (arrival < delivered)
        arrived[delivered[held]] = arrival[held]
        return arrived

    @cached_property
    def reduction(self) -> tuple[Ints, Ints, Ints] | None:
        """The Hasse diagram of the relevant events, or of all if none is relevant: effects, causes, and each
        event's level in the diagram, 0 if it is not in the diagram."""
        if self.vectors is None:
            return None
        c = self.c
        shown = c.relevant.astype(bool) if c.relevant.any() else np.ones(c.events, bool)
        effects, causes = computation_predecessors(c, self.vectors, shown)
        offsets = np.searchsorted(effects, np.arange(c.events + 1))
        levels = np.empty(c.events, np.int64)
        # Put each event on a process of its own, so that only the edges count.
        level_rows(levels, 0, np.full(c.events, -1, np.int64), np.arange(c.events), offsets, causes)
        return effects, causes, np.where(shown, levels, 0)

    @cached_property
    def critical_path(self) -> list[int]:
        """The chain of causes behind the last event, from the beginning: before each event, the cause that it
        waited for last by corrected times. If an event has no time, a longest chain of causes."""
        c = self.c
        if not c.events:
            return []
        chains = levels_of(c)
        late = self._clocks.corrected if self._clocks is not None and self.timed else chains
        since, waited = last_causes(edges_of(c), late.astype(np.int64), np.ones(c.events, bool))
        last = int(np.lexsort((chains, since))[-1])  # of several last events, the one with the longest chain
        return waited_chain(since, waited, last)

    @property
    def critical_steps(self) -> list[float]:
        """Nanoseconds from each event of the critical path to the next, corrected; none without times."""
        if self._clocks is None or not self.timed:
            return []
        when = self._clocks.corrected[self.critical_path].tolist()
        return [float(after - before) for before, after in pairwise(when)]

    @cached_property
    def faults(self) -> list[Fault]:
        places = {name: p for p, name in enumerate(self.c.process_names)}
        offsets, chain = self.c.chain_offsets, self.c.chain

        def indices(events: Sequence[object]) -> tuple[int, ...]:
            return tuple(int(chain[offsets[places[e.process]] + e.seq - 1]) for e in events)  # type: ignore[attr-defined]

        return [Fault(*_told(each), *map(indices, _events(each))) for each in self._witnesses]


def _told(witness: Witness | LostCause) -> tuple[str, str]:
    match witness:
        case EarlyDelivery():
            both = f"{witness.early} before {witness.overtaken}"
            told = f"{witness.process} delivered {both}, which was sent to it causally earlier"
            return f"{both} at {witness.process}", told
        case LostCause():
            both = f"{witness.delivered} and never {witness.lost}"
            told = f"{witness.process} delivered {both}, which was sent to it causally earlier"
            return f"{witness.lost} never at {witness.process}", told
        case Disagreement():
            a, b = witness.messages
            return f"{a} and {b} in two orders", str(witness).partition(":\n")[0]
        case Cycle():
            return f"a circle of {len(witness.messages)} messages", str(witness).partition("\n")[0]


def _events(witness: Witness | LostCause) -> tuple[Sequence[object], Sequence[object]]:
    """The events that a witness is about, and the path that proves it."""
    match witness:
        case EarlyDelivery():
            return (witness.early_delivery, witness.overtaken_delivery), witness.path
        case LostCause():
            return (witness.delivery,), witness.path
        case Disagreement():
            return (*witness.one, *witness.other), ()
        case Cycle():
            return tuple(event for leg in witness.legs for event in leg), ()


def logical_axis(c: Computation) -> Ints:
    """The position of every event on the logical time axis, from 1 on: to the right of everything that
    happened before the event and, for the arrival or delivery of a message, to the right of the message's
    send.

    Happened-before has no edge to an arrival recorded before its delivery, to a repeated delivery, or to a
    delivery of an unordered message; but none of them came before the send, and a picture must not suggest
    so. If a trace has a message arrive before an event that its send waited for, these extra constraints form
    a cycle; then happened-before alone decides.
    """
    came = (c.source < 0) & (c.message >= 0) & ((c.kind == RECEIVE) | (c.kind == DELIVER))
    source = c.source.astype(np.int64)
    source[came] = c.send[c.message[came]]
    if np.array_equal(source, c.source):
        return levels_of(c)
    place = c.chain_offsets[c.process] + c.seq - 1  # in chain order, as `linearize` expects
    sent = np.flatnonzero(source >= 0)
    causes = place[np.concatenate([c.causes, source[sent]])].astype(np.int64)
    effects = place[np.concatenate([np.repeat(np.arange(c.events), np.diff(c.cause_offsets)), sent])]
    process, none = c.process[c.chain], np.full(c.events, -1, np.int64)
    begins, edges = np.array([0, c.processes], np.int64), _by_effect(effects, causes, c.events)
    order, position = linearize(begins, c.chain_offsets, process, none, *edges)
    if order.size < c.events:
        return levels_of(c)
    edges = _by_effect(position[effects], position[causes], c.events)
    levels = np.empty(c.events, np.int64)
    level_rows(levels, 0, np.full(c.processes, -1, np.int64), process[order], *edges)
    found: Ints = levels[position[place]]
    return found


def _by_effect(effects: Ints, causes: Ints, events: int) -> tuple[Ints, Ints]:
    """The causes grouped by effect: offsets of each event's causes, and the causes."""
    order = np.argsort(effects, kind="stable")
    return np.searchsorted(effects[order], np.arange(events + 1)), causes[order]
