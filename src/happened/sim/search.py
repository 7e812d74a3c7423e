"""Every interleaving of one program.

A state is what the machines know, what is in flight, and the ground truth; a step is the next send of
some process or the arrival of some packet (with FIFO links, only the oldest of its channel). States
reached in several ways are expanded once, which merges the interleavings that differ only in the order
of steps that commute. The search is breadth-first, so the first violation of a kind has a schedule as
short as any.

Checked    safety at every delivery: causal order, at most once, only at destinations;
           liveness when nothing more can happen: everything delivered, nothing held;
           optimality at every event: each message and each log holds exactly the necessary units;
           and that no machine raises.
Prunes     nothing beyond a step that is unsafe or raises: after it no answer means anything.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ..core.destinations import unpack
from ..ordering import Unit
from .automaton import Automaton, Step
from .programs import Program, set_text
from .truth import Edge, Messages, Truth, on_edge

SAFETY, LIVENESS, OPTIMALITY, ERROR = KINDS = ("safety", "liveness", "optimality", "error")


@dataclass(frozen=True, slots=True)
class Violation:
    kind: str
    program: Program
    reason: str
    schedule: tuple[str, ...]  # one line per event, ending with the event at fault


@dataclass(slots=True)
class Explored:
    """What one program gave: at most one violation of each kind."""

    states: int = 0
    transitions: int = 0
    violations: list[Violation] = field(default_factory=list)


class State(NamedTuple):
    machines: tuple[int, ...]
    casts: tuple[int, ...]  # per message, as the automaton numbers multicasts; 0 while unsent
    in_flight: int  # bit m * processes + d: message m is on its way to d
    truth: Truth


Action = int
"""m * processes + d: message m arrives at d; ~m: message m is sent."""


class Search:
    def __init__(self, automaton: Automaton, program: Program, *, fifo: bool, optimal: bool) -> None:
        self._automaton = automaton
        self._program = program
        self._optimal = optimal
        self._n = n = len(program.sends)
        # Messages are numbered process by process, in the order of their sends.
        self._sender = [process for process, sends in enumerate(program.sends) for _ in sends]
        self._to = [to for sends in program.sends for to in sends]
        self._of = [[m for m, sender in enumerate(self._sender) if sender == p] for p in range(n)]
        self._messages = Messages(n, self._to)
        # Per packet, the packets of its channel that a FIFO link lets through first.
        self._ahead = [
            sum(1 << k * n + d for k in self._of[sender] if k < m) if fifo else 0
            for m, sender in enumerate(self._sender)
            for d in range(n)
        ]
        self._necessary: dict[tuple[int, tuple[int, ...]], frozenset[Edge]] = {}
        self._reached: dict[State, tuple[State, Action] | None] = {}
        self._explored = Explored()

    def run(self) -> Explored:
        start = State(self._automaton.initial, (0,) * len(self._to), 0, Truth.beginning(self._messages))
        reached = self._reached
        reached[start] = None
        frontier = [start]
        while frontier:
            following = []
            for state in frontier:
                actions = self._enabled(state)
                if not actions:
                    self._judge_quiescence(state)
                self._explored.transitions += len(actions)
                for action in actions:
                    after = self._perform(state, action)
                    if after is None or after in reached:
                        continue
                    reached[after] = state, action
                    following.append(after)
                    # Once per state is enough: what was carried and what was known are part of it.
                    if self._optimal:
                        self._judge_optimality(state, action, after)
            frontier = following
        self._explored.states = len(reached)
        return self._explored

    def _enabled(self, state: State) -> list[Action]:
        actions = []
        for sends in self._of:
            for m in sends:
                if not state.casts[m]:
                    actions.append(~m)
                    break
        ahead = self._ahead
        in_flight = state.in_flight
        actions += [packet for packet in unpack(in_flight) if not in_flight & ahead[packet]]
        return actions

    def _actor(self, action: Action) -> int:
        return self._sender[~action] if action < 0 else action % self._n

    def _step(self, state: State, action: Action) -> Step:
        if action < 0:
            return self._automaton.multicast(state.machines[self._sender[~action]], self._to[~action])
        m, d = divmod(action, self._n)
        return self._automaton.receive(state.machines[d], self._automaton.casts[state.casts[m]].packets[d])

    def _perform(self, state: State, action: Action) -> State | None:
        """The state after this step; None if the step breaks a promise that ends this branch."""
        machines, casts, in_flight, truth = state
        step = self._step(state, action)
        p = self._actor(action)
        if step.error:
            self._report(ERROR, f"{p} raised {step.error}", state, action, told=0)
            return None
        if action < 0:
            m = ~action
            truth = truth.send(self._messages, p, m)
            casts = (*casts[:m], step.cast, *casts[m + 1 :])
            for d in self._automaton.casts[step.cast].packets:
                in_flight |= 1 << m * self._n + d
        else:
            in_flight ^= 1 << action
        for told, name in enumerate(step.delivered, 1):
            message = self._number(casts, name)
            fault = self._unsafe(truth, casts, p, message)
            if message is None or fault:
                self._report(SAFETY, f"{p} delivers {_name(name)} {fault}", state, action, told)
                return None
            truth = truth.deliver(self._messages, p, message)
        return State((*machines[:p], step.after, *machines[p + 1 :]), casts, in_flight, truth)

    def _number(self, casts: tuple[int, ...], name: tuple[int, int]) -> int | None:
        sender, clock = name
        for m in self._of[sender]:
            if casts[m] and self._automaton.casts[casts[m]].clock == clock:
                return m
        return None

    def _unsafe(self, truth: Truth, casts: tuple[int, ...], p: int, message: int | None) -> str:
        """What is wrong with delivering this message to p now; empty: nothing."""
        if message is None:
            return "which was never sent"
        if overtaken := truth.overtaken(self._messages, p, message):
            names = ", ".join(_name(self._named(casts, m)) for m in overtaken)
            return f"before {names}, sent to it too and causally earlier"
        if truth.is_delivered(self._messages, p, message):
            return "twice"
        return "" if self._to[message] >> p & 1 else "which was not sent to it"

    def _named(self, casts: tuple[int, ...], m: int) -> tuple[int, int]:
        return self._sender[m], self._automaton.casts[casts[m]].clock

    def _judge_quiescence(self, state: State) -> None:
        held = {
            (name, p): waits_for
            for p, machine in enumerate(state.machines)
            for name, waits_for in self._automaton.held(machine)
        }
        missing = [(self._named(state.casts, m), d) for m, d in state.truth.missing(self._messages)]
        reasons = [f"{_name(name)} is never delivered to {d}" for name, d in missing if (name, d) not in held]
        reasons += [
            f"{_name(name)} is held at {d} for {', '.join(map(_name, waits_for))} for ever"
            for (name, d), waits_for in held.items()
        ]
        if reasons:
            self._report(LIVENESS, "; ".join(reasons), *self._last(state))

    def _judge_optimality(self, state: State, action: Action, after: State) -> None:
        p = self._actor(action)
        if action < 0:
            m = ~action
            log = self._required(state.truth, state.truth.pasts[p])
            for d, carried in self._automaton.casts[after.casts[m]].units.items():
                required = self._units(after.casts, on_edge(log, self._to[m], d))
                if carried != required:
                    what = f"{_name(self._named(after.casts, m))} to {d} carries"
                    self._report(OPTIMALITY, _difference(what, carried, required), state, action)
        if self._automaton.tells_log:
            kept = self._automaton.log(after.machines[p])
            required = self._units(after.casts, self._required(after.truth, after.truth.pasts[p]))
            if kept != required:
                self._report(OPTIMALITY, _difference(f"the log of {p} keeps", kept, required), state, action)

    def _required(self, truth: Truth, past: int) -> frozenset[Edge]:
        key = past, truth.sends
        units = self._necessary.get(key)
        if units is None:
            units = self._necessary[key] = truth.necessary(self._messages, past)
        return units

    def _units(self, casts: tuple[int, ...], edges: frozenset[Edge]) -> frozenset[Unit]:
        return frozenset((*self._named(casts, m), x) for m, x in edges)

    def _report(
        self, kind: str, reason: str, state: State, action: Action | None, told: int | None = None
    ) -> None:
        if all(violation.kind != kind for violation in self._explored.violations):
            schedule = tuple(self._narrate(state, action, told))
            self._explored.violations.append(Violation(kind, self._program, reason, schedule))

    def _last(self, state: State) -> tuple[State, Action | None]:
        return self._reached[state] or (state, None)

    def _narrate(self, state: State, action: Action | None, told: int | None) -> Iterator[str]:
        """The events up to and including `action`, of whose deliveries only the first `told` are told."""
        steps = [] if action is None else [(state, action)]
        while (previous := self._reached[state]) is not None:
            steps.append(previous)
            state = previous[0]
        for remaining, (before, taken) in zip(range(len(steps) - 1, -1, -1), reversed(steps), strict=True):
            step = self._step(before, taken)
            p = self._actor(taken)
            if taken < 0:
                sent = _name((p, self._automaton.casts[step.cast].clock))
                yield f"{p} sends {sent} to {set_text(self._to[~taken])}"
            else:
                yield f"{p} receives {_name(self._named(before.casts, taken // self._n))}"
            for name in step.delivered if remaining else step.delivered[:told]:
                yield f"{p} delivers {_name(name)}"


def _name(message: tuple[int, int]) -> str:
    return f"M({message[0]},{message[1]})"


def _difference(what: str, actual: frozenset[Unit], required: frozenset[Unit]) -> str:
    parts = []
    if actual - required:
        parts.append(f"unnecessary {sorted(actual - required)}")
    if required - actual:
        parts.append(f"not the necessary {sorted(required - actual)}")
    return f"{what} {' and '.join(parts)}"
