"""Runs machines in virtual time: a discrete-event driver.

Promises   one seed replays bit for bit: events happen in the order of (time, counter), and each purpose (when
           to send, to whom, how long, how often) has a random generator of its own, so that changing one part
           of a scenario does not change the random choices of another. First-hand transmissions, of a message
           by its own sender to a destination, take the same time under every protocol: their delays are drawn
           when the application sends, all others from another generator.
           If sends must be serialized, they wait for a token.
           The trace numbers a process's events as its machine does: a held message's `since` is the seq of
           its arrival.
Ends       when `messages` were sent and every packet has arrived. Messages that a machine still holds then
           are reported as undelivered, with the reason.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any, Literal, NamedTuple

from ..core.destinations import pack
from ..core.effects import Deliver, Send
from ..core.errors import require
from ..ordering import Machine, ProtocolMessage, having
from ..ordering.capabilities import KeepsLog, Serializes, members, needed
from ..ordering.messages import ENTRY_BYTES
from ..ordering.token import Token, TokenPassed, TokenRequest
from ..tracking import Timestamp
from ..wire import control_sizes, token_frames
from .automaton import Factory
from .ledger import Ledger, Transmission
from .narrator import Narrator
from .network import SECOND, Network, SimulatedLinks
from .recorder import RunRecorder
from .riders import Riders
from .terrain import Roads, Terrain
from .tracker_narrator import TrackerNarrator
from .workload import Pattern, Service, Workload, parse_pattern


class ScheduledChange(NamedTuple):
    """A process joins (with the next index) or leaves (it then only receives what is on its way to it)."""

    time: float  # seconds
    what: Literal["join", "leave"]
    process: int


class Undelivered(NamedTuple):
    process: int
    message: tuple[int, int]
    waits_for: tuple[tuple[int, int], ...] = ()  # empty if the machine gives no reason
    since: int | None = None  # the seq of its arrival, if the machine holds it


class _Due(NamedTuple):
    """A message that is to be delivered at one destination; times in ns."""

    delay: int  # the delay of its first-hand transmission
    at_best: int  # its arrival if it left at once and no packet was ahead


class Simulation:
    """One run of `processes` machines, made by `factory(me, n)`, until `messages` are sent and delivered.

    `pattern`: if given, draws the destinations instead of the workload's pattern. `terrain`: if given, the
    links over which packets travel; its routers send nothing themselves. `control_sizes`: returns the encoded
    bytes of control information of one multicast's messages. `riders`: trackers whose piggybacks travel with
    the messages; they make the run's relevant events. `progress`: called with the number of messages sent
    since the last call.
    """

    def __init__(
        self,
        factory: Factory,
        processes: int,
        messages: int,
        *,
        seed: int,
        workload: Workload | None = None,
        pattern: Pattern | None = None,
        network: Network | None = None,
        terrain: Terrain | None = None,
        changes: Sequence[ScheduledChange] = (),
        control_sizes: Callable[[Sequence[Any]], Sequence[int]] = control_sizes,
        recorder: RunRecorder | None = None,
        ledger: Ledger | None = None,
        riders: Riders | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> None:
        possible = processes >= 1 and messages >= 0
        require(possible, f"cannot simulate {processes} processes and {messages} messages")
        if terrain is not None:
            require(not changes, f"nobody can join or leave {terrain.source}: routes are those of the file")
        workload = workload or Workload()
        self._factory = factory
        self._pattern = pattern or parse_pattern(workload.pattern)
        self._rate = 1 / workload.interval
        self._pace = self._pattern.pace if isinstance(self._pattern, Service) else None
        self._timing, self._choices = Random(f"{seed}/timing"), Random(f"{seed}/destinations")
        self._delay = (network or Network()).delay
        self._first_hand, self._added = Random(f"{seed}/delays"), Random(f"{seed}/added")
        self._links = SimulatedLinks(network or Network(), self._first_hand, Random(f"{seed}/duplicates"))
        self._roads = Roads(terrain, self._delay, seed) if terrain is not None else None
        self._control_sizes = control_sizes
        self._recorder = recorder
        self.ledger = ledger if ledger is not None else Ledger()
        self._riders = riders
        self.narrator: Narrator | None = None  # tells the run's story; set it before the run
        self.tracker_narrator: TrackerNarrator | None = None  # the same for the riders
        self._progress = progress
        self.now = 0  # virtual time in ns
        self._agenda: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._counter = count()
        self._unsent = messages
        self._changes_ahead = len(changes)
        self.machines: list[Machine] = []
        self._logs: list[KeepsLog | None] = []  # the machine's log, if it keeps one
        self._members: list[int] = []  # the present processes, in increasing order
        self._seq: list[int] = []
        # Per link, the arrival of the last packet on it; needed if a process leaves.
        self._last_arrival: dict[tuple[int, int], int] | None = {} if changes else None
        self._due: list[dict[tuple[int, int], _Due]] = []  # per process: sent to it, not delivered
        self._waiting: list[dict[tuple[int, int], int]] = []  # of `_due`: time of arrival
        for _ in range(processes):
            self._add(processes)
        if terrain is not None:
            del self._members[terrain.applications :]
        self._turns: TakingTurns | None = None
        facts = getattr(self.machines[0], "facts", None)  # the factory may make other objects than protocols
        if facts is not None and facts.assumes.serialized:
            require(not changes, "nobody can join or leave a simulated system that shares a token")
            serialized = [needed(machine, Serializes) for machine in self.machines]
            self._turns = TakingTurns(serialized, self._multicast, self._put_token)
        for change in sorted(changes, key=lambda change: change.time):
            self._at(int(change.time * SECOND), self._change, change)

    def run(self) -> list[Undelivered]:
        """Run until no event is left; returns the undelivered messages, none if the protocol is live."""
        agenda = self._agenda
        while agenda:
            self.now, _, act, arguments = heappop(agenda)
            act(*arguments)
        return [left for process in range(len(self.machines)) for left in self._undelivered(process)]

    def seconds(self) -> float:
        return self.now / SECOND

    def _at(self, time: int, act: Callable[..., None], *arguments: Any) -> None:
        heappush(self._agenda, (time, next(self._counter), act, arguments))

    def _add(self, n: int) -> None:
        process = len(self.machines)
        machine = self._factory(process, n)
        self.machines.append(machine)
        self._logs.append(having(machine, KeepsLog))
        self._members.append(process)
        self._seq.append(0)
        self._due.append({})
        self._waiting.append({})
        self._pause(process)

    def _pause(self, process: int) -> None:
        pace = self._pace(process, self._members) if self._pace is not None else 1.0
        pause = self._timing.expovariate(self._rate * pace)
        self._at(self.now + int(pause * SECOND), self._send, process)

    def _change(self, change: ScheduledChange) -> None:
        self._changes_ahead -= 1
        if change.what == "join":
            n = len(self.machines)
            require(change.process == n, f"the next process to join is {n}, not {change.process}")
            if self._riders is not None:
                self._riders.join()
            reactions = [members(machine).join(n) for machine in self.machines]
            self._add(n + 1)
            for process, effects in enumerate(reactions):
                self._react(process, effects)
            for gone in sorted(set(range(n)) - set(self._members)):
                self._react(n, members(self.machines[n]).leave(gone))
                self._react(n, members(self.machines[n]).close(gone))
        else:
            present = change.process in self._members
            require(present, f"process {change.process} is not present and cannot leave")
            self._members.remove(change.process)
            self._depart(change.process)

    def _depart(self, gone: int) -> None:
        """Tell all machines of a departure at once; packets in flight still arrive, as if it left itself."""
        assert self._last_arrival is not None
        self._react(gone, members(self.machines[gone]).leave(gone))
        for process, machine in enumerate(self.machines):
            if process != gone:
                self._react(process, members(machine).leave(gone))
                last = self._last_arrival.get((gone, process), self.now)
                self._at(max(last, self.now) + 1, self._close, process, gone)

    def _close(self, process: int, gone: int) -> None:
        self._react(process, members(self.machines[process]).close(gone))

    def _react(self, process: int, effects: Iterable[Any]) -> None:
        """Perform the effects of a membership change."""
        self._transmit(process, effects)
        self._deliver(process, effects)

    def _send(self, process: int) -> None:
        if not self._unsent or process not in self._members:
            return
        to = self._pattern(self._choices, process, self._members)
        if to:
            self._unsent -= 1
            planned = self._plan(process, to)
            if self._turns is None:
                self._multicast(process, to, planned)
            else:
                self._turns.ask(process, to, planned)
            if self._progress is not None:
                self._progress(1)
        elif not self._changes_ahead:
            return  # it is alone and no process will join
        self._pause(process)

    def _plan(self, process: int, to: list[int]) -> list[_Due]:
        """The delays of the application's next message to each destination, whenever it is sent."""
        if self._roads is None:
            delays = [self._delay.draw(self._first_hand) for _ in to]
        else:
            delays = self._roads.plan(process, to)
        return [
            _Due(delay, self._links.direct(process, d, self.now, delay))
            for d, delay in zip(to, delays, strict=True)
        ]

    def _put_token(self, process: int, to: int, message: Any) -> None:
        assert self._turns is not None
        delay = self._travel((process, 0), process, to)
        arrival = self._links.direct(process, to, self.now, delay)
        self._at(arrival, self._turns.arrive, to, message)
        sent = process, 0, to, self.now, arrival, 1
        self.ledger.transmission(Transmission(*sent, *control_of(message), added=True))

    def _multicast(self, process: int, to: list[int], planned: list[_Due]) -> None:
        machine = self.machines[process]
        boarding = self._board(process, to)
        clock, effects = machine.multicast(to, b"")
        self._seq[process] = seq = self._seq[process] + 1
        if self._roads is not None:
            self._roads.leave(process, clock)
        for d, due in zip(to, planned, strict=True):
            self._due[d][process, clock] = due
        if self.narrator is not None:
            self.narrator.sent(process, clock, pack(to), effects)
        if self._riders is not None:
            self._riders.depart(process, clock, boarding)
            if self.tracker_narrator is not None:
                self.tracker_narrator.sent(process, clock, boarding)
        entries, size = self._transmit(process, effects)
        if self._recorder is not None:
            self._recorder.sent(process, seq, clock, to, self.now, entries, size)
        log = self._logs[process]
        self.ledger.multicast(None if log is None else log.log_size()[1])
        self._happen(process)
        self._deliver(process, effects)

    def _transmit(self, process: int, effects: Iterable[Any]) -> tuple[int, int]:
        """Put every packet on its link; returns the sums of their entries and control bytes."""
        sends = [effect for effect in effects if isinstance(effect, Send)]
        sizes = self._control_sizes([send.message for send in sends])
        entries = 0
        for send, size in zip(sends, sizes, strict=True):
            entries += self._put_on_link(process, send, size)
        return entries, sum(sizes)

    def _travel(self, name: tuple[int, int], start: int, goal: int) -> int:
        """The travel time of a message to a process that its application did not send it to."""
        if self._roads is None:
            return self._delay.draw(self._added)
        return self._roads.travel(name, start, goal, self._added)

    def _put_on_link(self, process: int, send: Send[ProtocolMessage], size: int) -> int:
        to, message = send
        entries, units = message.size()
        due = self._due[to].get((message.sender, message.clock)) if message.sender == process else None
        first_hand = due is not None and to in message.to
        name = (message.sender, message.clock)
        delay = due.delay if due is not None and first_hand else self._travel(name, process, to)
        arrivals = self._links.arrivals(process, to, self.now, delay)
        if self._last_arrival is not None:
            last = self._last_arrival.get((process, to), 0)
            self._last_arrival[process, to] = max(last, *arrivals)
        for arrival in arrivals:
            self._at(arrival, self._arrive, process, to, message, entries, size)
        sent = process, message.clock, to, self.now, min(arrivals), len(arrivals)
        control = entries, units, size, message.model_bytes()
        fare = self._riders.fare_of(message, to) if self._riders is not None and first_hand else (0, 0)
        self.ledger.transmission(Transmission(*sent, *control, *fare, added=not first_hand))
        return entries

    def _arrive(self, source: int, process: int, message: Any, entries: int, size: int) -> None:
        self._seq[process] += 1
        name = (message.sender, message.clock)
        if self._recorder is not None:
            record = self._recorder.received if process in message.to else self._recorder.passed
            record(process, self._seq[process], message, self.now, entries, size)
        waiting = self._waiting[process]
        if name in self._due[process]:
            waiting.setdefault(name, self.now)
        effects = self.machines[process].receive(message)
        if self.narrator is not None:
            self.narrator.arrived(process, source, message, effects)
        self._transmit(process, effects)
        self._deliver(process, effects)
        self.ledger.arrival(len(waiting))

    def _deliver(self, process: int, effects: Iterable[Any]) -> None:
        waiting = self._waiting[process]
        for effect in effects:
            if isinstance(effect, Deliver):
                self._seq[process] += 1
                name = (effect.sender, effect.clock)
                due = self._due[process].pop(name, None)
                late = self.now - due.at_best if due is not None else 0
                self.ledger.delivery(self.now - waiting.pop(name, self.now), late)
                if self._recorder is not None:
                    self._recorder.delivered(process, self._seq[process], name, self.now)
                if self._riders is not None:
                    piggyback = self._riders.alight(process, *name)
                    if self.tracker_narrator is not None and piggyback is not None:
                        self.tracker_narrator.received(process, name, piggyback)
                    self._happen(process)

    def _board(self, process: int, to: Iterable[int]) -> dict[int, Any]:
        """The piggybacks of the trackers for a message, by destination."""
        if self._riders is None:
            return {}
        boarding = self._riders.board(process, [d for d in to if d != process])
        for piggyback in boarding.values():
            if piggyback.forced is not None:
                self._record_relevant(process, piggyback.forced)
        return boarding

    def _happen(self, process: int) -> None:
        """With the given probability, let a relevant event happen, and record it."""
        stamp = self._riders.event(process) if self._riders is not None else None
        if stamp is not None:
            if self.tracker_narrator is not None:
                self.tracker_narrator.event(process, stamp)
            self._record_relevant(process, stamp)

    def _record_relevant(self, process: int, stamp: Timestamp) -> None:
        self.machines[process].tick()
        self._seq[process] += 1
        if self._recorder is not None:
            self._recorder.relevant(process, self._seq[process], stamp, self.now)

    def _undelivered(self, process: int) -> list[Undelivered]:
        held = {(h.message.sender, h.message.clock): h for h in self.machines[process].pending()}
        names = sorted(self._due[process].keys() | held.keys())
        return [
            Undelivered(process, name, *((held[name].waits_for, held[name].since) if name in held else ()))
            for name in names
        ]


class TakingTurns:
    """The token of serialized sends (ordering/token.py): a send waits until its process has its turn.

    A process in its turn sends all messages that wait, and then passes the token on. Requests and the token
    take as long as other packets; a network that doubles packets does not double them, and neither do nodes'
    links. `send` multicasts a waiting message, with the arguments given to `ask`; `put` puts a message of the
    token protocol on the link from one process to another.
    """

    def __init__(
        self,
        machines: Sequence[Serializes],
        send: Callable[..., None],
        put: Callable[[int, int, TokenRequest | TokenPassed], None],
    ) -> None:
        self._machines, self._send, self._put = machines, send, put
        self._tokens = [Token(me, len(machines)) for me in range(len(machines))]
        self._waiting: list[deque[tuple[Any, ...]]] = [deque() for _ in machines]

    def ask(self, process: int, *arguments: Any) -> None:
        """Send as soon as this process has its turn."""
        self._waiting[process].append(arguments)
        self._perform(process, self._tokens[process].request())
        self._serve(process)

    def arrive(self, process: int, message: TokenRequest | TokenPassed) -> None:
        machine, token = self._machines[process], self._tokens[process]
        if isinstance(message, TokenRequest):
            self._perform(process, token.receive_request(message, machine.latest))
        else:
            effects = token.receive_token(message)
            machine.follow(message.latest)
            self._perform(process, effects)
            self._serve(process)

    def _serve(self, process: int) -> None:
        token, waiting = self._tokens[process], self._waiting[process]
        if token.has_turn:
            while waiting:
                self._send(process, *waiting.popleft())
            self._perform(process, token.release(self._machines[process].latest))

    def _perform(self, process: int, effects: Iterable[Send[Any]]) -> None:
        for to, message in effects:
            self._put(process, to, message)


def control_of(message: TokenRequest | TokenPassed) -> tuple[int, int, int, int]:
    """Entries, units, encoded bytes and bytes in the papers' model; all of it is control information."""
    entries = 1
    if isinstance(message, TokenPassed):
        entries = len(message.served) + len(message.queue) + _links(message.latest)
    return entries, 0, len(token_frames.encode(message)), ENTRY_BYTES * entries


def _links(latest: Any) -> int:
    """How many messages `latest` names; each name is a pair of numbers."""
    if not isinstance(latest, tuple):
        return 0
    return 1 if all(isinstance(each, int) for each in latest) and latest else sum(map(_links, latest))
