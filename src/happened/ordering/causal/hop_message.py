"""What travels between neighbours for `topological`, and what a witness keeps of it: values."""

from typing import NamedTuple

from ...core.destinations import unpack
from ..machine import Unit
from .history import Entry, model_bytes_of, size_of, units_of


class Carried(NamedTuple):
    """An application message."""

    sender: int
    clock: int
    dests: int  # bit set
    payload: bytes


class HopMessage(NamedTuple):
    """M(sender, clock) on its way from `relay` to some neighbours; as a hop message it is (relay, hop)."""

    sender: int
    clock: int
    n: int
    dests: int  # bit set: those the application message is for
    relay: int
    hop: int
    next: int  # bit set: the neighbours that take it on
    watching: int  # bit set: the neighbours that take note
    entries: tuple[Entry, ...]  # about hop messages, sorted
    payload: bytes

    @property
    def to(self) -> frozenset[int]:
        return frozenset(unpack(self.dests))

    @property
    def address(self) -> int:
        return self.next | self.watching

    @property
    def carried(self) -> Carried:
        return Carried(self.sender, self.clock, self.dests, self.payload)

    def units(self) -> frozenset[Unit]:
        """About hop messages: the destinations of each are the neighbours its relay addressed."""
        return units_of(self.entries)

    def size(self) -> tuple[int, int]:
        return size_of(self.entries)

    def model_bytes(self) -> int:
        return model_bytes_of(self.entries)


class Unforwarded(NamedTuple):
    """What a forwarder was seen to receive and not yet to forward."""

    carried: Carried
    due: bool  # whether the witness itself is to get it through the forwarder
