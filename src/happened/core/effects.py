"""The effects that a machine returns for its driver to perform, in the order in which they are listed."""

from typing import Generic, NamedTuple, TypeVar

M = TypeVar("M")

# Named tuples, since a multicast builds one per destination and they cost a third of a frozen dataclass.


class Send(NamedTuple, Generic[M]):
    """Hand `message` to the network for process `to` (which may be the sender itself)."""

    to: int
    message: M


class Deliver(NamedTuple):
    """Hand the payload of message M(sender, clock) to the application."""

    sender: int
    clock: int
    payload: bytes
