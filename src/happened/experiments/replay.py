"""Replays a recorded computation under one protocol: what would it have carried and delayed?

The protocol's machines make every send of the recording, with an empty payload: only control information is
counted. Every copy of a message arrives at a destination at the moment recorded in the trace.

  - A copy that leaves its sender, or a relay, only after that moment arrives at once. A copy that is recorded
    never to have arrived does not arrive, and messages that wait for it are held at the end.
  - Messages that the protocol adds (acknowledgements, proposals, requests to processes that are no
    destinations) arrive at once, so that its delays are too small by the delays of the links. Relayed copies
    do so, too, where a protocol needs FIFO links: at their recorded moments they could overtake.
  - An arrival recorded twice is a duplicate. Arrivals of what was never sent, or not to that process, and
    sends to nobody are left out.

With a terrain, machines run at its places and processes are numbered as there (`numbered`); copies arrive at
a router at once, since the trace has no times for that.

The delay of a delivery is the time, and the number of local events, between its recorded arrival and the
event that released it; it is zero if the protocol delivers before the recorded arrival.
"""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..causality import Computation, encode
from ..causality.computation import RECEIVE, SEND
from ..causality.linearization import FIRST, REPEATED, Ints
from ..causality.reach import levels_of
from ..core.effects import Deliver, Send
from ..core.errors import LocalProtocolError
from ..ordering import Effect, Machine, create, protocols
from ..sim.automaton import Factory
from ..sim.terrain import Terrain, relays
from ..wire import control_sizes

HANDOVER = ["computation", "process", "message"]
RUNAWAY = 5_000_000
"""A replay is stopped when it has carried this many entries more than 2n² per transmission; no protocol that
forgets delivered messages needs that many."""

Slot = tuple[int, int]
"""(message, destination)."""

TALLY = (
    "messages", "copies", "transmissions", "added", "entries", "units", "control_bytes", "model_bytes",
    "deliveries", "late", "late_events", "late_ns", "timed", "held_at_end", "crossings", "crossed_entries",
    "crossed_bytes",
)  # fmt: skip
"""The counts of a replay. `copies`: (message, destination) pairs transmitted, or delivered without that;
messages that never left their sender do not count. `crossings`: the links that transmissions cross, those of
the terrain if there is one; amounts `crossed` are counted on each link. `timed`: late deliveries whose delay
in ns is known."""


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """The sends and arrivals of a recorded computation, in the order in which a protocol is run on them.

    The order contains happened-before. Concurrent events are ordered by their recorded times, if all sends
    and arrivals have one, and then by their levels. A time that contradicts
    happened-before is moved forward to that of the event's causes; these corrected times are the `moments`.
    Processes are numbered by name, shorter names first: p2 comes before p10; the order of the rows does not
    matter.
    """

    computation: Computation  # of arrivals: a slot's delivery is the first arrival there
    walk: Ints  # the events in the order of the replay
    moments: Ints | None  # the corrected time of each event, in ns; None if a send or an arrival has no time
    number: Ints  # for each process of the computation: the number of its machine

    def destinations(self, message: int) -> list[int]:
        c = self.computation
        dests = c.slot_dest[c.dest_offsets[message] : c.dest_offsets[message + 1]]
        return sorted(self.number[dests].tolist())

    def groups(self) -> list[tuple[int, ...]]:
        """The distinct sets of a message's sender and destinations."""
        c = self.computation
        sent = np.flatnonzero(np.diff(c.dest_offsets) > 0)
        senders = self.number[c.process[c.send[sent]]].tolist()
        found = {
            tuple(sorted({sender, *self.destinations(m)}))
            for sender, m in zip(senders, sent.tolist(), strict=True)
        }
        return sorted(found)


def arrivals(table: pa.Table) -> tuple[pa.Table, int]:
    """The events, with a `receive` for each arrival and no `deliver`; how many deliveries became arrivals.

    If a message has no arrival at a process, its `deliver` there is used instead. Other deliveries are
    ignored: another protocol would have made its own.
    """
    kind = table["kind"].to_numpy(zero_copy_only=False).astype(object)
    numbered = table.select(HANDOVER).append_column("row", pa.array(np.arange(table.num_rows)))
    delivered = numbered.filter(pc.equal(table["kind"], "deliver"))
    received = table.select(HANDOVER).filter(pc.equal(table["kind"], "receive"))
    alone = delivered.join(received, HANDOVER, join_type="left anti")["row"].to_numpy()
    kind[kind == "deliver"] = "internal"
    kind[alone] = "receive"
    place = table.schema.get_field_index("kind")
    return table.set_column(place, table.schema.field("kind"), pa.array(kind, pa.string())), alone.size


def recordings(table: pa.Table) -> list[Recording]:
    """The recordings in a table of `arrivals`; TraceFormatError if a message arrives before it is sent."""
    times = table["time"].combine_chunks()
    return [_recording(c, times) for c in encode(table)]


def _recording(c: Computation, times: pa.Array) -> Recording:
    names = c.process_names
    by_name = sorted(range(c.processes), key=lambda p: (len(names[p]), names[p]))
    number = np.argsort(by_name)
    levels, machines = levels_of(c), number[c.process]
    own = times.take(pa.array(c.row))
    counts = np.isin(c.kind, (SEND, RECEIVE))
    if own.filter(pa.array(counts)).null_count or not counts.any():
        return Recording(c, np.lexsort((machines, levels)), None, number)
    moments = _corrected(c, pc.fill_null(own, np.iinfo(np.int64).min).to_pylist())
    return Recording(c, np.lexsort((machines, levels, moments)), moments, number)


def _corrected(c: Computation, times: list[int]) -> Ints:
    """Move times forward until no event is before its causes; events are in topological order: one pass."""
    now = [np.iinfo(np.int64).min] * c.processes
    source, offsets, causes = c.source.tolist(), c.cause_offsets.tolist(), c.causes.tolist()
    for e, process in enumerate(c.process.tolist()):
        moment = max(times[e], now[process])
        if source[e] >= 0:
            moment = max(moment, times[source[e]])
        for cause in causes[offsets[e] : offsets[e + 1]]:
            moment = max(moment, times[cause])
        times[e] = now[process] = moment
    return np.array(times, np.int64)


class Happening(NamedTuple):
    """A send (of a message to its destinations) or delivery that the replay made."""

    process: int
    kind: str
    message: int


class Replay:
    """Runs a machine per process once over the recording; ProtocolError if the protocol refuses it."""

    def __init__(
        self, protocol: str, recording: Recording, terrain: Terrain | None = None, make: Factory | None = None
    ) -> None:
        self._recording = recording
        self._terrain = terrain
        facts = protocols()[protocol]
        self._relays_at_once = facts.assumes.fifo_links
        n = recording.computation.processes if terrain is None else terrain.processes(protocol)
        options: dict[str, Any] = {"groups": recording.groups()} if facts.assumes.fixed_groups else {}
        if make is None and terrain is not None and relays(protocol):
            make = terrain.factory(protocol)
        make = make or (lambda me, n: create(protocol, me, n, **options))
        self._machines: list[Machine] = [make(me, n) for me in range(n)]
        self._message_of: dict[tuple[int, int], int] = {}  # (sender, clock) -> message
        self._to_come = _arrivals(recording)  # per slot: how many recorded arrivals are still ahead
        self._on_its_way: dict[Slot, list[Any]] = {}  # copies whose recorded arrival is ahead
        self._at_once: deque[Send[Any]] = deque()
        self._arrived: set[Slot] = set()
        self._waiting: dict[Slot, tuple[int, int]] = {}  # arrived, undelivered: moment and local event
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
        is_recorded = first_hand or (message >= 0 and not self._relays_at_once)
        if not is_recorded or slot in self._arrived:
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


def numbered(recording: Recording, terrain: Terrain) -> Recording:
    """The recording, with processes numbered as in the terrain; LocalProtocolError if the terrain does not
    know a process, or if a process that sends or receives is a router there."""
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
