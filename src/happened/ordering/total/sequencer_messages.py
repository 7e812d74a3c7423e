"""What processes and the coordinator of `sequencer` tell one another."""

from typing import NamedTuple

from ...core.destinations import unpack
from ..machine import Unit

MessageKey = tuple[int, int]
NOBODY: MessageKey = (0, 0)
"""Before the first message; no message has clock 0."""


class SequencerRequest(NamedTuple):
    """M(sender, clock) on its way to the coordinator."""

    sender: int
    clock: int
    n: int
    dests: int  # bit set
    previous: int  # the clock of its sender's previous request, 0 if none
    epoch: int  # how many hand-overs whoever sends this has heard of
    payload: bytes

    @property
    def to(self) -> frozenset[int]:
        return frozenset(unpack(self.dests))

    def units(self) -> frozenset[Unit]:
        return frozenset()

    def size(self) -> tuple[int, int]:
        return 1, 0

    def model_bytes(self) -> int:
        return 4 + 4


class SequencerOrder(NamedTuple):
    """M(sender, clock) on its way from the coordinator to one destination."""

    sender: int
    clock: int
    n: int
    dests: int  # bit set
    after: MessageKey  # what that destination delivers just before it; NOBODY if it is the first
    payload: bytes

    @property
    def to(self) -> frozenset[int]:
        return frozenset(unpack(self.dests))

    def units(self) -> frozenset[Unit]:
        return frozenset()

    def size(self) -> tuple[int, int]:
        return 1, 0

    def model_bytes(self) -> int:
        return 6


class SequencerHandover(NamedTuple):
    """The role, for its receiver: what the coordinator must know to go on."""

    sender: int
    epoch: int
    taken: tuple[tuple[int, int], ...]  # per sender the clock of its last request in order
    tails: tuple[tuple[int, MessageKey], ...]  # per destination the last message ordered to it
    early: tuple[SequencerRequest, ...]  # requests whose predecessors have not come

    @property
    def clock(self) -> int:
        return 0

    @property
    def to(self) -> frozenset[int]:
        return frozenset()

    @property
    def payload(self) -> bytes:
        return b""

    def units(self) -> frozenset[Unit]:
        return frozenset()

    def size(self) -> tuple[int, int]:
        return len(self.taken) + len(self.tails) + len(self.early), 0

    def model_bytes(self) -> int:
        return 4 + 6 * len(self.taken) + 8 * len(self.tails) + sum(8 + len(m.payload) for m in self.early)


class SequencerAnnouncement(NamedTuple):
    """Who has the role from now on."""

    sender: int
    epoch: int
    coordinator: int

    @property
    def clock(self) -> int:
        return 0

    @property
    def to(self) -> frozenset[int]:
        return frozenset()

    @property
    def payload(self) -> bytes:
        return b""

    def units(self) -> frozenset[Unit]:
        return frozenset()

    def size(self) -> tuple[int, int]:
        return 1, 0

    def model_bytes(self) -> int:
        return 4 + 2
