"""Acknowledgements that wait while a process holds too much for a total order.

Where a message waits for its place among others, what gives it that place may come behind it on the same
link: the link must be read, however much is held (flow.py). So back-pressure is left to the senders: what is
not acknowledged stays in their outboxes, and once those are full their applications wait; what the protocol
itself has to say still goes. Frames are taken and journaled as ever, and acknowledged once there is room.

Bounds     a process holds what its limits say (`held`, `held_bytes`) and an outbox of each sender beyond; one
           more for each time that a sender calls anew, since it is told then how far it has come. Bytes are
           counted anew when the number of messages has changed by an eighth, and SOME.
"""

from collections.abc import Callable, Mapping

from .engine import Engine
from .limits import Limits

SOME = 16


class Acknowledgements:
    """`tell` acknowledges the frames of a link up to a number; `withholds`: not while too much is held."""

    def __init__(
        self, engine: Engine, limits: Limits, tell: Callable[[int, int], None], *, withholds: bool
    ) -> None:
        self._engine, self._limits, self._tell = engine, limits, tell
        self._withholds = withholds
        self._due: dict[int, int] = {}  # link numbers that are withheld
        self._counted = self._bytes = 0  # messages and bytes when they were last counted

    def durable(self, received: Mapping[int, int]) -> None:
        """A batch is durable, in which frames up to these numbers came on these links."""
        if self._withholds:
            self._due.update(received)
            if self._holds_too_much():
                return
            received, self._due = self._due, {}
        for link, number in received.items():
            self._tell(link, number)

    def _holds_too_much(self) -> bool:
        held, limits = self._engine.machine.pending_count, self._limits
        if held > limits.held:
            return True
        is_much = self._bytes > limits.held_bytes
        if is_much or abs(held - self._counted) > self._counted // 8 + SOME:
            self._counted, self._bytes = held, self._engine.machine.pending_bytes
            is_much = self._bytes > limits.held_bytes
        return is_much
