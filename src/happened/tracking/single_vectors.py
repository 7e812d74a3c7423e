"""Trackers that keep only one number or one vector, each after its own paper (see tracker.py)."""

from typing import Any, ClassVar

from ..core.errors import LocalProtocolError
from . import refusals
from .piggyback import Piggyback, PiggybackEntry, Timestamp, View
from .tracker import Protocols, State, TrackerFacts, TrackerMachine, entries_of


class Lamport(TrackerMachine):
    """Scalar time, after Lamport (CACM 21(7), 1978), ticking at relevant events only.

    Promises   e before f implies scalar(e) < scalar(f); scalar(e) is the length of the longest causal chain
               of relevant events that ends in e.
    Leaves out the converse: events with different scalars may be concurrent.
    Invariant  `_time` is the largest scalar in our causal past.
    """

    numbers = ("time", "seq")

    def __init__(self, me: int, n: int) -> None:
        super().__init__("lamport", me, n)
        self._time = 0
        self._seq = 0

    def relevant(self) -> Timestamp:
        refusals.countable(self._time + 1)
        self._time += 1
        self._seq += 1
        return Timestamp(self.me, self._seq, scalar=self._time)

    def on_send(self, to: int) -> Piggyback:
        refusals.peer(to, self.me, self.n)
        place = self._geometry.width * self.me
        return Piggyback(self._geometry, 1 << place, self._time << place)

    def on_receive(self, sender: int, piggyback: Any) -> None:
        refusals.arrival(sender, piggyback, self.me, self._geometry)
        self._time = max(self._time, self._geometry.get(piggyback.values, sender))


class PackedVector(TrackerMachine):
    """A tracker that keeps a packed vector, of counts unless it says otherwise, and merges by maximum."""

    vectors: ClassVar[tuple[str, ...]] = ("vector",)

    def __init__(self, name: str, me: int, n: int) -> None:
        super().__init__(name, me, n)
        self._vector = 0

    def _count(self) -> int:
        """Count a relevant event of ours, and return its seq."""
        seq = self._geometry.get(self._vector, self.me) + 1
        refusals.countable(seq)
        self._vector += 1 << self._geometry.width * self.me
        return seq

    def _largest_own(self) -> int:
        """The largest value of our own entry that other processes can know."""
        return self._geometry.get(self._vector, self.me)

    def _merge(self, sender: int, piggyback: Any) -> int:
        """Take in the newer values of a piggyback; returns the mask of their lanes."""
        refusals.arrival(sender, piggyback, self.me, self._geometry)
        geometry, vector, theirs = self._geometry, self._vector, piggyback.values
        newer = geometry.at_least(vector, theirs) ^ geometry.guards
        if not newer:
            return 0
        refusals.own_value(geometry.get(theirs, self.me), self._largest_own())
        mask = geometry.spread(newer)
        self._vector = vector ^ (vector ^ theirs) & mask
        return mask

    def on_receive(self, sender: int, piggyback: Any) -> None:
        self._merge(sender, piggyback)


class Vector(PackedVector):
    """Vector clocks on every message, after Fidge (1988) and Mattern (1989).

    Promises   exact vector timestamps.
    Leaves out any reduction: every message carries n entries.
    Invariant  lane k of `_vector` is the number of k's relevant events in our causal past.
    """

    def __init__(self, me: int, n: int) -> None:
        super().__init__("vector", me, n)

    def relevant(self) -> Timestamp:
        seq = self._count()
        return Timestamp(self.me, seq, tuple(self._geometry.unpack(self._vector)))

    def on_send(self, to: int) -> Piggyback:
        refusals.peer(to, self.me, self.n)
        return Piggyback(self._geometry, self._geometry.ones, self._vector)

    def view(self) -> View:
        return View("VC", tuple(self._geometry.unpack(self._vector)))

    def carried(self, piggyback: Piggyback) -> list[PiggybackEntry]:
        return entries_of(piggyback, tuple(self._geometry.unpack(piggyback.values)))


class Differential(PackedVector):
    """Vector clocks that send entries changed since the last message there: Singhal & Kshemkalyani (1992).

    Assumes    FIFO links.
    Promises   exact vector timestamps; a message carries the entries that changed since the last message on
               its channel.
    Leaves out what the receiver knows from other senders: that needs a matrix (see p1).
    Invariant  `_updated` (LU) has the step at which each entry last changed, `_last_sent` (LS) the step at
               which we last sent to each process; steps count our events of every kind.

    The paper uses a process's own entry as the step number, since every event ticks there. Here only relevant
    events tick, and two receipts may see the same own entry, so steps are counted separately.
    """

    vectors = ("vector", "updated", "last_sent")
    numbers = ("step",)

    def __init__(self, me: int, n: int) -> None:
        super().__init__("differential", me, n)
        self._updated = 0
        self._last_sent = 0
        self._step = 0

    def relevant(self) -> Timestamp:
        refusals.countable(self._step + 1)
        seq = self._count()
        self._step += 1
        self._updated = self._geometry.put(self._updated, self.me, self._step)
        return Timestamp(self.me, seq, tuple(self._geometry.unpack(self._vector)))

    def on_send(self, to: int) -> Piggyback:
        refusals.peer(to, self.me, self.n)
        refusals.countable(self._step + 1)
        geometry = self._geometry
        last = geometry.get(self._last_sent, to)
        changed = geometry.at_least(self._updated, geometry.ones * (last + 1))
        self._step += 1
        self._last_sent = geometry.put(self._last_sent, to, self._step)
        return Piggyback(self._geometry, changed >> geometry.shift, self._vector & geometry.spread(changed))

    def on_receive(self, sender: int, piggyback: Any) -> None:
        refusals.countable(self._step + 1)
        if mask := self._merge(sender, piggyback):
            self._step += 1
            self._updated = self._updated & ~mask | self._geometry.ones * self._step & mask


class Direct(PackedVector):
    """Direct dependencies, one entry per message: Fowler & Zwaenepoel (ICDCS 1990).

    Assumes    that a process that has learnt of an event produces one of its own before it sends: a send
               before that is a LocalProtocolError. (p2 with b = 1 produces a null event instead.) It suffices
               to make every receipt a relevant event.
    Promises   dependency vectors from which `reconstruction` gets the exact vectors of all events.
    Leaves out vectors on the fly.
    Invariant  entry k is the last event of k that a message of k itself told us of; `_untold` is whether such
               a message arrived after our own last event, so that no event of ours tells of it yet.
    """

    def __init__(self, me: int, n: int) -> None:
        super().__init__("direct", me, n)
        self._untold = False

    def relevant(self) -> Timestamp:
        seq = self._count()
        self._untold = False
        return Timestamp(self.me, seq, dependencies=tuple(self._geometry.unpack(self._vector)))

    def on_send(self, to: int) -> Piggyback:
        refusals.peer(to, self.me, self.n)
        if self._untold:
            raise LocalProtocolError(
                f"process {self.me} has heard of an event since its own last one: produce a relevant event "
                "before sending, or use p2, which produces one where it is needed"
            )
        place, seq = self._geometry.width * self.me, self._largest_own()
        return Piggyback(self._geometry, 1 << place if seq else 0, seq << place)

    def on_receive(self, sender: int, piggyback: Any) -> None:
        refusals.arrival(sender, piggyback, self.me, self._geometry)
        told = self._geometry.get(piggyback.values, sender)
        if told > self._geometry.get(self._vector, sender):
            self._vector = self._geometry.put(self._vector, sender, told)
            self._untold = True

    def save(self) -> State:
        return super().save() | {"untold": self._untold}

    def load(self, state: State) -> None:
        untold = bool(state["untold"])
        super().load(state)
        self._untold = untold


class Incremental(PackedVector):
    """Dependencies since the last event, forwarded until an event absorbs them: Jard & Jourdan (1996).

    Promises   dependency vectors from which `reconstruction` gets the exact vectors of all events, without
               null events and without a matrix.
    Leaves out vectors on the fly, and any bound below n on a message: between two events of a process the
               list only grows.
    Invariant  `_pending` is the set of processes (bit 0 of their lanes) whose entry is our own last event or
               newer: our next message must forward it, because no event of ours stands for it yet.
    """

    vectors = ("vector", "pending")

    def __init__(self, me: int, n: int) -> None:
        super().__init__("incremental", me, n)
        self._pending = 0

    def relevant(self) -> Timestamp:
        seq = self._count()
        self._pending = 1 << self._geometry.width * self.me
        return Timestamp(self.me, seq, dependencies=tuple(self._geometry.unpack(self._vector)))

    def on_send(self, to: int) -> Piggyback:
        refusals.peer(to, self.me, self.n)
        pending = self._pending
        return Piggyback(self._geometry, pending, self._vector & (pending << self._geometry.shift) - pending)

    def on_receive(self, sender: int, piggyback: Any) -> None:
        self._pending |= self._merge(sender, piggyback) & self._geometry.ones

    def load(self, state: State) -> None:
        if refusals.numbers(state["pending"], self._geometry) & ~self._geometry.ones:
            raise ValueError("an entry is pending or it is not")
        super().load(state)


def _form(
    machine: type[TrackerMachine], number: int, tells: str, bound: str, description: str, paper: str
) -> tuple[TrackerFacts, type[TrackerMachine]]:
    name, fifo_links = machine.__name__.lower(), machine is Differential
    return TrackerFacts(name, frozenset({tells}), fifo_links, bound, description, paper, number), machine


PROTOCOLS: Protocols = (
    _form(
        Lamport,
        1,
        "scalar",
        "1",
        "one number that respects causality and cannot prove it",
        "Lamport, Time, clocks, and the ordering of events in a distributed system, CACM 21(7), 1978",
    ),
    _form(
        Vector,
        2,
        "vector",
        "n",
        "the whole vector on every message",
        "Fidge, Timestamps in message-passing systems, 1988; Mattern, Virtual time and global states, 1989",
    ),
    _form(
        Differential,
        3,
        "vector",
        "n",
        "what changed since the last message on this channel",
        "Singhal & Kshemkalyani, An efficient implementation of vector clocks, IPL 43(1), 1992",
    ),
    _form(
        Direct,
        4,
        "dependencies",
        "1",
        "the sender's own last event; needs an event between hearing news and sending",
        "Fowler & Zwaenepoel, Causal distributed breakpoints, ICDCS 10, 1990",
    ),
    _form(
        Incremental,
        5,
        "dependencies",
        "n",
        "what was heard since the own last event, and that event",
        "Jard & Jourdan, Incremental transitive dependency tracking in distributed computations, 1996",
    ),
)
