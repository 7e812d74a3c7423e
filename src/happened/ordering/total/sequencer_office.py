"""What processes and the coordinator of `sequencer` tell one another, what the coordinator keeps, and how a
successor makes that from what everybody reports.

Places. A coordinator gives every message a *place* in the order of all: a tuple of numbers, compared from
the left, (1,), (2,), … What a message's sender had delivered, and what was delivered at any of its
destinations, has a smaller place; so has what the sender sent before.

Succession. When a coordinator is gone without a word, survivors know the places of what they have delivered
or hold, and those stay. Of other messages nobody knows the place. Each of them gets one just after its lower
bound: the largest of the place that its sender had reached when it sent it (`SequencerRequest.reached`), the
places that those of its destinations have reached which lack it, and the place of its sender's previous
message. The lost place was larger than that bound, hence the new one is smaller than those of all messages
that follow causally, and it is larger than those of all that precede: for a message u that precedes v the
bound of v is at least the lost place of u, unless both have the same sender.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ...core.destinations import pack, unpack
from ...core.lanes import CLOCK_LIMIT
from ..machine import MessageKey
from ..messages import Application, Control
from ..snapshots import TABLE, Part, kept, records, table, valued

NOBODY: MessageKey = (0, 0)
"""Before the first message; no message has clock 0."""

Place = tuple[int, ...]
"""Where a message is in the order of all. (): before all."""

EVERYWHERE: Place = (CLOCK_LIMIT,)
"""Behind every place."""

SEEN_EVERY = 32
"""After deliveries of so much weight a process says how far it is."""

LONG = 2048
"""Bytes of a payload that weigh as much as a message."""

FIRST: Place = (0,)
"""Before every place."""

ROUNDS = 1 << 20
"""More than there are rounds. Of two that insert after the same place, the later one does so before what the
earlier one inserted: nobody knows more than that this is behind the bound."""


def _place_text(place: Place) -> str:
    return ".".join(map(str, place)) or "none"


class _ThroughCoordinator(Application):
    """Whoever is or was the coordinator may put it on a link."""

    via = None

    def size(self) -> tuple[int, int]:
        return 1, 0


class SequencerRequest(_ThroughCoordinator):
    """M(sender, clock) on its way to the coordinator."""

    previous: int  # the clock of its sender's previous request, 0 if none
    epoch: int  # how many hand-overs whoever sends this has heard of
    payload: bytes
    reached: Place  # of the last message that its sender had delivered
    costs = 4 + 4


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

    counts = "taken tails early unsettled"
    epoch: int
    taken: tuple[MessageKey, ...]  # per sender the clock of its last request in order
    tails: tuple[tuple[int, MessageKey], ...]  # per destination the last message ordered to it
    early: tuple[SequencerRequest, ...]  # requests whose predecessors have not come
    place: int  # the first number of the last place given
    unsettled: tuple[Unsettled, ...]

    def model_bytes(self) -> int:
        told = 8 + 6 * len(self.taken) + 8 * len(self.tails) + 12 * len(self.unsettled)
        told += sum(len(each.request.payload) for each in self.unsettled)
        return told + _bytes_of(self.early)

    def carries(self) -> tuple[Any, ...]:
        return (*self.early, *(each.request for each in self.unsettled))


class SequencerAnnouncement(Control):
    """Who has the role from now on."""

    epoch: int
    coordinator: int
    place: Place = ()  # after a round, of the last message that it has put in order anew
    costs = 4 + 2


class SequencerSeen(Control):
    """Process `sender` has delivered what was ordered to it up to this place."""

    place: Place
    epoch: int
    costs = 4 + 2

    def __str__(self) -> str:
        return f"word of {self.sender} that it has delivered up to place {_place_text(self.place)}"


class SequencerSettled(Control):
    """Everybody has delivered what was ordered up to this place, and with it the receiver's own requests up
    to the clock `requested`."""

    place: Place
    requested: int
    costs = 4 + 4

    def __str__(self) -> str:
        return f"word of {self.sender} that everybody has delivered up to place {_place_text(self.place)}"


class SequencerReport(Control):
    """What a process knows of the order, for the one that goes on with it when another has ended."""

    counts = "delivered recent held requests"
    ended: int  # bit set: whose end this is about
    requested: int  # the clock of its last request
    last: MessageKey  # the message it delivered last
    place: Place  # of that message
    delivered: tuple[MessageKey, ...]  # per sender the clock of its last message delivered there
    recent: tuple[tuple[Place, int, int], ...]  # (place, sender, clock) of what not everybody may have
    held: tuple[SequencerOrder, ...]
    requests: tuple[SequencerRequest, ...]  # its own that not everybody may have

    def model_bytes(self) -> int:
        known = 16 + 6 * len(self.delivered) + 10 * len(self.recent)
        return known + _bytes_of(self.carries())

    def carries(self) -> tuple[Any, ...]:
        return (*self.held, *self.requests)


class SequencerTestament(Control):
    """What a process that leaves would report: others do so instead."""

    counts = "recent requests"
    recent: tuple[tuple[Place, int, int], ...]  # as in a report
    requests: tuple[SequencerRequest, ...]

    def model_bytes(self) -> int:
        return 10 * len(self.recent) + _bytes_of(self.requests)

    def carries(self) -> tuple[Any, ...]:
        return self.requests


def _bytes_of(messages: Iterable[SequencerRequest | SequencerOrder]) -> int:
    return sum(8 + len(message.payload) for message in messages)


def weight(message: SequencerRequest | SequencerOrder) -> int:
    return 1 + len(message.payload) // LONG


EARLY = table(
    lambda early: list(early.values()),
    lambda early: {
        (request.sender, request.previous): (request, since)
        for request, since in ((SequencerRequest(*fields), since) for fields, since in early)
    },
)


class Office(Part):
    """What only the coordinator keeps, and hands over."""

    taken: dict[int, int] = kept(TABLE)  # per sender the clock of its last request in order
    tails: dict[int, MessageKey] = kept(TABLE)  # per destination the last message ordered to it
    early: dict[MessageKey, tuple[SequencerRequest, int]] = kept(EARLY)  # by (sender, previous clock)
    place: int = kept()  # the first number of the last place given
    unsettled: list[Unsettled] = kept(records(Unsettled))  # in order
    settled: tuple[Place, Place] = kept(valued(((), ())))
    """How far everybody is, and how far everybody was told so."""
    settling: dict[int, int] = kept(TABLE)  # per sender the clock of its last message between those two
    seen: dict[int, Place] = kept(TABLE)  # per process how far it has said it is
    settling_more: int = kept()  # what the messages between those two weigh beyond their number
    asked: int = kept()  # bit set: those who have been asked how far they are and have not said so since

    def __init__(self, place: int = 0) -> None:
        self._begin(0)
        self.place = place
        self.unsettled_weight = 0

    def load(self, state: dict[str, Any]) -> None:
        super().load(state)
        self.unsettled_weight = sum(weight(each.request) for each in self.unsettled)

    def next_place(self) -> Place:
        self.place += 1
        return (self.place,)

    def has_seen(self, process: int, place: Place) -> None:
        self.seen[process] = max(place, self.seen.get(process, ()))
        self.asked &= ~(1 << process)

    def keep(self, ordered: Unsettled) -> None:
        self.unsettled.append(ordered)
        self.unsettled_weight += weight(ordered.request)

    @property
    def keeps_much(self) -> bool:
        return self.unsettled_weight >= 2 * SEEN_EVERY

    def to_ask(self) -> int:
        """The set of those whom the first unsettled message waits for, if much is unsettled. Each is asked
        once until it answers."""
        if not self.keeps_much:
            return 0
        ask = self.missing(self.unsettled[0]) & ~self.asked
        self.asked |= ask
        return ask

    def missing(self, ordered: Unsettled) -> int:
        """The set of those whose delivery of a message we have not heard of."""
        place, _, missing = ordered
        return pack(d for d in unpack(missing) if self.seen.get(d, ()) < place)

    def settle(self) -> dict[int, int]:
        """Drop what everybody has; per sender the clock of the last of its messages among that."""
        done: dict[int, int] = {}
        count = 0
        for each in self.unsettled:
            if self.missing(each):
                break
            count += 1
            done[each.request.sender] = each.request.clock
            self.settled = each.place, self.settled[1]
            self.unsettled_weight -= weight(each.request)
            self.settling_more += weight(each.request) - 1
        if count:
            self.unsettled = self.unsettled[count:]
        return done


def succeed(reports: Mapping[int, SequencerReport], round_: int) -> tuple[Office, list[Unsettled]]:
    """The office of a successor, and what it must order anew: each message that somebody may lack, with its
    place and those who lack it, in the order of places. `round_` is the number of the round, from 1."""
    delivered = {process: dict(report.delivered) for process, report in reports.items()}
    order = _in_order(reports, delivered, round_)
    known = [place for place, _ in order]
    office = Office()
    for process, report in reports.items():
        office.taken[process] = report.requested
        office.tails[process] = report.last
        known += [report.place, *(place for place, _, _ in report.recent)]
        known += [request.reached for request in report.requests]
    office.place = max((place[0] for place in known if place), default=0)
    due = []
    for place, request in order:
        sender, clock = request.sender, request.clock
        office.taken[sender] = max(office.taken.get(sender, 0), clock)
        lacking = (d for d in unpack(request.dests) if d in delivered and delivered[d].get(sender, 0) < clock)
        due.append(Unsettled(place, request, sum(1 << d for d in lacking)))
    return office, due


def _in_order(
    reports: Mapping[int, SequencerReport], delivered: Mapping[int, Mapping[int, int]], round_: int
) -> list[tuple[Place, SequencerRequest]]:
    """All that is known, by place. `delivered` is per process what it reports, by sender."""
    requests, places = _known(reports)
    found: list[tuple[Place, SequencerRequest]] = []
    inserted = 0
    bounds: dict[int, Place] = {}  # per sender, the place of its last message so far, or the bound of that
    for name in sorted(requests.keys() | places.keys()):
        sender = name[0]
        place = places.get(name, ())
        if not place:
            request = requests[name]
            # Who has delivered it is beyond its place: then everybody has, and nobody keeps the place.
            there = [d for d in unpack(request.dests) if d in reports]
            reached = (reports[d].place for d in there if delivered[d].get(sender, 0) < request.clock)
            bounds[sender] = max(bounds.get(sender, FIRST), request.reached, *reached)
            inserted += 1
            place = (*bounds[sender], ROUNDS - round_, inserted)
        else:
            bounds[sender] = place
        if name in requests:
            found.append((place, requests[name]))
    return sorted(found, key=lambda each: each[0])


def _known(
    reports: Mapping[int, SequencerReport],
) -> tuple[dict[MessageKey, SequencerRequest], dict[MessageKey, Place]]:
    """The requests that anybody has, and the places that anybody knows: whatever order the reports are in.
    What is held is an order, from which its request can be told but for what its sender had reached."""
    requests: dict[MessageKey, SequencerRequest] = {}
    places: dict[MessageKey, Place] = {}
    for _, report in sorted(reports.items()):
        places |= {(sender, clock): place for place, sender, clock in report.recent}
        for order in report.held:
            name = (order.sender, order.clock)
            places[name] = order.place
            requests[name] = SequencerRequest(*name, order.n, order.dests, 0, 0, order.payload, ())
    for _, report in sorted(reports.items()):
        requests |= {(request.sender, request.clock): request for request in report.requests}
    for sender, clock in list(requests):
        if sender in reports and clock > reports[sender].requested:
            del requests[sender, clock]  # made after its sender's report: it comes when we coordinate
    return requests, places
