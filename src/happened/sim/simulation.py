"""Machines in virtual time: a discrete-event driver.

Promises   one seed replays bit for bit: events happen in the order of (time, counter), and each
           purpose (when to send, to whom, how long, how often) has a generator of its own, so that
           changing one part of a scenario does not shift the dice of another.
           The trace numbers a process's events as its machine does: a held message's `since` is the
           seq of its arrival.
Ends       when `messages` were sent and every packet has arrived. What a machine still holds then is
           reported as undelivered, with its reason.
"""

from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any, Literal, NamedTuple

from ..core.effects import Deliver, Send
from ..core.errors import LocalProtocolError
from ..ordering import Machine
from ..wire import control_sizes
from .automaton import Factory
from .ledger import Ledger, Transmission, model_bytes
from .network import SECOND, Links, Network
from .recorder import Recorder
from .workload import Workload, parse_pattern


class Change(NamedTuple):
    """A process joins (it gets the next index) or leaves (it only drains what is on its way)."""

    time: float  # seconds
    what: Literal["join", "leave"]
    process: int


class Undelivered(NamedTuple):
    process: int
    message: tuple[int, int]
    waits_for: tuple[tuple[int, int], ...]  # empty if the machine gives no reason
    since: int | None  # the seq of its arrival, if the machine holds it


class Simulation:
    """One run of `processes` machines, made by `factory(me, n)`, until `messages` are sent and delivered.

    `control_sizes` gives the encoded bytes of control information of one multicast's messages.
    `progress` is called with the number of messages sent since the last call.
    """

    def __init__(
        self,
        factory: Factory,
        processes: int,
        messages: int,
        *,
        seed: int,
        workload: Workload | None = None,
        network: Network | None = None,
        changes: Sequence[Change] = (),
        control_sizes: Callable[[Sequence[Any]], Sequence[int]] = control_sizes,
        recorder: Recorder | None = None,
        ledger: Ledger | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> None:
        if processes < 1 or messages < 0:
            raise LocalProtocolError(f"cannot simulate {processes} processes and {messages} messages")
        workload = workload or Workload()
        self._factory = factory
        self._pattern = parse_pattern(workload.pattern)
        self._rate = 1 / workload.interval
        self._timing, self._choices = Random(f"{seed}/timing"), Random(f"{seed}/destinations")
        self._links = Links(network or Network(), Random(f"{seed}/delays"), Random(f"{seed}/duplicates"))
        self._control_sizes = control_sizes
        self._recorder = recorder
        self.ledger = ledger if ledger is not None else Ledger()
        self._progress = progress
        self._now = 0
        self._agenda: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._counter = count()
        self._unsent = messages
        self._changes_ahead = len(changes)
        self.machines: list[Machine] = []
        self._members: list[int] = []  # the present ones, in increasing order
        self._seq: list[int] = []
        self._waiting: list[dict[tuple[int, int], int]] = []  # arrived, not delivered: since when
        self._copies: dict[tuple[int, int, int], int] = {}  # doubled packets still to arrive
        for _ in range(processes):
            self._add(processes)
        for change in sorted(changes, key=lambda change: change.time):
            self._at(int(change.time * SECOND), self._change, change)

    def run(self) -> list[Undelivered]:
        """Run to quiescence; what is left undelivered, which is nothing if the protocol is live."""
        agenda = self._agenda
        while agenda:
            self._now, _, act, arguments = heappop(agenda)
            act(*arguments)
        return [left for process in range(len(self.machines)) for left in self._undelivered(process)]

    @property
    def now(self) -> int:
        """Virtual time in ns."""
        return self._now

    def _at(self, time: int, act: Callable[..., None], *arguments: Any) -> None:
        heappush(self._agenda, (time, next(self._counter), act, arguments))

    def _add(self, n: int) -> None:
        process = len(self.machines)
        self.machines.append(self._factory(process, n))
        self._members.append(process)
        self._seq.append(0)
        self._waiting.append({})
        self._pause(process)

    def _pause(self, process: int) -> None:
        pause = self._timing.expovariate(self._rate)
        self._at(self._now + int(pause * SECOND), self._send, process)

    def _change(self, change: Change) -> None:
        self._changes_ahead -= 1
        if change.what == "join":
            n = len(self.machines)
            if change.process != n:
                raise LocalProtocolError(f"the next process to join is {n}, not {change.process}")
            for machine in self.machines:
                machine.join(n)
            self._add(n + 1)
            for gone in sorted(set(range(n)) - set(self._members)):
                self.machines[n].leave(gone)
        else:
            if change.process not in self._members:
                raise LocalProtocolError(f"process {change.process} is not present and cannot leave")
            self._members.remove(change.process)
            for process, machine in enumerate(self.machines):
                if process != change.process:
                    machine.leave(change.process)

    def _send(self, process: int) -> None:
        if not self._unsent or process not in self._members:
            return
        to = self._pattern(self._choices, process, self._members)
        if to:
            self._unsent -= 1
            self._multicast(process, to)
            if self._progress is not None:
                self._progress(1)
        elif not self._changes_ahead:
            return  # alone, and nobody will come
        self._pause(process)

    def _multicast(self, process: int, to: list[int]) -> None:
        machine = self.machines[process]
        effects = machine.multicast(to, b"")
        self._seq[process] = seq = self._seq[process] + 1
        entries, size = self._transmit(process, effects)
        first = effects[0]
        clock = first.message.clock if isinstance(first, Send) else first.clock
        if self._recorder is not None:
            self._recorder.sent(process, seq, clock, to, self._now, entries, size)
        log_size = getattr(machine, "log_size", None)
        self.ledger.multicast(log_size()[1] if log_size is not None else None)
        self._deliver(process, effects)

    def _transmit(self, process: int, effects: Iterable[Any]) -> tuple[int, int]:
        """Put every packet on its link; their entries and bytes of control information, added up."""
        sends = [effect for effect in effects if isinstance(effect, Send)]
        sizes = self._control_sizes([send.message for send in sends])
        entries = 0
        for send, size in zip(sends, sizes, strict=True):
            entries += self._put_on_link(process, send, size)
        return entries, sum(sizes)

    def _put_on_link(self, process: int, send: Send[Any], size: int) -> int:
        to, message = send
        entries, units = message.size()
        arrivals = self._links.arrivals(process, to, self._now)
        if len(arrivals) > 1:
            self._copies[to, message.sender, message.clock] = len(arrivals)
        for arrival in arrivals:
            self._at(arrival, self._arrive, to, message, entries, size)
        sent = process, message.clock, to, self._now, min(arrivals), len(arrivals)
        self.ledger.transmission(Transmission(*sent, entries, units, size, model_bytes(entries, units)))
        return entries

    def _arrive(self, process: int, message: Any, entries: int, size: int) -> None:
        self._seq[process] += 1
        name = (message.sender, message.clock)
        if self._recorder is not None:
            self._recorder.received(process, self._seq[process], message, self._now, entries, size)
        waiting = self._waiting[process]
        if self._is_first_copy(process, name):
            waiting[name] = self._now
        effects = self.machines[process].receive(message)
        self._transmit(process, effects)
        self._deliver(process, effects)
        self.ledger.arrival(len(waiting))

    def _is_first_copy(self, process: int, name: tuple[int, int]) -> bool:
        left = self._copies.get((process, *name)) if self._copies else None
        if left is None:
            return True
        if left == 1:
            del self._copies[process, *name]
            return False
        self._copies[process, *name] = left - 1
        return True

    def _deliver(self, process: int, effects: Iterable[Any]) -> None:
        waiting = self._waiting[process]
        for effect in effects:
            if isinstance(effect, Deliver):
                self._seq[process] += 1
                name = (effect.sender, effect.clock)
                self.ledger.delivery(self._now - waiting.pop(name, self._now))
                if self._recorder is not None:
                    self._recorder.delivered(process, self._seq[process], name, self._now)

    def _undelivered(self, process: int) -> list[Undelivered]:
        held = {(h.message.sender, h.message.clock): h for h in self.machines[process].pending()}
        names = sorted(self._waiting[process].keys() | held.keys())
        return [
            Undelivered(process, name, held[name].waits_for, held[name].since)
            if name in held
            else Undelivered(process, name, (), None)
            for name in names
        ]
