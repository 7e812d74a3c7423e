"""Total order by agreement on a timestamp in three phases: Skeen's algorithm (in Birman & Joseph, ACM TOCS
5(1), 1987), as both `agreed` and `causal-total` use it.

Assumes    reliable links, FIFO or not, that may duplicate; processes that join get the next index.
Promises   total order for multicasts to arbitrary sets, oneself included: all messages have one order that
           every process follows. 3 transmissions per destination, three hops until delivery.
Leaves out the order of one sender's messages: on links that reorder, or across overlapping groups, two of
           them may be delivered in reverse order; see causal_total.py.
Invariant  a message's final timestamp is at least what each destination proposed for it, and every later
           proposal of that destination is larger. So once the head of the queue has its final timestamp, no
           message that comes later can be ordered before it.

The sender of a message offers a timestamp, each destination proposes one at least as large, and the largest
becomes final; destinations deliver in the order of (final timestamp, sender, clock).

The textbook chapter of docs/papers.md prints this algorithm (Fig. 2.9) in a form in which two processes can
deliver two messages in different orders. Three repairs are made here, each of them needed:
  - propose max(priority + 1, ts), so that no two proposals of one process are equal;
  - raise the priority on FINAL too, so that a later proposal is beyond every message delivered;
  - order by (timestamp, sender, clock), so that equal timestamps are no tie.

When a sender is expelled, the others decide its messages: three_phase_survival.py.
"""

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any, NamedTuple

from ...core.destinations import unpack
from ...core.effects import Send
from ...core.lanes import CLOCK_LIMIT
from ...core.orders import Order
from ..facts import Facts, MembershipChanges, WireFormat
from ..machine import Effect, Held, MessageKey, key_of
from ..process import Process, State, refusal
from ..snapshots import TABLE, by_key, kept, table
from .three_phase_survival import (
    AgreedFinal,
    AgreedFinals,
    AgreedMessage,
    AgreedProposal,
    AgreedReport,
    AgreedSeen,
    Finals,
    Known,
    Survival,
)

AT_LEAVE = "delivers nothing more and is not waited for to propose. What it sent is decided and delivered"
AT_EXPULSION = "is not waited for to propose; the first one present decides what it sent, as all report"
"""The text about expulsions in the facts of both protocols."""

WIRE = WireFormat(36, "happened.wire.total:THREE_PHASE")


class _Round(NamedTuple):
    """A message of ours for which some destinations have not proposed yet."""

    dests: int
    missing: int  # bit set: destinations that have not proposed yet
    highest: int


ROUNDS = table(
    lambda rounds: sorted((clock, *opened) for clock, opened in rounds.items()),
    lambda rounds: {clock: _Round(*fields) for clock, *fields in rounds},
)
SEEN = table(
    lambda seen: sorted((sender, floor, sorted(beyond)) for sender, (floor, beyond) in seen.items()),
    lambda seen: {sender: (floor, frozenset(late)) for sender, floor, late in seen},
)


class _Entry(NamedTuple):
    message: AgreedMessage
    timestamp: int
    final: bool
    since: int

    @property
    def known(self) -> Known:
        message = self.message
        return Known(message.sender, message.clock, message.dests, self.timestamp, self.final)

    @property
    def place(self) -> tuple[int, int, int]:
        return self.timestamp, self.message.sender, self.message.clock


class AgreedTotalOrder(Process):
    """Both sides of the algorithm; a protocol says when the agreement on a multicast begins. A process that
    leaves still proposes for messages on their way to it. A sender that has heard of the departure waits for
    no proposal of it and sends it no final timestamp. A departed process delivers nothing more: what it told
    the others before it left is all that they can know of its delivery order."""

    facts = Facts(
        name="agreed",
        description="three phases agree on a timestamp for every message",
        paper="Skeen; in Birman & Joseph, ACM TOCS 5(1), 1987; three repairs, see docs/papers.md",
        order=Order.TOTAL,
        wire=WIRE,
        membership=MembershipChanges(at_leave=AT_LEAVE, at_expulsion=AT_EXPULSION),
    )

    _timestamp: int = kept(within="phases")  # the textbook's `clock`
    _priority: int = kept(within="phases")
    _numbers: dict[int, int] = kept(TABLE, within="phases")  # per destination, how many messages we sent
    _rounds: dict[int, _Round] = kept(ROUNDS, within="phases")  # by clock
    _queue: dict[MessageKey, _Entry] = kept(
        by_key(_Entry, lambda entry: key_of(entry.message), in_order=True), within="phases"
    )
    _seen: dict[int, tuple[int, frozenset[int]]] = kept(SEEN, within="phases")
    """Per sender: all numbers up to the first value have arrived, and those in the set."""

    def __init__(self, me: int, n: int) -> None:
        super().__init__(me, n)
        self._heap: list[tuple[int, int, int]] = []  # places of entries; outdated ones are skipped
        self._survival = Survival(me)

    @property
    def queued(self) -> int:
        return len(self._rounds)

    def stamp(self, clock: int, dests: int, payload: bytes) -> list[Effect]:
        return list(self.begin(clock, dests, payload))

    def begin(self, clock: int, dests: int, payload: bytes) -> Iterator[Effect]:
        me = self.me
        self._timestamp += 1
        present = dests & ~self.gone | dests & 1 << me
        self._rounds[clock] = _Round(present, present, 0)
        for d in unpack(present):
            self._numbers[d] = number = self._numbers.get(d, 0) + 1
            message = AgreedMessage(me, clock, self.n, dests, number, self._timestamp, payload)
            if d == me:
                self._is_new(message)
                yield from self._proposed(AgreedProposal(me, clock, me, self._propose(message)))
            else:
                yield Send(d, message)

    def receive(self, message: Any) -> list[Effect]:
        self._check(message)
        self.arrival()
        return list(self._react(message))

    def _react(self, message: Any) -> Iterator[Effect]:
        match message:
            case AgreedProposal():
                yield from self._proposed(message)
            case AgreedFinal():
                yield from self._settle(message)
            case AgreedFinals():
                for each in message.finals:
                    yield from self._settle(AgreedFinal(*each))
            case AgreedSeen():
                self._survival.note_seen(message.sender, message.timestamp, self.gone)
            case AgreedReport():
                self._survival.note_report(message)
                yield from self._conclude()
            case _ if self._is_new(message):
                timestamp = self._propose(message)
                proposal = AgreedProposal(message.sender, message.clock, self.me, timestamp)
                yield Send(message.sender, proposal)

    def _check(self, message: Any) -> None:
        match message:
            case AgreedProposal():
                if message.sender != self.me:
                    why = f"is not ours, and process {message.by} proposes us a timestamp for it"
                    raise refusal(message, why)
                if message.clock > self.clock:
                    raise refusal(message, "was never sent")
                _check_timestamp(message)
            case AgreedFinal():
                self._check_final(message)
            case AgreedFinals():
                for each in message.finals:
                    self._check_final(AgreedFinal(*each))
            case AgreedSeen():
                _check_timestamp(message)
            case AgreedReport():
                self._check_report(message)
            case _:
                self.check(message, AgreedMessage)
                if message.sender == self.me or message.number < 1:
                    raise refusal(message, "is our own, or does not say which of its sender's it is")
                _check_timestamp(message)

    def _check_final(self, message: AgreedFinal) -> None:
        entry = self._queue.get((message.sender, message.clock))
        if entry is not None and message.timestamp < entry.timestamp:
            raise refusal(message, f"is final at {message.timestamp}; we proposed {entry.timestamp}")
        _check_timestamp(message)

    def _check_report(self, message: AgreedReport) -> None:
        if not 0 <= message.sender < self.n:
            raise refusal(message, f"reports as process {message.sender}, and we know {self.n}")
        for known in message.known:
            if not 0 <= known.sender < self.n or known.dests >> self.n:
                raise refusal(known, f"is reported by process {message.sender}, and we know {self.n}")
            _check_timestamp(known)

    def _is_new(self, message: AgreedMessage) -> bool:
        floor, beyond = self._seen.get(message.sender, (0, frozenset()))
        if message.number <= floor or message.number in beyond:
            return False  # a duplicate made by the network
        beyond |= {message.number}
        while floor + 1 in beyond:
            floor += 1
            beyond -= {floor}
        self._seen[message.sender] = floor, beyond
        return True

    def _propose(self, message: AgreedMessage) -> int:
        self._priority = max(self._priority + 1, message.timestamp)
        entry = _Entry(message, self._priority, False, self.events)
        self._queue[message.sender, message.clock] = entry
        heappush(self._heap, entry.place)
        return self._priority

    def _proposed(self, proposal: AgreedProposal) -> Iterator[Effect]:
        open_round = self._rounds.get(proposal.clock)
        if open_round is None or not open_round.missing >> proposal.by & 1:
            return  # a repeated proposal
        dests, missing, highest = open_round
        missing &= ~(1 << proposal.by)
        yield from self._gathered(proposal.clock, _Round(dests, missing, max(highest, proposal.timestamp)))

    def leave(self, process: int) -> list[Effect]:
        effects, its_bit = super().leave(process), 1 << process
        if process == self.me:
            return effects + self._tell(self._survival.testament(self.gone))
        for clock, (dests, missing, highest) in list(self._rounds.items()):
            if missing & its_bit:
                effects += self._gathered(clock, _Round(dests & ~its_bit, missing & ~its_bit, highest))
        self._survival.drop(self.gone)
        return effects

    def expel(self, process: int) -> list[Effect]:
        effects = super().expel(process)
        self._survival.expelled |= 1 << process
        return effects

    def close(self, process: int) -> list[Effect]:
        effects, survival = super().close(process), self._survival
        survival.ended |= 1 << process
        lost = survival.expelled & survival.ended
        if not lost or self.gone >> self.me & 1:
            return effects
        undecided = [entry.known for _, entry in sorted(self._queue.items()) if not entry.final]
        known = (*(k for _, k in sorted(survival.finals.items())), *undecided)
        report = AgreedReport(self.me, survival.ended, tuple(k for k in known if lost >> k.sender & 1))
        if self._decides != self.me:
            return [*effects, Send(self._decides, report)]
        survival.note_report(report)
        return [*effects, *self._conclude()]

    def forget(self, process: int) -> None:
        super().forget(process)
        self._survival.forget(process)

    @property
    def _decides(self) -> int:
        """The process that decides the messages of expelled senders: the first one that has not ended."""
        return next(p for p in range(self.n) if not self._survival.ended >> p & 1)

    def _conclude(self) -> list[Effect]:
        """Decide what we can, if the decision is ours. We wait while more may come from a departing process,
        since others would report that too: another round follows when that process has ended."""
        if self.gone & ~self._survival.ended or self._decides != self.me:
            return []
        decided = self._survival.conclude(self.present)
        ours = decided.pop(self.me, [])
        settled = (self._settle(AgreedFinal(*each)) for each in ours)
        return self._tell(decided) + [effect for effects in settled for effect in effects]

    def _tell(self, finals: Finals) -> list[Effect]:
        return [Send(p, AgreedFinals(self.me, tuple(sorted(each)))) for p, each in sorted(finals.items())]

    def _gathered(self, clock: int, opened: _Round) -> Iterator[Effect]:
        """Keep the round of a message of ours, or close it if no proposal is missing."""
        dests, missing, highest = opened
        if missing:
            self._rounds[clock] = opened
            return
        del self._rounds[clock]
        if not dests:
            return  # all its destinations have left
        self._timestamp = max(self._timestamp, highest)
        final = AgreedFinal(self.me, clock, highest)
        yield from self.to_each(final, dests & ~(1 << self.me))
        if dests >> self.me & 1:
            yield from self._settle(final)

    def _settle(self, final: AgreedFinal) -> Iterator[Effect]:
        key = (final.sender, final.clock)
        entry = self._queue.get(key)
        if entry is None or entry.final or self.gone >> self.me & 1:
            return  # a duplicate, or we have left
        self._priority = max(self._priority, final.timestamp)
        self._timestamp = max(self._timestamp, final.timestamp)
        self._queue[key] = entry = entry._replace(timestamp=final.timestamp, final=True)
        heappush(self._heap, entry.place)
        self._survival.keep(entry.known, self.gone)
        yield from self._deliver_settled()
        if to := self._survival.say() & self.present:
            seen = AgreedSeen(self.me, self._heap[0][0] if self._heap else self._priority + 1)
            yield from self.to_each(seen, to)

    def _deliver_settled(self) -> Iterator[Effect]:
        while self._heap:
            head = self._queue.get(self._heap[0][1:])
            if head is not None and head.place == self._heap[0]:
                if not head.final:
                    return
                del self._queue[self._heap[0][1:]]
                self._survival.delivered(head.known)
                yield self.delivery(head.message)
            heappop(self._heap)

    @property
    def pending_count(self) -> int:
        return len(self._queue)  # listing what each waits for takes quadratic time and memory

    @property
    def pending_bytes(self) -> int:
        return sum(len(entry.message.payload) for entry in self._queue.values())

    def pending(self) -> list[Held]:
        """A message waits for each message at or before its place without a final timestamp; this may be
        itself."""
        held, tentative = [], []
        for entry in sorted(self._queue.values(), key=lambda entry: entry.place):
            if not entry.final:
                tentative.append((entry.message.sender, entry.message.clock))
            held.append(Held(entry.message, tuple(tentative), entry.since))
        return held

    def save(self) -> State:
        return super().save() | self._survival.save()

    def load(self, state: State) -> None:
        super().load(state)
        self._heap = sorted(entry.place for entry in self._queue.values())
        self._survival = Survival(self.me)
        self._survival.load(state)


def _check_timestamp(message: Any) -> None:
    if not 0 < message.timestamp < CLOCK_LIMIT - 1:
        raise refusal(message, f"cannot have timestamp {message.timestamp}")
