"""What travels between neighbours for `topological`, and what a witness keeps of it: values."""

from typing import NamedTuple

from .extended_history import HistoryEntry, Timestamped


class RelayedMessage(NamedTuple):
    """An application message."""

    sender: int
    clock: int
    dests: int  # bit set
    payload: bytes


class HopMessage(Timestamped):
    """M(sender, clock) on its way from `relay` to some neighbours; as a hop message it is (relay, hop).

    Its units are about hop messages: the destinations of each are the neighbours its relay addressed.
    """

    relay: int
    hop: int
    next: int  # bit set: the neighbours that take it on
    watching: int  # bit set: the neighbours that take note
    entries: tuple[HistoryEntry, ...]  # about hop messages, sorted
    payload: bytes

    @property
    def via(self) -> int:
        return self.relay

    @property
    def address(self) -> int:
        return self.next | self.watching

    @property
    def carried(self) -> RelayedMessage:
        return RelayedMessage(self.sender, self.clock, self.dests, self.payload)


class Unforwarded(NamedTuple):
    """What a forwarder was seen to receive and not yet to forward."""

    carried: RelayedMessage
    due: bool  # whether the witness itself is to get it through the forwarder
