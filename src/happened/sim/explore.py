"""Explores every interleaving of every program of a given size (programs.py), and judges every step.

A state consists of the machines' states, the packets in flight, and the ground truth. A step is the next send
of some process or the arrival of some packet (with FIFO links, only the oldest of its channel). A state
reached in several ways is expanded once, which merges interleavings that differ only in the order of steps
that commute. The search is breadth-first, so the first violation of a kind has a shortest schedule.

Checked    safety at every delivery: the promised order, causal or of each sender (neither if only total order
           is promised), at most once, only at destinations;
           agreement, where total order is promised: no two processes deliver two messages in opposite orders;
           liveness when nothing more can happen: everything delivered, nothing held;
           optimality at every event: each message and each log holds exactly the necessary units;
           and that no machine raises.
Prunes     only what follows a step that is unsafe or raises, since answers are meaningless there.

What a machine sends at a receipt (relays, acknowledgements, proposals) travels like any other message; the
ground truth covers only application messages, whose order is promised.
"""

import multiprocessing
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from ..core.orders import Order
from ..ordering import Unit, create, protocols
from .automaton import Automaton, Factory, Transition, breadth_first, way_to
from .programs import Program, programs, set_text
from .truth import Edge, Messages, Truth, disagreement, keeps, on_edge

KINDS = ("safety", "agreement", "liveness", "optimality", "error")
SAFETY, AGREEMENT, LIVENESS, OPTIMALITY, ERROR = KINDS


@dataclass(frozen=True, slots=True)
class Violation:
    kind: str
    program: Program
    reason: str
    schedule: tuple[str, ...]  # one line per event, ending with the violating event


class Explored(NamedTuple):
    """The result for one program: at most one violation of each kind."""

    states: int
    transitions: int
    violations: list[Violation]


class SearchState(NamedTuple):
    machines: tuple[int, ...]
    clocks: tuple[int, ...]  # per message of the program, its clock; 0 while unsent
    in_flight: tuple[int, ...]  # packets, sorted; with FIFO links sorted by channel only, in the order sent
    orders: tuple[tuple[int, ...], ...]  # per process, its deliveries in order, if agreement is judged
    truth: Truth


Action = int
"""A packet that arrives, or ~m: message m is sent."""


class Search:
    """The search over one program; `order` is the delivery order to judge, a value of `Order`."""

    def __init__(
        self, automaton: Automaton, program: Program, *, order: Order, fifo: bool, optimal: bool
    ) -> None:
        self._automaton = automaton
        self._program = program
        self._order = order
        self._agreed = order.is_total
        self._fifo = fifo
        self._optimal = optimal
        self._n = n = len(program.sends)
        # Messages are numbered process by process, within each in the order of its sends.
        self._sender = [process for process, sends in enumerate(program.sends) for _ in sends]
        self._to = [to for sends in program.sends for to in sends]
        self._of = [[m for m, sender in enumerate(self._sender) if sender == p] for p in range(n)]
        self._messages = Messages(n, self._to)
        self._necessary: dict[tuple[int, tuple[int, ...]], frozenset[Edge]] = {}
        self._violations: list[Violation] = []
        orders = ((),) * n if self._agreed else ()
        unsent = (0,) * len(self._to)
        start = SearchState(automaton.initial, unsent, (), orders, Truth.beginning(self._messages))
        self._reached: dict[SearchState, tuple[SearchState, Action] | None] = {start: None}

    def run(self) -> Explored:
        transitions = breadth_first(self._reached, self._enabled, self._perform)
        return Explored(len(self._reached), transitions, self._violations)

    def _enabled(self, state: SearchState) -> list[Action]:
        actions = []
        for sends in self._of:
            for m in sends:
                if not state.clocks[m]:
                    actions.append(~m)
                    break
        if self._fifo:
            heads: dict[int, int] = {}
            for packet in state.in_flight:
                heads.setdefault(self._channel(packet), packet)
            actions += heads.values()
        else:
            actions += dict.fromkeys(state.in_flight)  # equal packets are one action
        if not actions:
            self._judge_quiescence(state)
        return actions

    def _channel(self, packet: int) -> int:
        return packet % self._n**2

    def _actor(self, action: Action) -> int:
        return self._sender[~action] if action < 0 else action % self._n

    def _step(self, state: SearchState, action: Action) -> Transition:
        if action < 0:
            return self._automaton.multicast(state.machines[self._sender[~action]], self._to[~action])
        return self._automaton.receive(state.machines[action % self._n], action)

    def _perform(self, state: SearchState, action: Action) -> SearchState | None:
        """The state after this step; None if it breaks a promise and thereby ends this branch."""
        machines, clocks, in_flight, orders, truth = state
        step = self._step(state, action)
        p = self._actor(action)
        if step.error:
            self._report(ERROR, f"{p} raised {step.error}", state, action, told=0)
            return None
        if action < 0:
            m = ~action
            truth = truth.send(self._messages, p, m)
            clocks = (*clocks[:m], step.clock, *clocks[m + 1 :])
        else:
            place = in_flight.index(action)
            in_flight = in_flight[:place] + in_flight[place + 1 :]
        if step.packets:
            in_flight += step.packets
            in_flight = tuple(sorted(in_flight, key=self._channel) if self._fifo else sorted(in_flight))
        for told, key in enumerate(step.delivered, 1):
            message = self._number(clocks, key)
            fault = self._unsafe(truth, clocks, p, message)
            if message is None or fault:
                self._report(SAFETY, f"{p} delivers {_name(key)} {fault}", state, action, told)
                return None
            truth = truth.deliver(self._messages, p, message)
            if self._agreed:
                if fault := disagreement(orders, p, message, partial(self._text, clocks)):
                    self._report(AGREEMENT, f"{p} delivers {_name(key)} {fault}", state, action, told)
                    return None
                orders = (*orders[:p], (*orders[p], message), *orders[p + 1 :])
        machines = (*machines[:p], step.after, *machines[p + 1 :])
        after = SearchState(machines, clocks, in_flight, orders, truth)
        # Judge once per state: a state includes what was carried and what was known.
        if self._optimal and after not in self._reached:
            self._judge_optimality(state, action, after)
        return after

    def _number(self, clocks: tuple[int, ...], name: tuple[int, int]) -> int | None:
        sender, clock = name
        for m in self._of[sender]:
            if clocks[m] == clock:
                return m
        return None

    def _unsafe(self, truth: Truth, clocks: tuple[int, ...], p: int, message: int | None) -> str:
        """Why it is wrong to deliver this message to p now; empty: it is not."""
        if message is None:
            return "which was never sent"
        if overtaken := self._overtaken(truth, p, message):
            names = ", ".join(self._text(clocks, m) for m in overtaken)
            return f"before {names}, sent to it too and causally earlier"
        if truth.is_delivered(self._messages, p, message):
            return "twice"
        return "" if self._to[message] >> p & 1 else "which was not sent to it"

    def _overtaken(self, truth: Truth, p: int, message: int) -> list[int]:
        """The undelivered messages that the promised order wants delivered to p before this message."""
        overtaken = truth.overtaken(self._messages, p, message)
        return [m for m in overtaken if keeps(self._order, self._sender[m], self._sender[message])]

    def _named(self, clocks: tuple[int, ...], m: int) -> tuple[int, int]:
        return self._sender[m], clocks[m]

    def _text(self, clocks: tuple[int, ...], m: int) -> str:
        return _name(self._named(clocks, m))

    def _judge_quiescence(self, state: SearchState) -> None:
        held = {
            (name, p): waits_for
            for p, machine in enumerate(state.machines)
            for name, waits_for in self._automaton.held(machine)
        }
        missing = [(self._named(state.clocks, m), d) for m, d in state.truth.missing(self._messages)]
        reasons = [f"{_name(name)} is never delivered to {d}" for name, d in missing if (name, d) not in held]
        reasons += [
            f"{_name(name)} is held at {d} for {', '.join(map(_name, waits_for))} for ever"
            for (name, d), waits_for in held.items()
        ]
        if reasons:
            self._report(LIVENESS, "; ".join(reasons), state, None)

    def _judge_optimality(self, state: SearchState, action: Action, after: SearchState) -> None:
        p = self._actor(action)
        if action < 0:
            m = ~action
            log = self._required(state.truth, state.truth.pasts[p])
            for packet in self._step(state, action).packets:
                d = packet % self._n
                carried = self._automaton.units(packet)
                required = self._units(after.clocks, on_edge(log, self._to[m], d))
                if carried != required:
                    what = f"{self._text(after.clocks, m)} to {d} carries"
                    self._report(OPTIMALITY, _difference(what, carried, required), state, action)
        if self._automaton.tells_log:
            kept = self._automaton.log(after.machines[p])
            required = self._units(after.clocks, self._required(after.truth, after.truth.pasts[p]))
            if kept != required:
                self._report(OPTIMALITY, _difference(f"the log of {p} keeps", kept, required), state, action)

    def _required(self, truth: Truth, past: int) -> frozenset[Edge]:
        key = past, truth.sends
        units = self._necessary.get(key)
        if units is None:
            units = self._necessary[key] = truth.necessary(self._messages, past)
        return units

    def _units(self, clocks: tuple[int, ...], edges: frozenset[Edge]) -> frozenset[Unit]:
        return frozenset((*self._named(clocks, m), x) for m, x in edges)

    def _report(
        self, kind: str, reason: str, state: SearchState, action: Action | None, told: int | None = None
    ) -> None:
        if all(violation.kind != kind for violation in self._violations):
            steps = way_to(state, self._reached) + ([] if action is None else [(state, action)])
            schedule = tuple(self._narrate(steps, told))
            self._violations.append(Violation(kind, self._program, reason, schedule))

    def _narrate(self, steps: Sequence[tuple[SearchState, Action]], told: int | None) -> Iterator[str]:
        """The events of these steps, one line each. Of the last step, only the first `told` deliveries are
        listed (None: all)."""
        for remaining, (before, taken) in zip(range(len(steps) - 1, -1, -1), steps, strict=True):
            step = self._step(before, taken)
            p = self._actor(taken)
            if taken < 0:
                yield f"{p} sends {_name((p, step.clock))} to {set_text(self._to[~taken])}"
            else:
                yield f"{p} receives {self._described(taken)}"
            for name in step.delivered if remaining else step.delivered[:told]:
                yield f"{p} delivers {_name(name)}"

    def _described(self, packet: int) -> str:
        message, source = self._automaton.message(packet), self._channel(packet) // self._n
        name = _name((message.sender, message.clock))
        if not message.to:
            return f"{type(message).__name__} of {name} from {source}"
        return name if source == message.sender else f"{name} from {source}"


def _name(message: tuple[int, int]) -> str:
    return f"M({message[0]},{message[1]})"


def _difference(what: str, actual: frozenset[Unit], required: frozenset[Unit]) -> str:
    parts = []
    if actual - required:
        parts.append(f"unnecessary {sorted(actual - required)}")
    if required - actual:
        parts.append(f"not the necessary {sorted(required - actual)}")
    return f"{what} {' and '.join(parts)}"


TABLE_LIMIT = 1_000_000  # maximal number of transitions kept across programs, about a gigabyte


@dataclass(frozen=True, slots=True)
class Exploration:
    """What was explored and found; violations come shortest first, one per kind and program."""

    judged: tuple[str, ...]  # the kinds of violation that were judged
    programs: int
    states: int
    transitions: int
    violations: tuple[Violation, ...]

    def counts(self) -> dict[str, int]:
        """Per promise that was judged, how many programs broke it."""
        found = Counter(violation.kind for violation in self.violations)
        return {kind: found[kind] for kind in self.judged}


def explore(
    factory: str | Factory,
    processes: int,
    messages: int,
    *,
    order: str | None = None,
    fifo: bool = False,
    self_addressed: bool = True,
    optimal: bool | None = None,
    casts: str = "multicast",
    renamed: bool = False,
    routers: int = 0,
    workers: int = 1,
    stop_at_first: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> Exploration:
    """Explore a protocol, given as its registered name or as a factory of machines from (me, n).

    `order`: which order to judge, a value of `Order`; by default the one that the registered protocol
    promises, or causal order for a factory. `optimal`: whether to judge optimality; by default, if the
    machines tell their log (`log_units`). `renamed`: also explore programs that differ only in the names of
    processes, for protocols that do not treat processes alike. `routers`: so many processes, of the highest
    indices, are added; they neither send nor are sent to. `progress` is called with the numbers of programs
    explored and to explore. More than one worker needs a factory that can be pickled.
    """
    if order is None:
        order = protocols()[factory].order if isinstance(factory, str) else Order.CAUSAL
    make = partial(create, factory) if isinstance(factory, str) else factory
    todo = programs(processes, messages, casts=casts, self_addressed=self_addressed, renamed=renamed)
    if routers:
        todo = [Program((*program.sends, *((),) * routers)) for program in todo]
    start = partial(Explorer, make, processes + routers, order=Order(order), fifo=fifo, optimal=optimal)
    explorer = start()
    results: list[Explored] = []
    for result in map(explorer.explore, todo) if workers == 1 else _in_workers(start, todo, workers):
        results.append(result)
        if progress is not None:
            progress(len(results), len(todo))
        if stop_at_first and result.violations:
            break
    return Exploration(
        explorer.judged,
        len(results),
        sum(result.states for result in results),
        sum(result.transitions for result in results),
        tuple(sorted((v for r in results for v in r.violations), key=lambda v: len(v.schedule))),
    )


def _in_workers(make: "Callable[[], Explorer]", todo: Sequence[Program], workers: int) -> Iterator[Explored]:
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers, _start_worker, (make,)) as pool:
        yield from pool.imap(_explore_in_worker, todo, chunksize=1 + len(todo) // (64 * workers))


_worker: "Explorer"  # each worker process has its own, with its own transition table


def _start_worker(make: "Callable[[], Explorer]") -> None:
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends its workers
    _worker = make()


def _explore_in_worker(program: Program) -> Explored:
    return _worker.explore(program)


class Explorer:
    """Explores one program after another; the table of transitions is kept between programs."""

    def __init__(
        self, factory: Factory, processes: int, *, order: Order, fifo: bool, optimal: bool | None
    ) -> None:
        self._automaton = Automaton(factory, processes)
        optimal = self._automaton.tells_log if optimal is None else optimal
        self._search = partial(Search, self._automaton, order=order, fifo=fifo, optimal=optimal)
        judged = {AGREEMENT: order.is_total, OPTIMALITY: optimal}
        self.judged = tuple(kind for kind in KINDS if judged.get(kind, True))

    def explore(self, program: Program) -> Explored:
        if len(self._automaton) > TABLE_LIMIT:
            self._automaton.forget()
        return self._search(program).run()
