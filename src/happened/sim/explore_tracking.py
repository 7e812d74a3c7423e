"""Explores every small computation under a tracker, and judges every event.

A computation is any sequence of relevant events, sends and receipts; messages may be late, lost or, without
FIFO links, overtake each other. A state consists of the trackers' states, the messages in flight and the
ground truth; a state reached in several ways is expanded once. The search is breadth-first, so the first
violation has a shortest schedule.

Checked    after each step, the timestamp that the tracker would give to a relevant event now: its vector,
           immediate predecessors and scalar, or the vector reconstructed from the dependencies told so far;
           that no message carries more than `bound` entries; that nothing raises. Asking is not part of the
           state, so a computation of r relevant events is judged in a state with r - 1.
Assumes    a protocol that treats processes alike: they enter a computation in the order of their numbers. A
           LocalProtocolError of `on_send` forbids that send (`direct` has such rules) and is counted.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

from ..core.errors import LocalProtocolError
from ..tracking import EventId, Timestamp, TrackerMachine, create, vectors
from .automaton import Table, breadth_first, way_to

Factory = Callable[[int, int], TrackerMachine]


@dataclass(frozen=True, slots=True)
class TrackingViolation:
    reason: str
    schedule: tuple[str, ...]  # one line per step, ending with the violating step


@dataclass(frozen=True, slots=True)
class TrackingExploration:
    states: int
    transitions: int
    refused: int  # sends that the tracker forbade
    violations: tuple[TrackingViolation, ...]  # the shortest first; the search stops after `limit` of them


def explore_tracking(
    factory: str | Factory,
    processes: int,
    messages: int,
    relevant: int,
    *,
    fifo: bool = False,
    bound: int | None = None,
    limit: int = 1,
) -> TrackingExploration:
    """Explore all computations with at most this many messages and relevant (not null) events."""
    make = partial(create, factory) if isinstance(factory, str) else factory
    return _Search(make, processes, messages, relevant - 1, fifo, bound, limit).run()


class Knows(NamedTuple):
    """The ground truth about a process or a message in flight, as sets of relevant events.

    `past` is the causal past; `covered` is the part of it that happened before another event of it. Pasts are
    closed under happened-before, so an event covered in a union was covered in one of the parts.
    """

    past: frozenset[EventId] = frozenset()
    covered: frozenset[EventId] = frozenset()

    def join(self, other: "Knows") -> "Knows":
        return Knows(self.past | other.past, self.covered | other.covered)

    def event(self, event: EventId) -> "Knows":
        return Knows(self.past | {event}, self.past)


class TrackedPacket(NamedTuple):
    sender: int
    to: int
    piggyback: int
    knows: int


class TrackingState(NamedTuple):
    """A state as numbers that the tables of a search gave out."""

    trackers: tuple[int, ...]
    knows: tuple[int, ...]
    in_flight: tuple[int, ...]  # sorted; with FIFO links sorted by channel, in the order sent
    told: int  # the timestamps given so far, if judging needs them; else 0
    messages_left: int
    relevant_left: int
    entered: int  # how many processes have taken part


class TrackerStep(NamedTuple):
    after: int
    result: Any  # a timestamp, the number of a piggyback, or None
    forced: Timestamp | None
    error: str


class _Automaton:
    """A tracker as a transition table; machines are pure, so each transition is computed once."""

    def __init__(self, factory: Factory, processes: int) -> None:
        self._machines = [factory(me, processes) for me in range(processes)]
        self._states = Table()
        self._piggybacks = Table()
        self._steps: dict[tuple[Any, ...], TrackerStep] = {}
        self.initial = tuple(self._states.number((m.me, m.snapshot())) for m in self._machines)

    def step(self, state: int, method: str, *arguments: int) -> TrackerStep:
        """The step of a tracker in this state by this method; a piggyback is given by its number."""
        key = (state, method, *arguments)
        step = self._steps.get(key)
        if step is None:
            step = self._steps[key] = self._try(state, method, *arguments)
        return step

    def entries(self, piggyback: int) -> int:
        return int(self._piggybacks[piggyback].entries)

    def _try(self, state: int, method: str, *arguments: Any) -> TrackerStep:
        me, data = self._states[state]
        machine, sends = self._machines[me], method == "on_send"
        machine.restore(data)
        if method == "on_receive":
            arguments = arguments[0], self._piggybacks[arguments[1]]
        try:
            result = getattr(machine, method)(*arguments)
        except Exception as error:  # any exception is a verdict on the protocol under test
            forbidden = sends and isinstance(error, LocalProtocolError)
            return TrackerStep(state, None, None, "" if forbidden else f"{type(error).__name__}: {error}")
        forced = result.forced if sends else None
        if sends:
            result = self._piggybacks.number(result)
        return TrackerStep(self._states.number((me, machine.snapshot())), result, forced, "")


Action = tuple[Any, ...]
"""("relevant", p), ("send", p, q) or ("receive", index in `in_flight`)."""


class _Search:
    def __init__(
        self,
        factory: Factory,
        processes: int,
        messages: int,
        relevant: int,
        fifo: bool,
        bound: int | None,
        limit: int,
    ) -> None:
        self._n = processes
        self._automaton = _Automaton(factory, processes)
        self._fifo = fifo
        self._bound = bound
        self._limit = limit
        self._knows = Table(Knows())
        self._packets = Table()
        self._told = Table(())
        start = TrackingState(self._automaton.initial, (0,) * processes, (), 0, messages, relevant, 0)
        self._reached: dict[TrackingState, tuple[TrackingState, Action] | None] = {start: None}
        self._refused = 0
        self._violations: list[TrackingViolation] = []
        self._judged: dict[tuple[int, int, int], str] = {}

    def run(self) -> TrackingExploration:
        transitions = breadth_first(
            self._reached, self._enabled, self._perform, lambda: len(self._violations) >= self._limit
        )
        return TrackingExploration(
            len(self._reached), transitions, self._refused, tuple(self._violations[: self._limit])
        )

    def _enabled(self, state: TrackingState) -> Iterator[Action]:
        acting = range(min(state.entered + 1, self._n))
        if state.relevant_left:
            yield from (("relevant", p) for p in acting)
        if state.messages_left:
            for p in acting:
                known = min(max(state.entered, p + 1) + 1, self._n)
                yield from (("send", p, q) for q in range(known) if q != p)
        channels, previous = set(), -1
        for place, number in enumerate(state.in_flight):
            packet = self._packets[number]
            channel = packet.sender, packet.to
            # The first of equal packets, and with FIFO links the first of a channel, stands for all.
            if number != previous and not (self._fifo and channel in channels):
                yield "receive", place
            channels.add(channel)
            previous = number if not self._fifo else -1

    def _perform(self, state: TrackingState, action: Action) -> TrackingState | None:
        """The state after this step; None if the step is forbidden or breaks a promise."""
        what, p = action[0], self._actor(state, action)
        step = self._step(state, action)
        if step.error:
            self._report(f"{p} raised {step.error}", state, action)
            return None
        if what == "send" and step.result is None:
            self._refused += 1
            return None
        knows: Knows = self._knows[state.knows[p]]
        in_flight, told = state.in_flight, state.told
        produced = step.forced if what == "send" else step.result
        if produced is not None:
            if fault := self._fault(knows, told, produced):
                self._report(f"{p}'s event {fault}", state, action)
                return None
            told = self._remember(told, knows, produced)
            knows = knows.event((p, produced.seq))
        if what == "send":
            if self._bound is not None and self._automaton.entries(step.result) > self._bound:
                self._report(f"{p} sends more than {self._bound} entries", state, action)
                return None
            packet = TrackedPacket(p, action[2], step.result, self._knows.number(knows))
            in_flight = self._sorted((*in_flight, self._packets.number(packet)))
        elif what == "receive":
            packet = self._packets[in_flight[action[1]]]
            knows = knows.join(self._knows[packet.knows])
            in_flight = (*in_flight[: action[1]], *in_flight[action[1] + 1 :])
        after = TrackingState(
            _replaced(state.trackers, p, step.after),
            _replaced(state.knows, p, self._knows.number(knows)),
            in_flight,
            told,
            state.messages_left - (what == "send"),
            state.relevant_left - (what == "relevant"),
            max(state.entered, *(1 + q for q in action[1:] if what != "receive"), 0),
        )
        return self._judge(state, action, after, p)

    def _sorted(self, in_flight: tuple[int, ...]) -> tuple[int, ...]:
        if self._fifo:  # order matters within a channel, not between channels
            return tuple(sorted(in_flight, key=lambda number: self._packets[number][:2]))
        return tuple(sorted(in_flight))

    def _actor(self, state: TrackingState, action: Action) -> int:
        place: int = action[1]
        return int(self._packets[state.in_flight[place]].to) if action[0] == "receive" else place

    def _step(self, state: TrackingState, action: Action) -> TrackerStep:
        mine = state.trackers[self._actor(state, action)]
        if action[0] == "relevant":
            return self._automaton.step(mine, "relevant")
        if action[0] == "send":
            return self._automaton.step(mine, "on_send", action[2])
        packet = self._packets[state.in_flight[action[1]]]
        return self._automaton.step(mine, "on_receive", packet.sender, packet.piggyback)

    def _judge(
        self, state: TrackingState, action: Action, after: TrackingState, p: int
    ) -> TrackingState | None:
        """Judge the timestamp that p would give to a relevant event now."""
        key = after.trackers[p], after.knows[p], after.told
        fault = self._judged.get(key)
        if fault is None:
            step = self._automaton.step(after.trackers[p], "relevant")
            fault = step.error or self._fault(self._knows[after.knows[p]], after.told, step.result)
            self._judged[key] = fault
        if fault:
            self._report(f"{p}'s next event {fault}", state, action)
        return None if fault else after

    def _fault(self, knows: Knows, told: int, stamp: Timestamp) -> str:
        """The fault in this timestamp of an event with this past; empty: none."""
        event = stamp.process, stamp.seq
        counts = [0] * self._n
        for process, _ in (*knows.past, event):
            counts[process] += 1
        if stamp.seq != counts[stamp.process]:
            return f"is number {counts[stamp.process]} of its process, not {stamp.seq}"
        if stamp.counts is not None and stamp.counts != tuple(counts):
            return f"has the vector {tuple(counts)}, not {stamp.counts}"
        immediate = knows.past - knows.covered
        if stamp.immediate is not None and stamp.immediate != immediate:
            return f"has the predecessors {sorted(immediate)}, not {sorted(stamp.immediate)}"
        earlier = dict(self._told[told])
        if stamp.scalar is not None:
            chain = 1 + max((earlier[e].scalar for e in knows.past), default=0)
            if stamp.scalar != chain:
                return f"ends a chain of {chain} events and has the scalar {stamp.scalar}"
        if stamp.dependencies is not None:
            found = vectors([*earlier.values(), stamp])[event]
            if found != tuple(counts):
                return f"has the vector {tuple(counts)}; its dependencies give {found}"
        return ""

    def _remember(self, told: int, knows: Knows, stamp: Timestamp) -> int:
        if stamp.scalar is None and stamp.dependencies is None:
            return told
        stamps = *self._told[told], ((stamp.process, stamp.seq), stamp)
        return self._told.number(tuple(sorted(stamps, key=itemgetter(0))))

    def _report(self, reason: str, state: TrackingState, action: Action) -> None:
        if len(self._violations) < self._limit:
            steps = [*way_to(state, self._reached), (state, action)]
            schedule = tuple(itertools.starmap(self._line, steps))
            self._violations.append(TrackingViolation(reason, schedule))

    def _line(self, state: TrackingState, action: Action) -> str:
        if action[0] == "relevant":
            return f"event at {action[1]}"
        if action[0] == "send":
            return f"{action[1]} sends to {action[2]}"
        packet = self._packets[state.in_flight[action[1]]]
        nth = sum(self._packets[number][:2] == packet[:2] for number in state.in_flight[: action[1] + 1])
        which = f" (number {nth} in flight)" if nth > 1 else ""
        return f"{packet.to} receives from {packet.sender}{which}"


def _replaced(values: tuple[int, ...], place: int, value: int) -> tuple[int, ...]:
    return (*values[:place], value, *values[place + 1 :])
