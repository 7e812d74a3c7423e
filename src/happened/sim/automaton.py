"""A protocol as a transition table, and the search over its states.

A transition is computed when it is first needed.

Machines are pure: what a machine does depends only on its state and its input. States and messages are
interned as small integers, and each (state, input) pair is tried on a real machine once, through `snapshot`
and `restore`; every later visit, in any interleaving or program, is a dictionary look-up.

Assumes    a factory that always makes the same machine for the same (me, n).
Bound      `forget` empties the table: numbers from before that call are meaningless afterwards.
"""

import pickle
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from ..core.destinations import unpack
from ..core.effects import Deliver, Send
from ..ordering import Machine, Multicast, Unit, having
from ..ordering.capabilities import TellsUnits

S = TypeVar("S")
A = TypeVar("A")
Factory = Callable[[int, int], Machine]


class Table:
    """Gives values small integers as numbers."""

    def __init__(self, *values: Any) -> None:
        self._values = list(values)
        self._numbers = {value: number for number, value in enumerate(values)}

    def number(self, value: Any, key: Any = None) -> int:
        """The number of this value; `key`, if given, identifies the value instead of the value itself."""
        number = self._numbers.setdefault(value if key is None else key, len(self._values))
        if number == len(self._values):
            self._values.append(value)
        return number

    def __getitem__(self, number: int) -> Any:
        return self._values[number]


class Transition(NamedTuple):
    """What a machine did with one input."""

    after: int
    clock: int  # the clock of the multicast; 0: the input was no multicast
    packets: tuple[int, ...]  # the packets sent, as `Automaton._packet` numbers them
    delivered: tuple[tuple[int, int], ...]  # (sender, clock), in order
    error: str  # the error that the machine raised; empty: none


class Automaton:
    def __init__(self, factory: Factory, processes: int) -> None:
        self._n = processes
        self._machines = [factory(me, processes) for me in range(processes)]
        self._initial = [machine.snapshot() for machine in self._machines]
        told = [having(machine, TellsUnits) for machine in self._machines]
        self._told = [machine for machine in told if machine is not None]
        self.tells_log = len(self._told) == processes
        self.forget()

    def forget(self) -> None:
        self._states = Table()  # (process, snapshot)
        self._messages = Table()
        self._logs: dict[int, frozenset[Unit]] = {}
        self._units: dict[int, frozenset[Unit]] = {}
        self._multicasts: dict[tuple[int, int], Transition] = {}
        self._receives: dict[tuple[int, int], Transition] = {}
        self.initial = tuple(map(self._states.number, enumerate(self._initial)))

    def __len__(self) -> int:
        return len(self._multicasts) + len(self._receives)

    def multicast(self, state: int, to: int) -> Transition:
        step = self._multicasts.get((state, to))
        if step is None:
            step = self._try(state, lambda machine: machine.multicast(tuple(unpack(to)), b""))
            self._multicasts[state, to] = step
        return step

    def receive(self, state: int, packet: int) -> Transition:
        step = self._receives.get((state, packet))
        if step is None:
            step = self._try(state, lambda machine: Multicast(0, machine.receive(self.message(packet))))
            self._receives[state, packet] = step
        return step

    def message(self, packet: int) -> Any:
        return self._messages[packet // self._n**2]

    def units(self, packet: int) -> frozenset[Unit]:
        """The units that this packet's message carries about other messages."""
        number = packet // self._n**2
        units = self._units.get(number)
        if units is None:
            units = self._units[number] = self._messages[number].units()
        return units

    def log(self, state: int) -> frozenset[Unit]:
        """The units in the log of a machine in this state."""
        units = self._logs.get(state)
        if units is None:
            assert self.tells_log, "asked only of machines that tell their log"
            self._restore(state)
            units = self._logs[state] = self._told[self._states[state][0]].log_units()
        return units

    def held(self, state: int) -> list[tuple[tuple[int, int], tuple[tuple[int, int], ...]]]:
        """The messages held in this state, by name, each with the messages that it waits for."""
        pending = self._restore(state).pending()
        return [((held.message.sender, held.message.clock), held.waits_for) for held in pending]

    def _try(self, state: int, act: Callable[[Machine], Multicast]) -> Transition:
        me, _ = self._states[state]
        machine = self._restore(state)
        try:
            clock, effects = act(machine)
        except Exception as error:  # any exception is a verdict on the protocol under test
            return Transition(state, 0, (), (), f"{type(error).__name__}: {error}")
        packets = tuple(self._packet(me, effect) for effect in effects if isinstance(effect, Send))
        delivered = tuple((effect.sender, effect.clock) for effect in effects if isinstance(effect, Deliver))
        return Transition(self._states.number((me, machine.snapshot())), clock, packets, delivered, "")

    def _restore(self, state: int) -> Machine:
        me, data = self._states[state]
        machine: Machine = self._machines[me]
        machine.restore(data)
        return machine

    def _packet(self, source: int, send: Send[Any]) -> int:
        """The number of a message on a link; modulo n² it is the channel, source · n + destination."""
        # Equal messages with different pickles get two numbers: then fewer states merge, never wrong ones.
        number = self._messages.number(send.message, pickle.dumps(send.message))
        return (number * self._n + source) * self._n + send.to


def breadth_first(
    reached: dict[S, tuple[S, A] | None],
    enabled: Callable[[S], Iterable[A]],
    perform: Callable[[S, A], S | None],
    is_over: Callable[[], bool] = lambda: False,
) -> int:
    """Visit once every state reachable from the one in `reached`; returns how many actions were performed.

    `reached` maps each state to the state and the action by which it was first reached.
    """
    transitions, frontier = 0, list(reached)
    while frontier and not is_over():
        following = []
        for state in frontier:
            for action in enabled(state):
                transitions += 1
                after = perform(state, action)
                if after is not None and after not in reached:
                    reached[after] = state, action
                    following.append(after)
        frontier = following
    return transitions


def way_to(state: S, reached: dict[S, tuple[S, A] | None]) -> list[tuple[S, A]]:
    """The first path found to a state: each step with the state before it."""
    steps = []
    while (previous := reached[state]) is not None:
        steps.append(previous)
        state = previous[0]
    return steps[::-1]
