"""A protocol as a transition table, filled in as it is asked.

Machines are pure, so what one does depends on nothing but its state and its input. States, messages
and multicasts are interned as small integers, and each (state, input) pair is tried on a real machine
once, through `snapshot` and `restore`; every later visit, in whatever interleaving or program, is a
dictionary look-up.

Assumes    a factory that treats (me, n) alike each time; only `multicast` makes a machine send.
Bound      `forget` empties the table: numbers given out before it mean nothing afterwards.
"""

import pickle
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..core.destinations import unpack
from ..core.effects import Deliver, Send
from ..core.errors import LocalProtocolError
from ..ordering import Effect, Machine, Unit

Factory = Callable[[int, int], Machine]


class Cast(NamedTuple):
    """One multicast as it went out."""

    clock: int
    packets: dict[int, int]  # destination -> number of the message on that edge
    units: dict[int, frozenset[Unit]]  # destination -> what that message carries about others


class Step(NamedTuple):
    """What a machine did with one input."""

    after: int
    cast: int  # number of the multicast that went out; 0: none did
    delivered: tuple[tuple[int, int], ...]  # (sender, clock), in order
    error: str  # what the machine raised; empty: nothing


class Automaton:
    def __init__(self, factory: Factory, processes: int) -> None:
        self._machines = [factory(me, processes) for me in range(processes)]
        self._initial = [machine.snapshot() for machine in self._machines]
        self.tells_log = all(hasattr(machine, "log_units") for machine in self._machines)
        self.forget()

    def forget(self) -> None:
        self._states: list[tuple[int, bytes]] = []
        self._state_number: dict[tuple[int, bytes], int] = {}
        self._logs: list[frozenset[Unit] | None] = []
        self._messages: list[Any] = []
        self._message_number: dict[bytes, int] = {}
        self.casts: list[Cast] = [Cast(0, {}, {})]  # number 0 stands for "not sent yet"
        self._cast_number: dict[tuple[int, ...], int] = {}
        self._multicasts: dict[tuple[int, int], Step] = {}
        self._receives: dict[tuple[int, int], Step] = {}
        self.initial = tuple(self._number_state(me, data) for me, data in enumerate(self._initial))

    def __len__(self) -> int:
        return len(self._multicasts) + len(self._receives)

    def multicast(self, state: int, to: int) -> Step:
        step = self._multicasts.get((state, to))
        if step is None:
            step = self._try(state, lambda machine: machine.multicast(tuple(unpack(to)), b""), casts=True)
            self._multicasts[state, to] = step
        return step

    def receive(self, state: int, message: int) -> Step:
        step = self._receives.get((state, message))
        if step is None:
            step = self._try(state, lambda machine: machine.receive(self._messages[message]), casts=False)
            self._receives[state, message] = step
        return step

    def log(self, state: int) -> frozenset[Unit]:
        """The units in the log of a machine in this state."""
        units = self._logs[state]
        if units is None:
            units = self._logs[state] = self._restore(state).log_units()  # type: ignore[attr-defined]
        return units

    def held(self, state: int) -> list[tuple[tuple[int, int], tuple[tuple[int, int], ...]]]:
        """The messages held in this state, by name, each with those it waits for."""
        pending = self._restore(state).pending()
        return [((held.message.sender, held.message.clock), held.waits_for) for held in pending]

    def _try(self, state: int, act: Callable[[Machine], list[Effect]], *, casts: bool) -> Step:
        me, _ = self._states[state]
        machine = self._restore(state)
        try:
            effects = act(machine)
        except Exception as error:  # any exception at all is the verdict on the protocol under test
            return Step(state, 0, (), f"{type(error).__name__}: {error}")
        sends = [effect for effect in effects if isinstance(effect, Send)]
        delivered = tuple((effect.sender, effect.clock) for effect in effects if isinstance(effect, Deliver))
        if sends and not casts:
            raise LocalProtocolError("this protocol sends when it receives; only multicasts can be explored")
        cast = self._number_cast(me, sends, delivered) if casts else 0
        return Step(self._number_state(me, machine.snapshot()), cast, delivered, "")

    def _restore(self, state: int) -> Machine:
        me, data = self._states[state]
        machine = self._machines[me]
        machine.restore(data)
        return machine

    def _number_state(self, me: int, data: bytes) -> int:
        number = self._state_number.setdefault((me, data), len(self._states))
        if number == len(self._states):
            self._states.append((me, data))
            self._logs.append(None)
        return number

    def _number_cast(self, me: int, sends: list[Send[Any]], delivered: Sequence[tuple[int, int]]) -> int:
        packets = {send.to: self._number_message(send.message) for send in sends}
        own_delivery = max((clock for sender, clock in delivered if sender == me), default=0)
        clock = sends[0].message.clock if sends else own_delivery
        key = (me, clock, *packets.keys(), *packets.values())
        number = self._cast_number.setdefault(key, len(self.casts))
        if number == len(self.casts):
            self.casts.append(Cast(clock, packets, {send.to: send.message.units() for send in sends}))
        return number

    def _number_message(self, message: Any) -> int:
        # Equal messages whose pickles differ get two numbers: states are then merged less, never wrongly.
        number = self._message_number.setdefault(pickle.dumps(message), len(self._messages))
        if number == len(self._messages):
            self._messages.append(message)
        return number
