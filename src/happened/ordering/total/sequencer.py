"""Total and causal order through one coordinator: the centralized algorithm of Kshemkalyani & Singhal's
textbook (Distributed Computing, 2008, ch. 6), with a role that can be handed over.

Assumes    reliable links, FIFO or not, that may duplicate; processes that join get the next index.
Promises   one order of all messages, which every process follows and which contains causal order, for
           multicasts to arbitrary sets, oneself included; two hops until delivery.
           `hand_over` gives the role to a named successor at any time, whatever is in transit; a coordinator
           that leaves does so by itself. A process that leaves delivers nothing from then on. When a
           coordinator is expelled, the first process present succeeds it, and no message of another is lost.
Leaves out the order in which an expelled process delivered messages that no other process had yet.
Invariant  the coordinator takes the requests of each process in the order they were made (FIFO *in*: without
           it the order would be total and not causal), and each destination delivers the coordinator's orders
           in the order they were made (FIFO *out*: without it not even total). Links need not be FIFO: a
           request names its sender's previous one, an order names the one before it at its destination.

Epochs. Each hand-over begins a new epoch. A request carries the epoch that its sender knows: a process that
knows a later one forwards it, one that knows only an earlier one keeps it until it hears more.

Rounds. Every order has a *place* in the total order. A process keeps its own requests, and the places of the
messages it delivered, until it hears that all processes have delivered them. It reports its progress every
SEEN_EVERY deliveries, of which long ones count for several; the coordinator, which keeps the orders it made,
announces how far all processes are. When a coordinator keeps twice as much, it asks the processes that it
waits for, so that one which gets few messages does not keep the others from forgetting. A process that is
away does keep them from it, and `kept_bytes` shows this. Whenever no more comes from a departed process, be
it a present or former coordinator or one that forwarded a request, all report what they keep to the first
process that has not ended, and drop orders that have not arrived. That process orders everything anew and is
the coordinator from then on: a message delivered anywhere keeps its place, and the others get places that
contradict neither these nor causal order (sequencer_office.py). So each process goes on with what it lacks,
in the order that the others had. A process that leaves hands what it keeps to the others. The set of ended
processes identifies a round; its epochs begin at ROUND times their number.
"""

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any, NamedTuple

from ...core.destinations import unpack
from ...core.effects import Send
from ...core.errors import LocalProtocolError
from ...core.orders import Order
from ..facts import CopyTravel, Facts, MembershipChanges, Names, Option, Relays, WireFormat
from ..machine import Effect, Held, MessageKey, key_of
from ..process import Process, State, refusal
from ..snapshots import FLAG, PAIRS, TABLE, by_key, kept, valued
from .sequencer_office import (
    EVERYWHERE,
    LONG,
    NOBODY,
    SEEN_EVERY,
    Office,
    Place,
    SequencerAnnouncement,
    SequencerHandover,
    SequencerOrder,
    SequencerReport,
    SequencerRequest,
    SequencerSeen,
    SequencerSettled,
    SequencerTestament,
    Unsettled,
    succeed,
    weight,
)

ROUND = 1 << 20
"""Larger than the number of hand-overs between two departures."""

BESIDE = 256
"""The approximate size of a request without its payload, in bytes."""

UNTOLD = 3 * SEEN_EVERY * (LONG + BESIDE)
"""An upper bound on the bytes of its own requests that a process keeps when nothing is in transit: up to a
weight of 2 * SEEN_EVERY no process is asked, and up to SEEN_EVERY more is settled but not announced."""


REQUESTS = by_key(SequencerRequest, key_of)


class _Held(NamedTuple):
    order: SequencerOrder
    since: int


class SequencerTotalOrder(Process):
    facts = Facts(
        name="sequencer",
        description="one coordinator puts all messages in order; it can hand the role over",
        paper="Kshemkalyani & Singhal, Distributed Computing, 2008, ch. 6 (centralized algorithm)",
        order=Order.CAUSAL_TOTAL,
        options=(Option("coordinator", "the first one, the same for everybody", Names.ONE),),
        wire=WireFormat(35, "happened.wire.total:SEQUENCER"),
        copies=CopyTravel(relays=Relays.COORDINATOR),
        membership=MembershipChanges(
            at_join="gets an index, and hears who is the coordinator",
            at_leave="delivers nothing more; a coordinator hands its role over. What it sent is delivered",
            at_expulsion="is not addressed any more; the first one present puts in order what all others "
            "report",
        ),
    )

    _epoch: int = kept(within="role")
    _coordinator: int = kept(within="role")
    _requested: int = kept(within="role")  # the clock of our last request
    _last: MessageKey = kept(valued(NOBODY))  # the message delivered last
    _delivered: dict[int, int] = kept(TABLE)  # per sender the clock of its last message delivered here
    _held: dict[MessageKey, _Held] = kept(by_key(_Held, lambda held: held.order.after, in_order=True))
    """Orders that wait, by the message that must be delivered just before."""
    _ahead: dict[MessageKey, SequencerRequest] = kept(REQUESTS)  # to handle when we hear of a new coordinator
    _kept: dict[int, SequencerRequest] = kept(by_key(SequencerRequest, attrgetter("clock")))
    """Our requests that some process may lack."""
    _entrusted: dict[MessageKey, SequencerRequest] = kept(REQUESTS)  # such requests of departed processes
    _recent: dict[MessageKey, Place] = kept(PAIRS)  # places of messages that some may not have delivered
    _unsaid: int = kept(within="succession")  # the weight of our deliveries since our last progress report
    _place: Place = kept(valued(()), within="succession")  # the place of our last delivery
    _ended: int = kept(within="succession")  # bit set: processes from which no more comes
    _is_orphan: bool = kept(FLAG, within="succession")
    """Whether we have reported for a round and have not yet heard who is the coordinator."""
    _entrusted_until: Place = kept(valued(()), within="succession")
    """`_entrusted` is needed until all processes have reached this place; (): not known yet."""
    _is_asked: bool = kept(FLAG, within="succession")  # to report our progress, and have not yet
    _reports: dict[int, SequencerReport] = kept(by_key(SequencerReport, attrgetter("sender"), in_order=True))
    """The reports that we received as a successor."""

    def __init__(self, me: int, n: int, *, coordinator: int = 0) -> None:
        super().__init__(me, n)
        if not 0 <= coordinator < n:
            raise LocalProtocolError(f"the coordinator is one of {n} processes, not {coordinator}")
        self._coordinator = coordinator
        self._office = Office() if me == coordinator else None
        self._kept_size = 0

    @property
    def coordinator(self) -> int:
        """The process that has the role, as far as we have heard."""
        return self._coordinator

    @property
    def has_role(self) -> bool:
        """Whether we are the coordinator; a successor that still collects reports is not."""
        return self._office is not None

    def stamp(self, clock: int, dests: int, payload: bytes) -> list[Effect]:
        previous, self._requested = self._requested, clock
        told = previous, self._epoch, payload, self._place
        request = SequencerRequest(self.me, clock, self.n, dests, *told)
        self._kept[clock] = request
        self._kept_size += len(payload) + BESIDE
        return list(self._handle(request, self.events))

    @property
    def kept_bytes(self) -> int:
        return max(self._kept_size - UNTOLD, 0)

    # Membership.

    def join(self, process: int) -> list[Effect]:
        effects = super().join(process)
        if self._epoch and not self._is_orphan:
            effects.append(Send(process, SequencerAnnouncement(self.me, self._epoch, self._coordinator)))
        return effects

    def leave(self, process: int) -> list[Effect]:
        effects = super().leave(process)
        if process == self.me:
            self._held = {}
            testament = SequencerTestament(self.me, self._places(), tuple(self._kept.values()))
            told = self.to_each(testament, self.others) if self._kept or self._recent else []
            return effects + told + self._pass_on_role()
        if self._office is not None:
            self._office.tails.pop(process, None)
            self._office.has_seen(process, EVERYWHERE)
            effects += self._settle()
        return effects + self._complete_round()

    def close(self, process: int) -> list[Effect]:
        effects = super().close(process)
        self._ended |= 1 << process
        epoch = self._ended.bit_count() * ROUND
        if self._epoch >= epoch or self.gone >> self.me & 1:
            return effects  # we joined later and know that round's coordinator
        self._epoch = epoch
        return effects + self._report()

    def _places(self) -> tuple[tuple[Place, int, int], ...]:
        return tuple(sorted((place, *name) for name, place in self._recent.items()))

    def _pass_on_role(self) -> list[Effect]:
        """Before we leave, hand the role to the first other process present."""
        others = self.others
        return self.hand_over(next(iter(unpack(others)))) if self._office is not None and others else []

    def hand_over(self, successor: int) -> list[Effect]:
        """Give the role to another process; returns the effects to perform, as any input does."""
        if self._office is None:
            raise LocalProtocolError(f"process {self.me} is not the coordinator and has no role to hand over")
        if successor < 0 or not self.others >> successor & 1:
            raise LocalProtocolError(f"process {successor} is not another one present: it cannot succeed")
        office, self._office = self._office, None
        self._epoch += 1
        self._coordinator = successor
        early = tuple(request for request, _ in office.early.values())
        taken, tails = tuple(sorted(office.taken.items())), tuple(sorted(office.tails.items()))
        unsettled = tuple(each._replace(missing=office.missing(each)) for each in office.unsettled)
        role = SequencerHandover(self.me, self._epoch, taken, tails, early, office.place, unsettled)
        news = SequencerAnnouncement(self.me, self._epoch, successor)
        return [Send(successor, role), *self.to_each(news, self.others & ~(1 << successor))]

    # Rounds.

    def _report(self) -> list[Effect]:
        """Report what we know to the first process that has not ended, and wait to hear who coordinates."""
        office, self._office = self._office or Office(), None
        self._is_orphan = True
        self._coordinator = successor = next(iter(unpack(((1 << self.n) - 1) & ~self._ended)))
        ordered = [
            SequencerOrder(each.sender, each.clock, each.n, each.dests, NOBODY, each.payload, place)
            for place, each, _ in office.unsettled
        ]
        early = [request for request, _ in office.early.values()]
        delivered = tuple(sorted(self._delivered.items()))
        held = (*ordered, *(held.order for _, held in sorted(self._held.items())))
        requests = (*self._kept.values(), *self._entrusted.values(), *self._ahead.values(), *early)
        told = self._ended, self._requested, self._last, self._place, delivered, self._places()
        report = SequencerReport(self.me, *told, held, requests)
        self._held = {}  # the successor orders all of them anew
        return self._reported(report) if successor == self.me else [Send(successor, report)]

    def _reported(self, report: SequencerReport) -> list[Effect]:
        known = self._reports.get(report.sender)
        if known is None or known.ended.bit_count() <= report.ended.bit_count():
            self._reports[report.sender] = report
        return self._redirect() or self._complete_round()

    def _redirect(self) -> list[Effect]:
        """Answer processes that report to us for a round that is over, and handle their requests: these
        newcomers may have sent them to a coordinator that was gone."""
        if self._is_orphan:
            return []
        effects: list[Effect] = []
        for process, report in sorted(self._reports.items()):
            if not report.ended & ~self._ended:
                del self._reports[process]
                news = SequencerAnnouncement(self.me, self._epoch, self._coordinator)
                effects.append(Send(process, news))
                for request in report.requests:
                    if request.sender == process:
                        effects += self._handle(request, self.events)
        return effects

    def _complete_round(self) -> list[Effect]:
        """Once all present processes have reported, order everything that is known and become coordinator."""
        if self.gone & ~self._ended:
            return []  # more may come from these, or from us if we leave: then another round follows
        reports = {process: r for process, r in self._reports.items() if r.ended == self._ended}
        if self.me not in reports or any(process not in reports for process in unpack(self.present)):
            return []
        self._reports, self._is_orphan = {}, False
        office, lacking = succeed(reports, self._ended.bit_count())
        self._office = office
        effects: list[Effect] = []
        for each in lacking:
            effects += self._put_in_order(office, each, self.events)
        self._entrusted_until = last = max((each.place for each in lacking), default=())
        news = SequencerAnnouncement(self.me, self._epoch, self.me, last)
        effects = [*self.to_each(news, self.others), *effects, *self._resumed(self.events)]
        return effects + self._settle_much(office)

    # Messages.

    def receive(self, message: Any) -> list[Effect]:
        self._check(message)
        since = self.arrival()
        match message:
            case SequencerOrder():
                return list(self._ordered(message, since))
            case SequencerRequest():
                return list(self._handle(message, since))
            case SequencerSeen():
                return self._seen(message)
            case SequencerSettled():
                if not message.place:
                    return self._asked()
                self._settled(message.place, message.requested)
                return []
            case SequencerTestament():
                self._entrusted_until = ()  # the next round puts them in order
                self._entrusted |= {(request.sender, request.clock): request for request in message.requests}
                self._recent |= {(sender, clock): place for place, sender, clock in message.recent}
                return []
            case SequencerReport():
                return self._reported(message)
        if message.epoch < self._epoch or (message.epoch == self._epoch and not self._is_orphan):
            return []  # a duplicate made by the network, or outdated
        if message.epoch // ROUND > self._epoch // ROUND:
            # As a newcomer we did not report in that round, and may have asked a coordinator that was gone.
            self._ahead = {(self.me, clock): request for clock, request in self._kept.items()} | self._ahead
        self._epoch, self._is_orphan, self._office = message.epoch, False, None
        if isinstance(message, SequencerAnnouncement):
            self._coordinator = message.coordinator
            self._entrusted_until = message.place or self._entrusted_until
            return self._redirect() + self._resumed(since)
        self._coordinator = self.me
        self._office = office = Office(message.place)
        office.taken, office.tails = dict(message.taken), dict(message.tails)
        for each in message.unsettled:
            office.keep(each)
        for process in unpack(self.gone):
            office.has_seen(process, EVERYWHERE)
        effects = [effect for request in message.early for effect in self._handle(request, since)]
        effects += self._redirect() + self._resumed(since) + self._settle_much(office)
        return effects + (self._pass_on_role() if self.gone >> self.me & 1 else [])

    def _resumed(self, since: int) -> list[Effect]:
        """Handle the requests that were kept until a coordinator is known."""
        requests = [request for request in self._ahead.values() if request.epoch <= self._epoch]
        self._ahead = {key: request for key, request in self._ahead.items() if request.epoch > self._epoch}
        return [effect for request in requests for effect in self._handle(request, since)]

    def _check(self, message: Any) -> None:
        match message:
            case SequencerRequest():
                self._check_request(message)
            case SequencerHandover() | SequencerReport() | SequencerTestament():
                early = message.early if isinstance(message, SequencerHandover) else message.requests
                for request in early:
                    self._check_request(request)
            case SequencerSeen() | SequencerSettled():
                if not 0 <= message.sender < self.n:
                    raise refusal(message, f"comes from process {message.sender}, and we know {self.n}")
            case SequencerAnnouncement(coordinator=named):
                if not 0 <= named < self.n:
                    raise refusal(message, f"names process {named} as coordinator, and we know {self.n}")
            case _:
                self.check(message, SequencerOrder)

    def _check_request(self, request: SequencerRequest) -> None:
        # We may be no destination of the request: check only its other fields.
        self.check(request._replace(dests=request.dests | 1 << self.me), SequencerRequest)
        if not 0 <= request.previous < request.clock or request.dests >> self.n:
            raise refusal(request, f"is no request after that of clock {request.previous}")

    def _handle(self, request: SequencerRequest, since: int) -> Iterator[Effect]:
        """Order a request, forward it, or keep it until we know which of these to do."""
        if request.epoch > self._epoch:
            self._ahead[request.sender, request.clock] = request
        elif self._office is None:
            if self._is_orphan or self.gone >> self._coordinator & 1:
                self._ahead[request.sender, request.clock] = request  # a successor will announce itself
            else:
                yield Send(self._coordinator, request._replace(epoch=self._epoch))
        elif self._ended >> request.sender & 1:
            # After its sender ended, a round has ordered all its requests that any process knew. This one
            # comes through a departed process, and may follow a request that is lost.
            return
        elif request.clock > self._office.taken.get(request.sender, 0):  # otherwise a duplicate
            early = self._office.early
            early[request.sender, request.previous] = request, since
            next_one = (request.sender, self._office.taken.get(request.sender, 0))
            while next_one in early:
                request, since = early.pop(next_one)
                yield from self._order(self._office, request, since)
                next_one = (request.sender, request.clock)

    def _order(self, office: Office, request: SequencerRequest, since: int) -> Iterator[Effect]:
        office.taken[request.sender] = request.clock
        due = request.dests & ~(self.gone & ~(1 << self.me))
        yield from self._put_in_order(office, Unsettled(office.next_place(), request, due), since)

    def _put_in_order(self, office: Office, ordered: Unsettled, since: int) -> Iterator[Effect]:
        office.keep(ordered)
        place, request, due = ordered
        sender, clock, n, dests, _, _, payload, _ = request
        for d in unpack(due):
            after = office.tails.get(d, NOBODY)
            order = SequencerOrder(sender, clock, n, dests, after, payload, place, self._epoch)
            office.tails[d] = (sender, clock)
            if d == self.me:
                yield from self._ordered(order, since)
            else:
                yield Send(d, order)
        yield from self._ask(office)

    def _ordered(self, order: SequencerOrder, since: int) -> Iterator[Effect]:
        if order.epoch // ROUND < self._ended.bit_count():
            return  # the round that we reported for orders this message anew
        if self.gone >> self.me & 1:
            return  # others have our testament and cannot learn this message's place
        if order.clock <= self._delivered.get(order.sender, 0) or order.after in self._held:
            return  # a duplicate made by the network
        self._held[order.after] = _Held(order, since)
        while self._last in self._held:
            order, _ = self._held.pop(self._last)
            self._last = (order.sender, order.clock)
            self._delivered[order.sender] = order.clock
            self._recent[self._last] = self._place = order.place
            self._unsaid += weight(order)
            yield self.delivery(order)
        if self._unsaid >= SEEN_EVERY or self._is_asked:
            yield from self._say()

    # Progress: which messages all processes have delivered.

    def _say(self) -> list[Effect]:
        if not self._unsaid:
            return []
        self._unsaid, self._is_asked = 0, False
        return self._seen(SequencerSeen(self.me, self._place, self._epoch))

    def _asked(self) -> list[Effect]:
        """The coordinator asks for our progress: report now, or when its next order for us comes."""
        self._is_asked = True
        return self._say()

    def _ask(self, office: Office) -> list[Effect]:
        """As the coordinator, ask the processes that we wait for how far they are."""
        effects: list[Effect] = []
        for d in unpack(office.to_ask()):
            effects += self._asked() if d == self.me else [Send(d, SequencerSettled(self.me, (), 0))]
        return effects

    def _seen(self, message: SequencerSeen) -> list[Effect]:
        if message.epoch // ROUND < self._ended.bit_count():
            return []  # orders that have not arrived by then are made anew
        if self._office is not None:
            self._office.has_seen(message.sender, message.place)
            return self._settle()
        knows_whom = not self._is_orphan and not self.gone >> self._coordinator & 1
        return [Send(self._coordinator, message)] if knows_whom else []

    def _settle_much(self, office: Office) -> list[Effect]:
        """As a new coordinator, settle now: perhaps no progress report will come to trigger it."""
        return self._settle() if office.keeps_much else []

    def _settle(self) -> list[Effect]:
        """As the coordinator, announce what need not be kept any more, if it is worth a message."""
        office = self._office
        assert office is not None
        office.settling |= office.settle()
        place, told = office.settled
        if sum(place[:1]) - sum(told[:1]) + office.settling_more < SEEN_EVERY:
            return self._ask(office)
        office.settled, office.settling_more = (place, place), 0
        clocks, office.settling = office.settling, {}
        self._settled(place, clocks.get(self.me, 0))
        news = [Send(d, SequencerSettled(self.me, place, clocks.get(d, 0))) for d in unpack(self.others)]
        return [*news, *self._ask(office)]

    def _settled(self, place: Place, requested: int) -> None:
        if self._entrusted_until and self._entrusted_until <= place:
            self._entrusted, self._entrusted_until = {}, ()
        self._recent = {name: at for name, at in self._recent.items() if at > place}
        self._keep(request for clock, request in self._kept.items() if clock > requested)

    def _keep(self, requests: Iterable[SequencerRequest]) -> None:
        self._kept = {request.clock: request for request in requests}
        self._kept_size = sum(len(request.payload) + BESIDE for request in self._kept.values())

    def pending(self) -> list[Held]:
        held = [Held(order, (after,), since) for after, (order, since) in self._held.items()]
        early = self._office.early.items() if self._office is not None else ()
        return held + [
            Held(request, (key,), since) for key, (request, since) in early if request.dests >> self.me & 1
        ]

    def save(self) -> State:
        # Requests are kept in order of arrival, which a hand-over preserves, and so must a restored machine.
        return super().save() | {"office": None if self._office is None else self._office.state()}

    def load(self, state: State) -> None:
        super().load(state)
        self._office = None if state["office"] is None else Office().resume(state["office"])
        self._keep(self._kept.values())
