"""Every interleaving of every program of a given size, judged at every step.

Programs come from `programs`, the judging of one of them is `search`; this module spreads them over
workers and adds up what they found.
"""

import multiprocessing
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from ..core.orders import Order
from ..ordering import create, protocols
from .automaton import Automaton, Factory
from .programs import Program, programs
from .search import AGREEMENT, KINDS, OPTIMALITY, Explored, Search, Violation

__all__ = ["KINDS", "Exploration", "Explorer", "Violation", "explore"]

TABLE_LIMIT = 1_000_000  # transitions remembered across programs, about a gigabyte


@dataclass(frozen=True, slots=True)
class Exploration:
    """What was explored and what was found; the shortest violations first, one per kind and program."""

    judged: tuple[str, ...]  # the kinds of violation looked for
    programs: int
    states: int
    transitions: int
    violations: tuple[Violation, ...]

    def counts(self) -> dict[str, int]:
        """How many programs broke each promise that was judged."""
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
    """Explore a protocol, given by its registered name or by what makes a machine from (me, n).

    `order` says what to judge, in the words of `Facts`; by default what the registered protocol promises,
    and causal order for a factory.
    `optimal` says whether to judge optimality; by default, if the machines tell their log (`log_units`).
    `renamed` explores programs that differ only in the names of processes too, for protocols that do not
    treat processes alike.
    `routers` processes, of the highest indices, come on top: they neither send nor are sent to.
    `progress` is called with the numbers of programs explored and to explore. More than one worker needs
    a factory that can be pickled.
    """
    if order is None:
        order = protocols()[factory].order if isinstance(factory, str) else Order.CAUSAL
    judged = Order(order)
    make = partial(create, factory) if isinstance(factory, str) else factory
    todo = programs(processes, messages, casts=casts, self_addressed=self_addressed, renamed=renamed)
    if routers:
        todo = [Program((*program.sends, *((),) * routers)) for program in todo]
    explorer = Explorer(make, processes + routers, order=judged, fifo=fifo, optimal=optimal)
    states = transitions = explored = 0
    found: list[Violation] = []
    for result in _explored(explorer, todo, workers):
        explored += 1
        states += result.states
        transitions += result.transitions
        found += result.violations
        if progress is not None:
            progress(explored, len(todo))
        if found and stop_at_first:
            break
    found.sort(key=lambda violation: len(violation.schedule))
    return Exploration(explorer.judged, explored, states, transitions, tuple(found))


def _explored(explorer: "Explorer", todo: Sequence[Program], workers: int) -> Iterator[Explored]:
    if workers == 1:
        yield from map(explorer.explore, todo)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers, _start_worker, explorer.arguments) as pool:
        yield from pool.imap(_explore_in_worker, todo, chunksize=1 + len(todo) // (64 * workers))


_worker: "Explorer"  # each worker process has its own, and with it its own transition table


def _start_worker(factory: Factory, processes: int, order: Order, fifo: bool, optimal: bool | None) -> None:
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends its workers
    _worker = Explorer(factory, processes, order=order, fifo=fifo, optimal=optimal)


def _explore_in_worker(program: Program) -> Explored:
    return _worker.explore(program)


class Explorer:
    """Explores one program after another; what the machines did is remembered from one to the next."""

    def __init__(
        self, factory: Factory, processes: int, *, order: Order, fifo: bool, optimal: bool | None
    ) -> None:
        self.arguments = (factory, processes, order, fifo, optimal)
        self._automaton = Automaton(factory, processes)
        self._order = order
        self._fifo = fifo
        self._optimal = self._automaton.tells_log if optimal is None else optimal
        unjudged = {
            AGREEMENT: not order.is_total,
            OPTIMALITY: not self._optimal,
        }
        self.judged = tuple(kind for kind in KINDS if not unjudged.get(kind))

    def explore(self, program: Program) -> Explored:
        if len(self._automaton) > TABLE_LIMIT:
            self._automaton.forget()
        return Search(
            self._automaton, program, order=self._order, fifo=self._fifo, optimal=self._optimal
        ).run()
