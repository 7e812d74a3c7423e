"""The interface of a delivery-order protocol, as drivers see it.

A machine is a plain object with one method per input, each of which returns the effects to perform. It has no
clock, socket, random generator or log of its own. Input that breaks the rules raises an error and leaves the
state unchanged; duplicates made by the network are normal input and change nothing.

Local events are numbered 1, 2, … in the order in which a driver records them: one for each `multicast`, each
`receive`, each `Deliver` that it returns, and each `tick`.

`process.py` has what all machines of this package share, `holding.py` what machines share that hold messages
back, and `capabilities.py` what drivers can ask of only some machines.
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
    """A message that has arrived but cannot be delivered yet, with the messages that it waits for."""

    message: Any
    waits_for: tuple[MessageKey, ...]  # the (sender, clock) of each undelivered message that it waits for
    since: int  # the local event at which it arrived


class Hop(NamedTuple):
    """A transmission over one stretch of a relayed message's route, under its name on that stretch."""

    part: str  # the part of the system whose hops are ordered among each other; empty: the whole system
    relay: int
    clock: int  # the relay's clock in this part
    to: frozenset[int]  # the processes to which this hop is addressed
    watching: frozenset[int]  # the members of `to` that only take note of the hop
    units: frozenset[Unit]  # units about hops of the same part

    @property
    def key(self) -> MessageKey:
        return self.relay, self.clock


class Multicast(NamedTuple):
    """What `multicast` returns: the clock that names the new message, and the effects to perform."""

    clock: int
    effects: list[Effect]


class Machine(Protocol):
    """What every driver needs of every protocol; `capabilities.py` lists what only some machines can do."""

    facts: ClassVar[Facts]

    @property
    def me(self) -> int: ...
    def multicast(self, to: Iterable[int], payload: bytes) -> Multicast: ...
    def receive(self, message: Any) -> list[Effect]: ...
    def tick(self) -> int:
        """Advance the clock for an event that is neither a send nor an arrival; returns the new clock."""

    def pending(self) -> list[Held]:
        """The messages held here, in order of arrival unless the protocol says otherwise."""

    def snapshot(self) -> bytes:
        """The whole state as bytes; equal states give equal bytes."""

    def restore(self, data: bytes) -> None:
        """Replace this machine's state by a snapshot of the same protocol."""

    # Sizes that drivers compare with their limits.

    @property
    def pending_count(self) -> int:
        """How many messages `pending` lists; takes time linear in that number."""

    @property
    def pending_bytes(self) -> int:
        """The total size of the payloads of all messages that `pending` lists."""

    @property
    def queued(self) -> int:
        """How many of our multicasts the protocol keeps back or has not finished. A process may leave when
        this is zero."""

    @property
    def kept_bytes(self) -> int:
        """The bytes kept of our sent multicasts until every destination has them, beyond what is kept when
        nothing is under way. A driver makes the application wait while this number is too large."""
