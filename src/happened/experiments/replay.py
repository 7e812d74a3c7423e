"""One protocol on the messages of a recorded computation: what it would have carried and delayed.

The protocol's machine makes every send of the recording, with an empty payload: only control information is
counted. Every copy of a message arrives at a destination when it is recorded to have arrived there.

  - A copy that leaves its sender, or a relay, only after that moment arrives at once; one that is recorded
    never to have arrived does not, and what waits for it is held at the end.
  - Whatever has no recorded arrival (acknowledgements, proposals, requests to somebody who is no destination)
    arrives at once: the delays of protocols that add messages are therefore too small by those of the links.
    So do relayed copies where a protocol needs FIFO links: held to the recording they would break them.
  - An arrival recorded twice is a duplicate. Arrivals of what was never sent, or not to that process, and
    sends to nobody are left out.

With a terrain, machines stand at its places and processes are numbered as there (`numbered`); copies that a
router gets arrive at once, since nobody recorded when they would have.

The delay of a delivery is the time, and the number of local events, between its recorded arrival and the
event that released it; it is zero if the protocol delivers before the recorded arrival.
"""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ..causality.computation import RECEIVE, SEND
from ..causality.linearization import FIRST, REPEATED
from ..core.effects import Deliver, Send
from ..core.errors import LocalProtocolError
from ..ordering import Effect, Machine, create, protocols
from ..sim.automaton import Factory
from ..sim.terrain import Terrain, relays
from ..wire import control_sizes
from .recording import Recording

RUNAWAY = 5_000_000
"""A replay is stopped when it has carried this many entries more than 2n² per transmission; a protocol that
forgets delivered messages never needs that many."""

Slot = tuple[int, int]
"""(message, destination)."""

TALLY = (
    "messages", "copies", "transmissions", "added", "entries", "units", "control_bytes", "model_bytes",
    "deliveries", "late", "late_events", "late_ns", "timed", "held_at_end", "crossings", "crossed_entries",
    "crossed_bytes",
)  # fmt: skip
"""What a replay counts. `copies` are the (message, destination) pairs that something was transmitted for, or
that were delivered without a transmission; messages that never left their sender do not count. `crossings`
are the links that transmissions cross, of a terrain if there is one, and what is `crossed` is counted on each
of them. `timed` are the deliveries late by known ns."""


class Happening(NamedTuple):
    """A send (of a message to its destinations) or delivery that the replay made."""

    process: int
    kind: str
    message: int


class Replay:
    """A machine per process, run once over the recording; ProtocolError where the protocol refuses it."""

    def __init__(
        self,
        protocol: str,
        recording: Recording,
        terrain: Terrain | None = None,
        make: Factory | None = None,
    ) -> None:
        self._recording = recording
        self._terrain = terrain
        facts = protocols()[protocol]
        self._relays_at_once = facts.assumes.fifo_links
        n = recording.computation.processes if terrain is None else terrain.processes(protocol)
        options = {"groups": recording.groups()} if facts.assumes.fixed_groups else {}
        if make is None:
            make = _maker(protocol, options)
            if terrain is not None and relays(protocol):
                make = terrain.factory(protocol)
        self._machines: list[Machine] = [make(me, n) for me in range(n)]
        self._message_of: dict[tuple[int, int], int] = {}  # (sender, clock) -> message
        self._to_come = _arrivals(recording)  # per slot: how many are recorded and still ahead
        self._on_its_way: dict[Slot, list[Any]] = {}  # copies whose recorded arrival is ahead
        self._at_once: deque[Send[Any]] = deque()
        self._arrived: set[Slot] = set()
        self._waiting: dict[Slot, tuple[int, int]] = {}  # of these, the undelivered: moment and local event
        self._left: set[Slot] = set()
        self._delivered: set[Slot] = set()
        self._events: Counter[int] = Counter()  # local events so far
        self._moment = 0
        self.tally: Counter[str] = Counter(dict.fromkeys(TALLY, 0))
        self.carried: dict[Slot, int] = {}  # units on each first-hand copy
        self.history: list[Happening] = []

    def run(self) -> Counter[str]:
        c = self._recording.computation
        moments = self._recording.moments
        process = self._recording.number[c.process].tolist()
        kind, message, fate = c.kind.tolist(), c.message.tolist(), c.fate.tolist()
        for e in self._recording.walk.tolist():
            p = process[e]
            self._events[p] += 1
            self._moment = int(moments[e]) if moments is not None else 0
            if kind[e] == SEND:
                self._send(p, message[e])
            elif kind[e] == RECEIVE and fate[e] in (FIRST, REPEATED):
                self._arrive(p, message[e], first=fate[e] == FIRST)
            while self._at_once:
                to, copy = self._at_once.popleft()
                self._perform(to, self._machines[to].receive(copy))
        self.tally["held_at_end"] = len(self._waiting)
        self.tally["copies"] = len(self._left | self._delivered)
        return self.tally

    def _send(self, process: int, message: int) -> None:
        to = self._recording.destinations(message)
        if not to:
            return
        clock, effects = self._machines[process].multicast(to, b"")
        self._message_of[process, clock] = message
        self.history.append(Happening(process, "send", message))
        self.tally["messages"] += 1
        self._perform(process, effects)

    def _arrive(self, process: int, message: int, *, first: bool) -> None:
        slot = (message, process)
        self._to_come[slot] -= 1
        self._arrived.add(slot)
        if first and slot not in self._delivered:
            self._waiting[slot] = (self._moment, self._events[process])
        copies = self._on_its_way.get(slot, [])
        if not self._to_come[slot]:
            self._on_its_way.pop(slot, None)
        for copy in copies if first else copies[-1:]:
            self._perform(process, self._machines[process].receive(copy))

    def _perform(self, process: int, effects: Iterable[Effect]) -> None:
        sends = [effect for effect in effects if isinstance(effect, Send)]
        for send, size in zip(sends, control_sizes([send.message for send in sends]), strict=True):
            self._transmit(process, send, size)
        for effect in effects:
            if isinstance(effect, Deliver):
                self._deliver(process, self._message_of[effect.sender, effect.clock])

    def _transmit(self, process: int, send: Send[Any], size: int) -> None:
        to, copy = send
        entries, units = copy.size()
        message = self._message_of.get((copy.sender, copy.clock), -1) if to in copy.to else -1
        first_hand = message >= 0 and copy.sender == process
        tally = self.tally
        links = self._terrain.links(process, to) if self._terrain is not None else 1
        tally["crossings"] += links
        tally["crossed_entries"] += links * entries
        tally["crossed_bytes"] += links * size
        tally["transmissions"] += 1
        tally["added"] += not first_hand
        tally["entries"] += entries
        tally["units"] += units
        tally["control_bytes"] += size
        tally["model_bytes"] += copy.model_bytes()
        n = len(self._machines)
        if tally["entries"] > RUNAWAY + 2 * n * n * tally["transmissions"]:
            raise LocalProtocolError(
                f"stopped after {tally['entries']:,} entries: it keeps carrying messages that were lost"
            )
        slot = (message, to)
        if message >= 0:
            self._left.add(slot)
        if first_hand:
            self.carried[slot] = units
        self._route(slot, send, recorded=first_hand or (message >= 0 and not self._relays_at_once))

    def _route(self, slot: Slot, send: Send[Any], *, recorded: bool) -> None:
        if not recorded or slot in self._arrived:
            self._at_once.append(send)
        elif self._to_come[slot]:
            self._on_its_way.setdefault(slot, []).append(send.message)

    def _deliver(self, process: int, message: int) -> None:
        slot = (message, process)
        self._delivered.add(slot)
        self.history.append(Happening(process, "deliver", message))
        self.tally["deliveries"] += 1
        arrived, event = self._waiting.pop(slot, (self._moment, self._events[process]))
        self.tally["late"] += self._events[process] > event or self._moment > arrived
        self.tally["late_events"] += self._events[process] - event
        if self._recording.moments is not None:
            self.tally["timed"] += 1
            self.tally["late_ns"] += self._moment - arrived


def _maker(protocol: str, options: dict[str, Any]) -> Factory:
    return lambda me, n: create(protocol, me, n, **options)


def numbered(recording: Recording, terrain: Terrain) -> Recording:
    """The recording with the numbers that processes have in a terrain; LocalProtocolError if a process is
    unknown there, or is a router there and sends or receives."""
    c = recording.computation
    index = {name: i for i, name in enumerate(terrain.names)}
    if unknown := [name for name in c.process_names if name not in index]:
        raise LocalProtocolError(
            f"{terrain.source} has no process called {unknown[0]!r}, which takes part in the trace; name the "
            "processes of the file as the trace does"
        )
    found = replace(recording, number=np.array([index[name] for name in c.process_names], np.int64))
    talking = {*found.number[c.process[c.kind == SEND]].tolist(), *found.number[c.slot_dest].tolist()}
    if routers := sorted(each for each in talking if each >= terrain.applications):
        raise LocalProtocolError(
            f"{terrain.names[routers[0]]!r} sends or is sent to in the trace, and only forwards in "
            f"{terrain.source}; declare it among `processes`"
        )
    return found


def _arrivals(recording: Recording) -> Counter[Slot]:
    c = recording.computation
    events = np.flatnonzero((c.kind == RECEIVE) & np.isin(c.fate, (FIRST, REPEATED)))
    processes = recording.number[c.process[events]].tolist()
    return Counter(zip(c.message[events].tolist(), processes, strict=True))
