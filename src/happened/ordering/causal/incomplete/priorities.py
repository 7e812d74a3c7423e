"""Priorities: urgent messages do not wait for others (Rodrigues & Veríssimo, chapter 6).

Assumes    what `managed` does.
Promises   a message is delivered to d after every causally earlier message to d of the same or a higher
           priority, whatever messages the chain between them is made of; and waits for no other. The
           report asks for order within a priority and that no high one waits for a low one; that a low one
           waits for high ones costs nothing more.
Leaves out urgency in the network: which packet travels first is the driver's to say.

An application of `managed`: one history that everything sent or delivered here is merged into. With a
single priority this is complete causal order.
"""

from collections.abc import Iterable

from ....core.effects import Deliver
from ...machine import Effect, Held
from ...snapshots import opened, seal
from .managed import NOTHING, CausalHistory, Cause, ManagedHistories, ManagedMessage


class Priorities:
    """One process; priorities are whole numbers, the larger the more urgent."""

    def __init__(self, me: int, n: int) -> None:
        self._histories = ManagedHistories(me, n)
        self._past = NOTHING

    @property
    def me(self) -> int:
        return self._histories.me

    @property
    def n(self) -> int:
        return self._histories.n

    @property
    def clock(self) -> int:
        return self._histories.clock

    def multicast(self, to: Iterable[int], payload: bytes, *, priority: int = 0) -> list[Effect]:
        sends, self._past = self._histories.send(to, payload, self._past, priority=priority)
        return [*sends]

    def receive(self, message: ManagedMessage) -> list[Effect]:
        effects: list[Effect] = []
        for sender, clock, payload, history in self._histories.receive(message):
            self._past = self._past.merge(history)
            effects.append(Deliver(sender, clock, payload))
        return effects

    def pending(self) -> list[Held]:
        return self._histories.pending()

    def history(self) -> CausalHistory:
        return self._past

    def tick(self) -> int:
        return self._histories.tick()

    def join(self, process: int) -> None:
        self._histories.join(process)

    def leave(self, process: int) -> None:
        self._histories.leave(process)

    def snapshot(self) -> bytes:
        return seal("priorities", past=tuple(map(tuple, self._past)), **self._histories.state())

    def restore(self, data: bytes) -> None:
        with opened("priorities", data) as state:
            past = CausalHistory(Cause(*cause) for cause in state["past"])
            self._histories.refill(state)
        self._past = past
