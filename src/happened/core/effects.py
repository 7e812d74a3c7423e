"""What a machine asks its driver to do. Drivers perform effects in the order they are given."""

from typing import Generic, NamedTuple, TypeVar

M = TypeVar("M")

# Named tuples rather than frozen dataclasses: a multicast builds one per destination, and they cost a third.


class Send(NamedTuple, Generic[M]):
    """Hand `message` to the network for process `to` (which may be the sender itself)."""

    to: int
    message: M


class Deliver(NamedTuple):
    """Hand the payload of message M(sender, clock) to the application."""

    sender: int
    clock: int
    payload: bytes
