"""Skeen's agreement on a timestamp in three phases, as both `agreed` and `causal-total` use it.

The sender of a message offers a timestamp, each destination proposes one at least as large, the largest
becomes final; destinations deliver in the order of (final timestamp, sender, clock).

The textbook chapter of docs/papers.md prints this algorithm (Fig. 2.9) in a form in which two processes can
disagree on two messages. It has three repairs here, each of them needed:
  - propose max(priority + 1, ts), so that no two proposals of one process are equal;
  - raise the priority on FINAL too, so that a later proposal is beyond every message delivered;
  - order by (timestamp, sender, clock), so that equal timestamps are no tie.

Invariant  a message's final timestamp is at least what each destination proposed for it, and every later
           proposal of that destination is larger. So nothing that is still to come can be ordered before
           the head of the queue once that has its final timestamp.
"""

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any, NamedTuple

from ...core.destinations import unpack
from ...core.effects import Send
from ...core.lanes import CLOCK_LIMIT
from ..facts import WireFormat
from ..machine import Effect, Held, MessageKey
from ..messages import Application, Control
from ..process import Process, State, refusal

AT_LEAVE = "is not waited for to propose; what it sent is decided and delivered, what it was sent may be not"
NO_EXPULSION = "it may have told the final timestamp of a message to some of its destinations only"
"""What the facts of both protocols say."""

WIRE = WireFormat(36, "happened.wire.three_phase")


class _Revise(NamedTuple):
    sender: int
    clock: int  # the tag of the textbook
    n: int
    dests: int  # bit set
    number: int  # 1, 2, … among the messages of this sender to this destination
    timestamp: int
    payload: bytes


class AgreedMessage(_Revise, Application):
    """Phase 1, REVISE_TS: the message with its sender's timestamp."""

    __slots__ = ()

    def size(self) -> tuple[int, int]:
        return 1, 0

    def model_bytes(self) -> int:
        return 4 + 4


class _Proposed(NamedTuple):
    sender: int
    clock: int
    by: int
    timestamp: int


class AgreedProposal(_Proposed, Control):
    """Phase 2, PROPOSED_TS: the timestamp that process `by` proposes for M(sender, clock)."""

    __slots__ = ()

    @property
    def via(self) -> int:
        return self.by

    def model_bytes(self) -> int:
        return 4 + 2


class _Final(NamedTuple):
    sender: int
    clock: int
    timestamp: int


class AgreedFinal(_Final, Control):
    """Phase 3, FINAL_TS: the timestamp of M(sender, clock)."""

    __slots__ = ()

    @property
    def via(self) -> int:
        return self.sender

    def model_bytes(self) -> int:
        return 4


class _Round(NamedTuple):
    """A message of ours that lacks proposals."""

    dests: int
    missing: int  # who has yet to propose, bit set
    highest: int


class _Entry(NamedTuple):
    message: AgreedMessage
    timestamp: int
    final: bool
    since: int

    @property
    def place(self) -> tuple[int, int, int]:
        return self.timestamp, self.message.sender, self.message.clock


class ThreePhase(Process):
    """Both sides of the algorithm; a protocol says when the agreement on a multicast begins.

    A process that leaves still proposes for what is on its way to it; whoever has heard that it leaves
    does not wait for that, and then does not tell it the final timestamp either.
    """

    def __init__(self, me: int, n: int) -> None:
        super().__init__(me, n)
        self._timestamp = 0  # the textbook's `clock`
        self._priority = 0
        self._numbers: dict[int, int] = {}  # per destination how many messages we sent it
        self._rounds: dict[int, _Round] = {}  # by clock
        self._queue: dict[MessageKey, _Entry] = {}
        self._heap: list[tuple[int, int, int]] = []  # places; those no entry has any more are skipped
        self._seen: dict[int, tuple[int, frozenset[int]]] = {}  # per sender: all up to here, and these beyond

    @property
    def settled(self) -> bool:
        """Whether every message of ours has its final timestamp."""
        return not self._rounds

    def begin(self, clock: int, dests: int, payload: bytes) -> Iterator[Effect]:
        me = self.me
        self._timestamp += 1
        present = dests & ~self.excused | dests & 1 << me
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

    def _react(self, message: AgreedMessage | AgreedProposal | AgreedFinal) -> Iterator[Effect]:
        if isinstance(message, AgreedProposal):
            yield from self._proposed(message)
        elif isinstance(message, AgreedFinal):
            yield from self._settle(message)
        elif self._is_new(message):
            timestamp = self._propose(message)
            proposal = AgreedProposal(message.sender, message.clock, self.me, timestamp)
            yield Send(message.sender, proposal)

    def _check(self, message: Any) -> None:
        if not isinstance(message, AgreedProposal | AgreedFinal):
            self.check(message, AgreedMessage)
            if message.sender == self.me or message.number < 1:
                raise refusal(message, "is our own, or does not say which of its sender's it is")
        elif isinstance(message, AgreedProposal) and message.sender != self.me:
            raise refusal(message, f"is not ours, and process {message.by} proposes us a timestamp for it")
        elif isinstance(message, AgreedProposal) and message.clock > self.clock:
            raise refusal(message, "was never sent")
        elif isinstance(message, AgreedFinal):
            entry = self._queue.get((message.sender, message.clock))
            if entry is not None and message.timestamp < entry.timestamp:
                raise refusal(message, f"is final at {message.timestamp}; we proposed {entry.timestamp}")
        if not 0 < message.timestamp < CLOCK_LIMIT - 1:
            raise refusal(message, f"cannot have timestamp {message.timestamp}")

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
            return  # proposed twice
        dests, missing, highest = open_round
        missing &= ~(1 << proposal.by)
        yield from self._gathered(proposal.clock, _Round(dests, missing, max(highest, proposal.timestamp)))

    def go_on_without(self, process: int) -> list[Effect]:
        effects, its_bit = super().go_on_without(process), 1 << process
        if process == self.me:
            return effects
        for clock, (dests, missing, highest) in list(self._rounds.items()):
            if missing & its_bit:
                effects += self._gathered(clock, _Round(dests & ~its_bit, missing & ~its_bit, highest))
        return effects

    def _gathered(self, clock: int, opened: _Round) -> Iterator[Effect]:
        """Keep a round of ours, or close it if nothing is missing."""
        dests, missing, highest = opened
        if missing:
            self._rounds[clock] = opened
            return
        del self._rounds[clock]
        if not dests:
            return  # it was for somebody who has left
        self._timestamp = max(self._timestamp, highest)
        final = AgreedFinal(self.me, clock, highest)
        for d in unpack(dests & ~(1 << self.me)):
            yield Send(d, final)
        if dests >> self.me & 1:
            yield from self._settle(final)

    def _settle(self, final: AgreedFinal) -> Iterator[Effect]:
        key = (final.sender, final.clock)
        entry = self._queue.get(key)
        if entry is None or entry.final:
            return  # told twice
        self._priority = max(self._priority, final.timestamp)
        self._timestamp = max(self._timestamp, final.timestamp)
        self._queue[key] = entry = entry._replace(timestamp=final.timestamp, final=True)
        heappush(self._heap, entry.place)
        while self._heap:
            head = self._queue.get(self._heap[0][1:])
            if head is not None and head.place == self._heap[0]:
                if not head.final:
                    return
                del self._queue[self._heap[0][1:]]
                yield self.delivery(head.message)
            heappop(self._heap)

    @property
    def pending_count(self) -> int:
        return len(self._queue)  # listing what each waits for takes time and memory in the square of that

    def pending(self) -> list[Held]:
        """A message waits for those at or before its place that lack a final timestamp; if it is one of them,
        for itself."""
        held, tentative = [], []
        for entry in sorted(self._queue.values(), key=lambda entry: entry.place):
            if not entry.final:
                tentative.append((entry.message.sender, entry.message.clock))
            held.append(Held(entry.message, tuple(tentative), entry.since))
        return held

    def save(self) -> State:
        phases = (
            self._timestamp,
            self._priority,
            sorted(self._numbers.items()),
            sorted((clock, *opened) for clock, opened in self._rounds.items()),
            [entry for _, entry in sorted(self._queue.items())],
            sorted((sender, floor, sorted(beyond)) for sender, (floor, beyond) in self._seen.items()),
        )
        return {"phases": phases}

    def load(self, state: State) -> None:
        timestamp, priority, numbers, rounds, queue, seen = state["phases"]
        entries = [_Entry(AgreedMessage(*message), *fields) for message, *fields in queue]
        open_rounds = {clock: _Round(*fields) for clock, *fields in rounds}
        beyond = {sender: (floor, frozenset(late)) for sender, floor, late in seen}
        self._numbers = dict(numbers)
        self._timestamp, self._priority, self._rounds, self._seen = timestamp, priority, open_rounds, beyond
        self._queue = {(entry.message.sender, entry.message.clock): entry for entry in entries}
        self._heap = sorted(entry.place for entry in entries)
