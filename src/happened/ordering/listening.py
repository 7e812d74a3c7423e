"""The receiving side of a protocol, for a driver that keeps delivered messages in a store of its own.

A stream processor wants its state in small records and not as one machine. For a protocol with the capability
`Listens`, a vector of one clock per sender decides what is deliverable at a process: a message waits for
certain (sender, clock) pairs, and its delivery raises certain clocks. `ReplicaListener` tells both.

Assumes    that the process sends nothing in this protocol, or only after what its driver has delivered:
           optimal protocols leave out what a sender knows to be delivered, perhaps from this process.
Leaves out sending. What other processes say of this process's messages is not checked, and in broadcast
           protocols the process is not made to wait for its own broadcasts.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from ..core.errors import LocalProtocolError
from .capabilities import Listens, having
from .holding import Want
from .machine import MessageKey
from .registry import able, create


class Heard(NamedTuple):
    """A message as one destination hears it."""

    key: MessageKey
    wants: tuple[Want, ...]  # a want is met once the clock of its sender is as high
    moves: tuple[Want, ...]  # the sender clocks that the delivery of this message reaches


class ReplicaListener:
    def __init__(self, protocol: str, me: int, n: int, **options: Any) -> None:
        machine = having(create(protocol, me, n, **options), Listens)
        if machine is None:
            known = ", ".join(able(Listens))
            raise LocalProtocolError(
                f"{protocol} needs more than the messages that arrive to put them in order; these do: {known}"
            )
        machine.listen()
        self._machine = machine

    def hear(self, message: Any) -> Heard:
        """What this message wants and moves here; RemoteProtocolError if no correct peer can have sent it."""
        machine = self._machine
        message = machine.checked(message)
        wants: Iterable[Want] = machine.missing(message)  # all: it has delivered nothing
        return Heard((message.sender, message.clock), tuple(wants), tuple(machine.moves(message)))
