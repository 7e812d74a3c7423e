"""Messages without any order, delivered when they arrive: what a tracker rides on alone.

Assumes    nothing.
Promises   that a message is delivered once, at each of its destinations.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ..core.effects import Deliver, Send
from ..core.errors import LocalProtocolError
from ..ordering import Effect, Held, Unit


class PlainMessage(NamedTuple):
    sender: int
    clock: int
    to: frozenset[int]
    payload: bytes

    def units(self) -> frozenset[Unit]:
        return frozenset()

    def size(self) -> tuple[int, int]:
        return 0, 0


def control_sizes(messages: Sequence[PlainMessage]) -> Sequence[int]:
    return [0] * len(messages)


class Plain:
    def __init__(self, me: int, n: int) -> None:
        self.me = me
        self.n = n
        self._clock = 0
        self._delivered: set[tuple[int, int]] = set()

    def multicast(self, to: Iterable[int], payload: bytes) -> list[Effect]:
        message = PlainMessage(self.me, self.tick(), frozenset(to), payload)
        return [Send(d, message) for d in sorted(message.to)]

    def receive(self, message: PlainMessage) -> list[Effect]:
        name = message.sender, message.clock
        if name in self._delivered:
            return []
        self._delivered.add(name)
        return [Deliver(*name, message.payload)]

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
        return json.dumps([self.n, self._clock, sorted(self._delivered)]).encode()

    def restore(self, data: bytes) -> None:
        try:
            n, clock, delivered = json.loads(data)
            names: Any = {(int(sender), int(sent)) for sender, sent in delivered}
        except (ValueError, TypeError) as error:
            raise LocalProtocolError(f"not a snapshot of a plain machine: {error}") from error
        self.n, self._clock, self._delivered = n, clock, names
