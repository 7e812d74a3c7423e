"""What processes and the coordinator of `sequencer` tell one another."""

from typing import Any, NamedTuple

from ..machine import MessageKey
from ..messages import Application, Control

NOBODY: MessageKey = (0, 0)
"""Before the first message; no message has clock 0."""

Place = tuple[int, ...]
"""Where a message is in the order of all; see sequencer_office.py. (): before all."""


def _place_text(place: Place) -> str:
    return ".".join(map(str, place)) or "none"


class _ThroughCoordinator(Application):
    """Whoever is or was the coordinator may put it on a link."""

    @property
    def via(self) -> None:
        return None

    def size(self) -> tuple[int, int]:
        return 1, 0


class SequencerRequest(_ThroughCoordinator):
    """M(sender, clock) on its way to the coordinator."""

    previous: int  # the clock of its sender's previous request, 0 if none
    epoch: int  # how many hand-overs whoever sends this has heard of
    payload: bytes
    reached: Place  # of the last message that its sender had delivered

    def model_bytes(self) -> int:
        return 4 + 4


class SequencerOrder(_ThroughCoordinator):
    """M(sender, clock) on its way from the coordinator to one destination."""

    after: MessageKey  # what that destination delivers just before it; NOBODY if it is the first
    payload: bytes
    place: Place
    epoch: int = 0  # that of the coordinator who sends it


class Unsettled(NamedTuple):
    """A message that was ordered, and whose delivery at `missing` the coordinator has not heard of."""

    place: Place
    request: SequencerRequest
    missing: int  # bit set


class SequencerHandover(Control):
    """The role, for its receiver: what the coordinator must know to go on."""

    epoch: int
    taken: tuple[MessageKey, ...]  # per sender the clock of its last request in order
    tails: tuple[tuple[int, MessageKey], ...]  # per destination the last message ordered to it
    early: tuple[SequencerRequest, ...]  # requests whose predecessors have not come
    place: int  # the first number of the last place given
    unsettled: tuple[Unsettled, ...]

    def size(self) -> tuple[int, int]:
        return len(self.taken) + len(self.tails) + len(self.early) + len(self.unsettled), 0

    def model_bytes(self) -> int:
        told = 8 + 6 * len(self.taken) + 8 * len(self.tails) + 12 * len(self.unsettled)
        told += sum(len(each.request.payload) for each in self.unsettled)
        return told + sum(8 + len(m.payload) for m in self.early)

    def carries(self) -> tuple[Any, ...]:
        return (*self.early, *(each.request for each in self.unsettled))


class SequencerAnnouncement(Control):
    """Who has the role from now on."""

    epoch: int
    coordinator: int
    place: Place = ()  # after a round, of the last message that it has put in order anew

    def model_bytes(self) -> int:
        return 4 + 2


class SequencerSeen(Control):
    """Process `sender` has delivered what was ordered to it up to this place."""

    place: Place
    epoch: int

    def __str__(self) -> str:
        return f"word of {self.sender} that it has delivered up to place {_place_text(self.place)}"

    @property
    def via(self) -> None:
        return None  # whoever was the coordinator passes it on

    def model_bytes(self) -> int:
        return 4 + 2


class SequencerSettled(Control):
    """Everybody has delivered what was ordered up to this place, and with it the receiver's own requests up
    to the clock `requested`."""

    place: Place
    requested: int

    def __str__(self) -> str:
        return f"word of {self.sender} that everybody has delivered up to place {_place_text(self.place)}"

    def model_bytes(self) -> int:
        return 4 + 4


class SequencerReport(Control):
    """What a process knows of the order, for the one that goes on with it when another has ended."""

    ended: int  # bit set: whose end this is about
    requested: int  # the clock of its last request
    last: MessageKey  # the message it delivered last
    place: Place  # of that message
    delivered: tuple[MessageKey, ...]  # per sender the clock of its last message delivered there
    recent: tuple[tuple[Place, int, int], ...]  # (place, sender, clock) of what not everybody may have
    held: tuple[SequencerOrder, ...]
    requests: tuple[SequencerRequest, ...]  # its own that not everybody may have

    def size(self) -> tuple[int, int]:
        return len(self.delivered) + len(self.recent) + len(self.held) + len(self.requests), 0

    def model_bytes(self) -> int:
        known = 16 + 6 * len(self.delivered) + 10 * len(self.recent)
        orders = sum(8 + len(order.payload) for order in self.held)
        return known + orders + sum(8 + len(request.payload) for request in self.requests)

    def carries(self) -> tuple[Any, ...]:
        return (*self.held, *self.requests)


class SequencerTestament(Control):
    """What a process that leaves would report: others do so instead."""

    recent: tuple[tuple[Place, int, int], ...]  # as in a report
    requests: tuple[SequencerRequest, ...]

    def size(self) -> tuple[int, int]:
        return len(self.recent) + len(self.requests), 0

    def model_bytes(self) -> int:
        return 10 * len(self.recent) + sum(8 + len(request.payload) for request in self.requests)

    def carries(self) -> tuple[Any, ...]:
        return self.requests
