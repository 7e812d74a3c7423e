"""The delivery side of a protocol, for a driver that keeps what was delivered in a store of its own.

A stream processor wants its state in small records and not as one machine. For a protocol that `Listens`,
what is deliverable at a process depends on nothing but a clock for each sender: a message waits for some
(sender, clock), and its delivery brings some senders' clocks forward. `ReplicaListener` tells both.

Assumes    that the process sends nothing in this protocol, or only on what its driver has delivered: optimal
           protocols leave out what a sender knows to be delivered, and the process itself may have told it.
Leaves out sending. What a process says of its own messages is not checked, and in protocols for broadcasts
           it is not made to wait for its own.
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
    wants: tuple[Want, ...]  # each met once that sender's clock is as high
    moves: tuple[Want, ...]  # the clocks that its delivery reaches


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
        """RemoteProtocolError if no correct peer can have sent it here."""
        machine = self._machine
        message = machine.checked(message)
        wants: Iterable[Want] = machine.missing(message)  # of a machine that has delivered nothing: all
        return Heard((message.sender, message.clock), tuple(wants), tuple(machine.moves(message)))
