"""Total and causal order through one coordinator: the centralized algorithm of Kshemkalyani & Singhal's
textbook (Distributed Computing, 2008, ch. 6), with a role that can be handed over.

Assumes    reliable links, FIFO or not, that may duplicate; processes that join get the next index.
Promises   one order of all messages, which every process follows and which contains causal order, for
           multicasts to arbitrary sets, oneself included; two hops until delivery.
           `hand_over` gives the role to a named successor at any time, whatever is in flight.
Leaves out a coordinator whose state is lost: one that crashes resumes from its snapshot. One that leaves
           hands over first.
Invariant  the coordinator takes the requests of each process in the order they were made (FIFO *in*: without
           it the order would be total and not causal), and each destination delivers what the coordinator
           orders in the order it was ordered (FIFO *out*: without it not even total). Links need not be
           FIFO: a request names its sender's previous one, an order the one before it at its destination.

Epochs. Each hand-over begins a new one. A request carries the epoch its sender knows of: a process that
knows of a later one passes it on, one that knows only of an earlier one keeps it until it hears.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ...core.destinations import unpack
from ...core.effects import Send
from ...core.errors import LocalProtocolError
from ...core.orders import Order
from ..facts import Facts, Names, Option, Relays, WireFormat
from ..machine import Effect, Held, MessageKey, Multicast
from ..process import Process, State, refusal
from .sequencer_messages import (
    NOBODY,
    SequencerAnnouncement,
    SequencerHandover,
    SequencerOrder,
    SequencerRequest,
)

FACTS = Facts(
    name="sequencer",
    description="one coordinator puts all messages in order; it can hand the role over",
    paper="Kshemkalyani & Singhal, Distributed Computing, 2008, ch. 6 (centralized algorithm)",
    order=Order.CAUSAL_TOTAL,
    relays=Relays.COORDINATOR,
    options=(Option("coordinator", "the first one, the same for everybody", Names.ONE),),
    wire=WireFormat(35, "happened.wire.sequencer"),
)


class _Office(NamedTuple):
    """What only the coordinator keeps, and hands over."""

    taken: dict[int, int]  # per sender the clock of its last request in order
    tails: dict[int, MessageKey]  # per destination the last message ordered to it
    early: dict[MessageKey, tuple[SequencerRequest, int]]  # by (sender, previous clock): request, since


class _Held(NamedTuple):
    order: SequencerOrder
    since: int


class SequencerTotalOrder(Process):
    facts = FACTS

    def __init__(self, me: int, n: int, *, coordinator: int = 0) -> None:
        super().__init__(me, n)
        if not 0 <= coordinator < n:
            raise LocalProtocolError(f"the coordinator is one of {n} processes, not {coordinator}")
        self._epoch = 0
        self._coordinator = coordinator
        self._office = _Office({}, {}, {}) if me == coordinator else None
        self._requested = 0  # the clock of our last request
        self._last = NOBODY  # the message delivered last
        self._delivered: dict[int, int] = {}  # per sender the clock of its last message delivered here
        self._held: dict[MessageKey, _Held] = {}  # by the message before it
        self._ahead: dict[MessageKey, SequencerRequest] = {}  # of an epoch we have not heard of

    @property
    def coordinator(self) -> int:
        """Who has the role, as far as we have heard."""
        return self._coordinator

    def multicast(self, to: Iterable[int], payload: bytes) -> Multicast:
        dests = self.destinations(to, payload)
        clock = self.next_clock()
        previous, self._requested = self._requested, clock
        request = SequencerRequest(self.me, clock, self.n, dests, previous, self._epoch, payload)
        return Multicast(clock, list(self._handle(request, self.events)))

    def hand_over(self, successor: int) -> list[Effect]:
        """Give the role to another process; returns what to send, as any input does."""
        if self._office is None:
            raise LocalProtocolError(f"process {self.me} is not the coordinator and has no role to hand over")
        if not self.present >> max(successor, 0) & 1 or successor in (self.me, -1):
            raise LocalProtocolError(f"process {successor} is not another one present: it cannot succeed")
        office, self._office = self._office, None
        self._epoch += 1
        self._coordinator = successor
        early = tuple(request for request, _ in office.early.values())
        taken, tails = tuple(sorted(office.taken.items())), tuple(sorted(office.tails.items()))
        others = self.present & ~(1 << self.me | 1 << successor)
        return [
            Send(successor, SequencerHandover(self.me, self._epoch, taken, tails, early)),
            *(Send(d, SequencerAnnouncement(self.me, self._epoch, successor)) for d in unpack(others)),
        ]

    def receive(self, message: Any) -> list[Effect]:
        self._check(message)
        since = self.arrival()
        if isinstance(message, SequencerOrder):
            return list(self._ordered(message, since))
        if isinstance(message, SequencerRequest):
            return list(self._handle(message, since))
        if message.epoch <= self._epoch:
            return []  # a duplicate made by the network, or old news
        self._epoch = message.epoch
        if isinstance(message, SequencerAnnouncement):
            self._coordinator = message.coordinator
            requests: list[SequencerRequest] = []
        else:
            self._coordinator = self.me
            self._office = _Office(dict(message.taken), dict(message.tails), {})
            requests = list(message.early)
        requests += [request for request in self._ahead.values() if request.epoch <= self._epoch]
        self._ahead = {key: request for key, request in self._ahead.items() if request.epoch > self._epoch}
        return [effect for request in requests for effect in self._handle(request, since)]

    def _check(self, message: Any) -> None:
        if isinstance(message, SequencerOrder):
            self.check(message, SequencerOrder)
        elif isinstance(message, SequencerRequest):
            self._check_request(message)
        elif isinstance(message, SequencerHandover):
            for request in message.early:
                self._check_request(request)
        elif not isinstance(message, SequencerAnnouncement):
            self.check(message, SequencerOrder)
        elif not 0 <= message.coordinator < self.n:
            raise refusal(
                message, f"names process {message.coordinator} as coordinator, and we know {self.n}"
            )

    def _check_request(self, request: SequencerRequest) -> None:
        # It need not be addressed to us: only the rest must make sense.
        self.check(request._replace(dests=request.dests | 1 << self.me), SequencerRequest)
        if not 0 <= request.previous < request.clock or request.dests >> self.n:
            raise refusal(request, f"is no request after that of clock {request.previous}")

    def _handle(self, request: SequencerRequest, since: int) -> Iterator[Effect]:
        """Order a request, pass it on, or keep it until we know what to do with it."""
        if request.epoch > self._epoch:
            self._ahead[request.sender, request.clock] = request
        elif self._office is None:
            yield Send(self._coordinator, request._replace(epoch=self._epoch))
        elif request.clock > self._office.taken.get(request.sender, 0):  # otherwise a duplicate
            early = self._office.early
            early[request.sender, request.previous] = request, since
            next_one = (request.sender, self._office.taken.get(request.sender, 0))
            while next_one in early:
                request, since = early.pop(next_one)
                yield from self._order(self._office, request, since)
                next_one = (request.sender, request.clock)

    def _order(self, office: _Office, request: SequencerRequest, since: int) -> Iterator[Effect]:
        sender, clock, n, dests, _, _, payload = request
        office.taken[sender] = clock
        for d in unpack(dests):
            order = SequencerOrder(sender, clock, n, dests, office.tails.get(d, NOBODY), payload)
            office.tails[d] = (sender, clock)
            if d == self.me:
                yield from self._ordered(order, since)
            else:
                yield Send(d, order)

    def _ordered(self, order: SequencerOrder, since: int) -> Iterator[Effect]:
        if order.clock <= self._delivered.get(order.sender, 0) or order.after in self._held:
            return  # a duplicate made by the network
        self._held[order.after] = _Held(order, since)
        while self._last in self._held:
            order, _ = self._held.pop(self._last)
            self._last = (order.sender, order.clock)
            self._delivered[order.sender] = order.clock
            yield self.delivery(order)

    def pending(self) -> list[Held]:
        held = [Held(order, (after,), since) for after, (order, since) in self._held.items()]
        early = self._office.early.items() if self._office is not None else ()
        return held + [
            Held(request, (key,), since) for key, (request, since) in early if request.dests >> self.me & 1
        ]

    def save(self) -> State:
        # Requests stand in order of arrival, in which a hand-over passes them on, restored or not.
        return {
            "role": (self._epoch, self._coordinator, self._requested),
            "last": self._last,
            "delivered": sorted(self._delivered.items()),
            "held": [(order, since) for _, (order, since) in sorted(self._held.items())],
            "ahead": list(self._ahead.values()),
            "office": None if self._office is None else _office_to(self._office),
        }

    def load(self, state: State) -> None:
        epoch, coordinator, requested = state["role"]
        held = [_Held(SequencerOrder(*order), since) for order, since in state["held"]]
        ahead = [SequencerRequest(*fields) for fields in state["ahead"]]
        office = None if state["office"] is None else _office_from(*state["office"])
        last, delivered = state["last"], dict(state["delivered"])
        self._epoch, self._coordinator, self._requested = epoch, coordinator, requested
        self._last, self._delivered, self._office = last, delivered, office
        self._held = {entry.order.after: entry for entry in held}
        self._ahead = {(request.sender, request.clock): request for request in ahead}


def _office_to(office: _Office) -> tuple[Any, ...]:
    return sorted(office.taken.items()), sorted(office.tails.items()), list(office.early.values())


def _office_from(taken: Any, tails: Any, early: Any) -> _Office:
    requests = [(SequencerRequest(*fields), since) for fields, since in early]
    return _Office(
        dict(taken),
        dict(tails),
        {(request.sender, request.previous): (request, s) for request, s in requests},
    )
