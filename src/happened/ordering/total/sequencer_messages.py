"""What processes and the coordinator of `sequencer` tell one another."""

from typing import NamedTuple

from ..machine import MessageKey
from ..messages import Application, Control

NOBODY: MessageKey = (0, 0)
"""Before the first message; no message has clock 0."""


class _ThroughCoordinator(Application):
    """Whoever is or was the coordinator may put it on a link."""

    __slots__ = ()

    @property
    def via(self) -> None:
        return None

    def size(self) -> tuple[int, int]:
        return 1, 0


class _Request(NamedTuple):
    sender: int
    clock: int
    n: int
    dests: int  # bit set
    previous: int  # the clock of its sender's previous request, 0 if none
    epoch: int  # how many hand-overs whoever sends this has heard of
    payload: bytes


class SequencerRequest(_Request, _ThroughCoordinator):
    """M(sender, clock) on its way to the coordinator."""

    __slots__ = ()

    def model_bytes(self) -> int:
        return 4 + 4


class _Ordered(NamedTuple):
    sender: int
    clock: int
    n: int
    dests: int  # bit set
    after: MessageKey  # what that destination delivers just before it; NOBODY if it is the first
    payload: bytes


class SequencerOrder(_Ordered, _ThroughCoordinator):
    """M(sender, clock) on its way from the coordinator to one destination."""

    __slots__ = ()


class _Handover(NamedTuple):
    sender: int
    epoch: int
    taken: tuple[MessageKey, ...]  # per sender the clock of its last request in order
    tails: tuple[tuple[int, MessageKey], ...]  # per destination the last message ordered to it
    early: tuple[SequencerRequest, ...]  # requests whose predecessors have not come


class SequencerHandover(_Handover, Control):
    """The role, for its receiver: what the coordinator must know to go on."""

    __slots__ = ()

    def size(self) -> tuple[int, int]:
        return len(self.taken) + len(self.tails) + len(self.early), 0

    def model_bytes(self) -> int:
        return 4 + 6 * len(self.taken) + 8 * len(self.tails) + sum(8 + len(m.payload) for m in self.early)


class _Announcement(NamedTuple):
    sender: int
    epoch: int
    coordinator: int


class SequencerAnnouncement(_Announcement, Control):
    """Who has the role from now on."""

    __slots__ = ()

    def model_bytes(self) -> int:
        return 4 + 2
