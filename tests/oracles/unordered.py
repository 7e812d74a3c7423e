"""No order at all: every message is delivered when it arrives, duplicates included."""

from collections.abc import Iterable
from typing import NamedTuple

from happened.core.effects import Deliver, Send
from happened.ordering import Effect, Held, Unit


class PlainMessage(NamedTuple):
    sender: int
    clock: int
    to: frozenset[int]
    payload: bytes

    def units(self) -> frozenset[Unit]:
        return frozenset()

    def size(self) -> tuple[int, int]:
        return 0, 0


class Unordered:
    def __init__(self, me: int, n: int) -> None:
        self.me, self.n = me, n
        self._clock = 0

    def multicast(self, to: Iterable[int], payload: bytes) -> list[Effect]:
        self._clock += 1
        message = PlainMessage(self.me, self._clock, frozenset(to), payload)
        return [Send(d, message) for d in sorted(message.to)]

    def receive(self, message: PlainMessage) -> list[Effect]:
        return [Deliver(message.sender, message.clock, message.payload)]

    def pending(self) -> list[Held]:
        return []

    def tick(self) -> int:
        self._clock += 1
        return self._clock

    def join(self, process: int) -> None:
        self.n = process + 1

    def leave(self, process: int) -> None:
        pass

    def snapshot(self) -> bytes:
        return f"{self.n} {self._clock}".encode()

    def restore(self, data: bytes) -> None:
        self.n, self._clock = map(int, data.split())
