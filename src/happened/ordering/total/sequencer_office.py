"""The control messages of `sequencer`, the state that only the coordinator keeps, and how a successor builds
that state from the reports of all processes.

Places. A coordinator gives every message a *place* in the total order: a tuple of numbers, compared from the
left, (1,), (2,), … Smaller places belong to the messages that its sender had delivered or sent before, and to
those delivered before it at any of its destinations.

Succession. When a coordinator fails, survivors know the places of the messages they have delivered or hold,
and these places stay. No survivor knows the places of the other messages. Each of these gets a place just
after its lower bound: the largest of the place that its sender had reached when it sent it
(`SequencerRequest.reached`), the places reached by those of its destinations that lack it, and the place of
its sender's previous message. The lost place was larger than that bound, so the new one is smaller than those
of all messages that follow causally. It is also larger than those of all that precede: for a message u that
precedes v the bound of v is at least the lost place of u, unless both have the same sender.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ...core.destinations import pack, unpack
from ...core.lanes import CLOCK_LIMIT
from ..machine import MessageKey
from ..messages import Application, Control
from ..snapshots import TABLE, Part, kept, records, table, valued

NOBODY: MessageKey = (0, 0)
"""Stands for the predecessor of the first message; no message has clock 0."""

Place = tuple[int, ...]
"""A message's place in the total order; () is before all messages."""

EVERYWHERE: Place = (CLOCK_LIMIT,)
"""After every place of a message."""

SEEN_EVERY = 32
"""A process reports its progress after deliveries of this total weight."""

LONG = 2048
"""So many bytes of payload weigh as much as one message."""

FIRST: Place = (0,)
"""Before every place of a message."""

ROUNDS = 1 << 20
"""Larger than the number of rounds. If two rounds insert after the same place, the later inserts before the
earlier one's messages: all that is known of the new message is that it follows the bound."""


def _place_text(place: Place) -> str:
    return ".".join(map(str, place)) or "none"


class _ThroughCoordinator(Application):
    """A message that any present or former coordinator may put on a link."""

    via = None

    def size(self) -> tuple[int, int]:
        return 1, 0


class SequencerRequest(_ThroughCoordinator):
    """M(sender, clock) on its way to the coordinator."""

    previous: int  # the clock of its sender's previous request, 0 if none
    epoch: int  # how many hand-overs the process that sends this has heard of
    payload: bytes
    reached: Place  # the place of the last message that its sender had delivered
    costs = 4 + 4


class SequencerOrder(_ThroughCoordinator):
    """M(sender, clock) on its way from the coordinator to one destination."""

    after: MessageKey  # what the destination delivers just before it; NOBODY if it is first
    payload: bytes
    place: Place
    epoch: int = 0  # the epoch of the coordinator that sends it


class Unsettled(NamedTuple):
    """An ordered message whose delivery the processes in `missing` have not reported to the coordinator."""

    place: Place
    request: SequencerRequest
    missing: int  # bit set


class SequencerHandover(Control):
    """Gives its receiver the role, with the state that a coordinator needs."""

    counts = "taken tails early unsettled"
    epoch: int
    taken: tuple[MessageKey, ...]  # per sender, the clock of its last request that was ordered
    tails: tuple[tuple[int, MessageKey], ...]  # per destination the last message ordered to it
    early: tuple[SequencerRequest, ...]  # requests whose predecessors have not come yet
    place: int  # the first number of the last place given
    unsettled: tuple[Unsettled, ...]

    def model_bytes(self) -> int:
        told = 8 + 6 * len(self.taken) + 8 * len(self.tails) + 12 * len(self.unsettled)
        told += sum(len(each.request.payload) for each in self.unsettled)
        return told + _bytes_of(self.early)

    def carries(self) -> tuple[Any, ...]:
        return (*self.early, *(each.request for each in self.unsettled))


class SequencerAnnouncement(Control):
    """Names the process that has the role from now on."""

    epoch: int
    coordinator: int
    place: Place = ()  # after a round, the place of the last message that it ordered anew
    costs = 4 + 2


class SequencerSeen(Control):
    """Process `sender` has delivered all orders to it up to this place."""

    place: Place
    epoch: int
    costs = 4 + 2

    def __str__(self) -> str:
        return f"word of {self.sender} that it has delivered up to place {_place_text(self.place)}"


class SequencerSettled(Control):
    """All processes have delivered the messages up to this place, among them the receiver's own requests up
    to the clock `requested`."""

    place: Place
    requested: int
    costs = 4 + 4

    def __str__(self) -> str:
        return f"word of {self.sender} that everybody has delivered up to place {_place_text(self.place)}"


class SequencerReport(Control):
    """What a process knows of the order; a successor collects these reports when a process has ended."""

    counts = "delivered recent held requests"
    ended: int  # bit set: the ended processes that define the round
    requested: int  # the clock of its last request
    last: MessageKey  # the message it delivered last
    place: Place  # the place of `last`
    delivered: tuple[MessageKey, ...]  # per sender the clock of its last message delivered there
    recent: tuple[tuple[Place, int, int], ...]  # (place, sender, clock) of what some process may lack
    held: tuple[SequencerOrder, ...]
    requests: tuple[SequencerRequest, ...]  # its own requests that some process may lack

    def model_bytes(self) -> int:
        known = 16 + 6 * len(self.delivered) + 10 * len(self.recent)
        return known + _bytes_of(self.carries())

    def carries(self) -> tuple[Any, ...]:
        return (*self.held, *self.requests)


class SequencerTestament(Control):
    """What a leaving process would have to report later; the other processes report it instead."""

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
    """The state that only the coordinator keeps, and hands over."""

    taken: dict[int, int] = kept(TABLE)  # per sender, the clock of its last request that was ordered
    tails: dict[int, MessageKey] = kept(TABLE)  # per destination the last message ordered to it
    early: dict[MessageKey, tuple[SequencerRequest, int]] = kept(EARLY)  # by (sender, previous clock)
    place: int = kept()  # the first number of the last place given
    unsettled: list[Unsettled] = kept(records(Unsettled))  # in the order of their places
    settled: tuple[Place, Place] = kept(valued(((), ())))
    """The place up to which all processes have delivered, and the place up to which this was announced."""
    settling: dict[int, int] = kept(TABLE)  # per sender, the clock of its last message between these places
    seen: dict[int, Place] = kept(TABLE)  # per process, the place that it last reported
    settling_more: int = kept()  # the weight of the messages between these places, less their number
    asked: int = kept()  # bit set: processes that were asked for progress and have not answered

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
        """If much is unsettled, the processes that the first unsettled message waits for, without those that
        were asked before and have not answered yet."""
        if not self.keeps_much:
            return 0
        ask = self.missing(self.unsettled[0]) & ~self.asked
        self.asked |= ask
        return ask

    def missing(self, ordered: Unsettled) -> int:
        """The processes that have not reported their delivery of this message."""
        place, _, missing = ordered
        return pack(d for d in unpack(missing) if self.seen.get(d, ()) < place)

    def settle(self) -> dict[int, int]:
        """Drop the messages that all have delivered; returns, per sender, the last clock dropped."""
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
    """A successor's office, and the messages it must order anew, by place: each message that some process may
    lack, with its place and the set of processes that lack it. `round_` is the round's number, from 1."""
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
    """All known messages, by place. `delivered`: process -> sender -> last clock it reports delivered."""
    requests, places = _known(reports)
    found: list[tuple[Place, SequencerRequest]] = []
    inserted = 0
    bounds: dict[int, Place] = {}  # per sender, the place of its last message so far, or its bound
    for name in sorted(requests.keys() | places.keys()):
        sender = name[0]
        place = places.get(name, ())
        if not place:
            request = requests[name]
            # Who has delivered it has passed its place, which is forgotten only after all have delivered it.
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
    """The requests and the places that any process knows; the order of the reports does not matter. A held
    message is an order, from which its request follows except for the field `reached`."""
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
            del requests[sender, clock]  # made after its sender's report: it will come to us as coordinator
    return requests, places
