"""No order at all: every message is delivered when it arrives, duplicates included."""

from collections.abc import Iterable

from happened.core.effects import Deliver, Send
from happened.ordering.machine import Effect, Multicast
from oracles.bare import BareMachine, BareMessage


class PlainMessage(BareMessage):
    sender: int
    clock: int
    to: frozenset[int]
    payload: bytes


class Unordered(BareMachine):
    def __init__(self, me: int, n: int) -> None:
        self.me, self.n = me, n
        self._clock = 0

    @property
    def clock(self) -> int:
        return self._clock

    def multicast(self, to: Iterable[int], payload: bytes) -> Multicast:
        self._clock += 1
        message = PlainMessage(self.me, self._clock, frozenset(to), payload)
        return Multicast(self._clock, [Send(d, message) for d in sorted(message.to)])

    def receive(self, message: PlainMessage) -> list[Effect]:
        return [Deliver(message.sender, message.clock, message.payload)]

    def tick(self) -> int:
        self._clock += 1
        return self._clock

    def snapshot(self) -> bytes:
        return f"{self.n} {self._clock}".encode()

    def restore(self, data: bytes) -> None:
        self.n, self._clock = map(int, data.split())
