"""The shape of a delivery-order protocol, as drivers see it.

A machine is a plain object: one method per input, each returning the effects to perform. It has no
clock, socket, dice or log of its own. Input that breaks the rules raises and leaves the state as it
was; duplicates made by the network are normal input and change nothing.

Local events are numbered 1, 2, … in the order a driver records them: one for each `multicast`, one
for each `receive`, one for each `Deliver` it returns, one for each `tick`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ..core.effects import Deliver, Send

Effect = Send[Any] | Deliver
Unit = tuple[int, int, int]
"""(source, clock, destination): message M(source, clock) was sent to this destination."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a user must know before choosing a protocol."""

    order: str  # "causal", "total", "causal-total" or "fifo"
    casts: frozenset[str]  # out of "unicast", "broadcast", "multicast"
    fifo_links: bool  # whether it needs links that keep the order of each sender
    description: str
    paper: str


class Message(Protocol):
    """What one transmission carries. Values: never changed once made.

    An application message is named by its sender and clock, whoever relays it. A control message (an
    acknowledgement, say) is for no application: its `to` is empty, and its sender and clock name the
    application message it speaks of, clock 0 meaning none.
    """

    @property
    def sender(self) -> int: ...
    @property
    def clock(self) -> int: ...
    @property
    def to(self) -> frozenset[int]: ...
    @property
    def payload(self) -> bytes: ...

    def units(self) -> frozenset[Unit]:
        """The explicit units carried about messages other than this one."""

    def size(self) -> tuple[int, int]:
        """How many dependency entries (in the protocol's own grouping) it carries, and how many units."""


class Held(NamedTuple):
    """A message that has arrived and may not be delivered yet, and why."""

    message: Any
    waits_for: tuple[tuple[int, int], ...]  # the (sender, clock) of each undelivered message it needs
    since: int  # the local event at which it arrived


class Machine(Protocol):
    """A machine that may keep a message back at its sender also tells its `clock`, which after a
    `multicast` is that of the new message: no effect need show it yet."""

    @property
    def me(self) -> int: ...
    @property
    def n(self) -> int: ...

    def multicast(self, to: Iterable[int], payload: bytes) -> list[Effect]: ...
    def receive(self, message: Any) -> list[Effect]: ...
    def pending(self) -> list[Held]: ...

    def tick(self) -> int:
        """Advance the clock for an event that is neither a send nor an arrival; returns the new clock."""

    def join(self, process: int) -> None:
        """A process with the next free index exists from now on."""

    def leave(self, process: int) -> None:
        """A process is gone: nothing more may be addressed to it. Its index and its past stay."""

    def snapshot(self) -> bytes:
        """The whole state; equal states give equal bytes."""

    def restore(self, data: bytes) -> None:
        """Replace this machine's state by a snapshot of the same protocol."""


def sent_clock(machine: Machine, effects: Sequence[Effect]) -> int:
    """The clock that names the message just multicast.

    A machine that may keep a message back tells its clock; otherwise the message shows it, or its delivery
    to its own sender, which comes after every older one.
    """
    clock: int | None = getattr(machine, "clock", None)
    if clock is not None:
        return clock
    for effect in effects:
        if isinstance(effect, Send):
            return int(effect.message.clock)
    return max(effect.clock for effect in effects if isinstance(effect, Deliver))
