"""The shape of a delivery-order protocol, as drivers see it.

A machine is a plain object: one method per input, each returning the effects to perform. It has no
clock, socket, dice or log of its own. Input that breaks the rules raises and leaves the state as it
was; duplicates made by the network are normal input and change nothing.

Local events are numbered 1, 2, … in the order a driver records them: one for each `multicast`, one
for each `receive`, one for each `Deliver` it returns, one for each `tick`.

`process.py` has what all machines of this package share, `holding.py` what those share that hold messages
back, and `capabilities.py` what drivers may ask of some machines only.
"""

from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple, Protocol

from ..core.effects import Deliver, Send
from .facts import Facts

Effect = Send[Any] | Deliver
Unit = tuple[int, int, int]
"""(source, clock, destination): message M(source, clock) was sent to this destination."""

MessageKey = tuple[int, int]
"""(sender, clock) of a message."""


def key_of(message: Any) -> MessageKey:
    return message.sender, message.clock


class Held(NamedTuple):
    """A message that has arrived and may not be delivered yet, and why."""

    message: Any
    waits_for: tuple[MessageKey, ...]  # the (sender, clock) of each undelivered message it needs
    since: int  # the local event at which it arrived


class Hop(NamedTuple):
    """A transmission under the name it has on one stretch of its way, where messages are relayed."""

    part: str  # the part of the system whose hops are ordered among each other; empty: all of it
    relay: int
    clock: int  # of the relay, in this part
    to: frozenset[int]  # the processes it is addressed to
    watching: frozenset[int]  # of these, those that only take note
    units: frozenset[Unit]  # about hops of the same part

    @property
    def key(self) -> MessageKey:
        return self.relay, self.clock


class Multicast(NamedTuple):
    """What `multicast` returns: the clock that names the new message, and the effects to perform."""

    clock: int
    effects: list[Effect]


class Machine(Protocol):
    """What every driver needs of every protocol; `capabilities.py` has what only some can do."""

    facts: ClassVar[Facts]

    @property
    def me(self) -> int: ...
    def multicast(self, to: Iterable[int], payload: bytes) -> Multicast: ...
    def receive(self, message: Any) -> list[Effect]: ...
    def tick(self) -> int:
        """Advance the clock for an event that is neither a send nor an arrival; returns the new clock."""

    def pending(self) -> list[Held]:
        """The messages that have arrived and wait, in order of arrival unless the protocol says otherwise."""

    def snapshot(self) -> bytes:
        """The whole state; equal states give equal bytes."""

    def restore(self, data: bytes) -> None:
        """Replace this machine's state by a snapshot of the same protocol."""

    # What bounds need.

    @property
    def pending_count(self) -> int:
        """How many messages `pending` lists, in time linear in that."""

    @property
    def pending_bytes(self) -> int:
        """The bytes of their payloads."""

    @property
    def queued(self) -> int:
        """How many multicasts of ours the protocol keeps back or has not finished; a process leaves when
        there are none."""

    @property
    def kept_bytes(self) -> int:
        """How much it keeps of our multicasts that have gone out until everybody has them, beyond what it
        keeps when nothing is under way: a driver lets the application wait while this is too much."""
