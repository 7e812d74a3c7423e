"""A process that waits for clocks: a message names, for each sender, the last one to be delivered before it.

Invariant  lane s of `_delivered` is the clock of the last message of s delivered here, and since delivery is
           in causal order, every earlier one to us was too.
"""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, TypeVar

from ...core.effects import Deliver
from ...core.lanes import lanes
from ...core.tuples import new
from ..delay_queue import Want
from ..holding import ListeningProcess
from ..machine import Effect, MessageKey
from ..process import State

M = TypeVar("M", bound=Any)


class LaneProcess(ListeningProcess[M]):
    def __init__(self, me: int, n: int) -> None:
        super().__init__(me, n)
        self._lanes = lanes(n)
        self._delivered = 0  # lanes

    @abstractmethod
    def wanted(self, message: M) -> int:
        """Lanes: per sender the clock of its message that we must deliver first, 0 for none."""

    def receive(self, message: M) -> list[Effect]:
        # What HoldingProcess does, without a call for each step: a fifth less for `ks` (bench/ordering.py).
        # So no protocol on lanes may override `is_duplicate`, `lacks` or `take`: no arrival asks them.
        if self._closing:
            return super().receive(message)
        message = self.checked(message)
        self.events += 1
        sender, clock = message.sender, message.clock
        vector, delivered, held = self._lanes, self._delivered, self._parking.held
        if clock <= delivered >> vector.width * sender & vector.value or (held and (sender, clock) in held):
            return []
        wanted, guards = self.wanted(message), vector.guards
        lacking = guards ^ ((delivered | guards) - wanted & guards)
        if lacking:
            lane = lacking.bit_length() // vector.width - 1
            self.hold(message, (lane, vector.get(wanted, lane)))
            return []
        if held:
            return self._deliver(message)
        self.learn(message)
        self.events += 1
        return [new(Deliver, (sender, clock, message.payload))]

    def told(self, message: M) -> int:
        return self._lanes.get(self.wanted(message), self.me)

    def delivered(self, sender: int) -> int:
        return self._lanes.get(self._delivered, sender)

    def lacks(self, message: M) -> Want | None:
        wanted = self.wanted(message)
        sender = self._lanes.beyond(wanted, self._delivered)
        return None if sender is None else (sender, self._lanes.get(wanted, sender))

    def missing(self, message: M) -> Iterable[MessageKey]:
        return self._lanes.items(self._lanes.newer(self.wanted(message), self._delivered))

    def skip(self, process: int, clock: int) -> Iterable[int]:
        reached = max(clock, self._lanes.get(self._delivered, process))
        self._delivered = self._lanes.put(self._delivered, process, reached)
        return (process,)

    def join(self, process: int) -> list[Effect]:
        if process < self.n:  # forgotten by everybody
            effects = super().join(process)
            self._delivered = self._lanes.put(self._delivered, process, 0)
            return effects
        effects = super().join(process)
        self.grow()
        self._delivered = self._lanes.widened(self._delivered, self.n)
        self._lanes = lanes(self.n)
        self._parking.replace(lambda held: held.known_to(self.n))
        return effects

    def grow(self) -> None:
        """Make room for the process that joins now; `_lanes` are still those of the system without it."""

    def save(self) -> State:
        return {"delivered": self._delivered}

    def load(self, state: State) -> None:
        self._delivered, self._lanes = state["delivered"], lanes(self.n)
