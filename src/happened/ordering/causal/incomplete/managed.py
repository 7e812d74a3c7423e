"""Causal histories managed by the application, as an abstract data type with one operation, `merge`.

Assumes    reliable links, FIFO or not, that may duplicate; processes that join get the next index. Everybody
           has heard of a departure before the next message.
Promises   a message is delivered to d after every message to d in the history it was sent with that has its
           priority or a higher one; nothing else holds it back.
Leaves out any other order, that of one sender included: two messages that share no history may overtake.
Invariant  for a message n in the past of a history h and a process r it was sent to, one of three holds: h
           names n, and r is not among those told of it; or n was delivered to r before h was made; or a later
           message to r of the same priority, with n in its own past, is in the past of h as well. Whoever
           follows h then follows n at r: by name, for certain, or through that later message.

A history stands for a set of messages and all that is in their own histories. Sending gives one that holds
the new message too; each delivery comes with that of its message. The application keeps those it wants,
merges them, sends with the result, may keep several apart, and may even pass them on by other means.

Of the rules of extended causal histories few survive. A message may not leave out what its recipient was told
before (R7): the application may have dropped that, and the history it is given must be whole by itself. That
a later message of a sender was delivered tells nothing of an earlier one, so deliveries are kept exactly, not
as one clock (R5), and nothing is inferred from the order of a sender (R6.3). What is left is R8: n goes once
all it was sent to are told. Who was told is part of the value, for another history knows of others.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ....core.destinations import unpack
from ....core.effects import Deliver, Send
from ....core.errors import LocalProtocolError
from ....core.orders import Order
from ...facts import Facts, MembershipChanges, Qualifier, WireFormat
from ...machine import Effect, Held, MessageKey, Multicast
from ...process import Process, State, refusal
from ..extended_history import HistoryEntry, Timestamped, check_entries

FACTS = Facts(
    name="managed-histories",
    description="the application says what a message comes after",
    paper="Rodrigues & Veríssimo, ICDCS 1995, and its report, chapter 6",
    order=Order.NONE,
    wire=WireFormat(71, "happened.wire.causal:INCOMPLETE"),
    qualifier=Qualifier(
        keyword="after",
        promise="after the messages of the history that a message is sent with, and after no other",
    ),
    membership=MembershipChanges(
        expulsions=False, at_expulsion="a message that only it could send again would be waited for"
    ),
)

PRIORITIES = 1 << 32
"""How many there are, half of them below zero."""


class Preceding(NamedTuple):
    """A message in a history."""

    sender: int
    clock: int
    dests: int  # bit set
    told: int  # bit set: those at whom whoever follows this history follows the message anyway
    priority: int

    @property
    def entry(self) -> HistoryEntry:
        return HistoryEntry(self.sender, self.clock, self.dests, self.told)


class CausalHistory:
    """A value. What it is made of concerns the machine; the application merges."""

    __slots__ = ("_causes",)

    def __init__(self, causes: Iterable[Preceding] = ()) -> None:
        self._causes: dict[MessageKey, Preceding] = {}
        for cause in causes:
            known = self._causes.get(cause[:2])
            self._causes[cause[:2]] = cause if known is None else cause._replace(told=cause.told | known.told)

    def merge(self, *others: "CausalHistory") -> "CausalHistory":
        """What comes after this history and the others."""
        return CausalHistory(cause for history in (self, *others) for cause in history)

    def __iter__(self) -> Iterator[Preceding]:
        return iter(sorted(self._causes.values()))

    def __len__(self) -> int:
        return len(self._causes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CausalHistory) and self._causes == other._causes

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        names = ", ".join(f"M({cause.sender}, {cause.clock})" for cause in self)
        return f"<CausalHistory {names or 'of nothing'}>"


NOTHING = CausalHistory()


class ManagedMessage(Timestamped):
    """M(sender, clock) as one destination gets it."""

    priority: int
    previous: int  # the clock of its sender's message to the same destination before this one; 0: none
    causes: tuple[Preceding, ...]  # sorted
    payload: bytes

    @property
    def entries(self) -> tuple[HistoryEntry, ...]:
        return tuple(cause.entry for cause in self.causes)


class OrderedDelivery(NamedTuple):
    """What the application gets: a message, and the history of whatever is to come after it."""

    sender: int
    clock: int
    payload: bytes
    history: CausalHistory


class ManagedProcess(Process):
    """A process that sends after a history, whoever keeps the histories."""

    def __init__(self, me: int, n: int) -> None:
        super().__init__(me, n)
        self._sent: dict[int, int] = {}  # to each process: the clock of the last message to it
        self._delivered: dict[int, _Deliveries] = {}
        self._held: dict[MessageKey, tuple[ManagedMessage, int]] = {}
        self._watched: dict[MessageKey, list[MessageKey]] = {}  # a held message waits under one that it lacks

    def send_after(
        self, history: CausalHistory, to: Iterable[int], payload: bytes, priority: int
    ) -> tuple[list[Send[ManagedMessage]], CausalHistory]:
        """Send after this history; what to do, and the history that holds the new message too."""
        dests = self.destinations(to, payload)
        if not isinstance(priority, int) or not -PRIORITIES // 2 <= priority < PRIORITIES // 2:
            raise LocalProtocolError(f"a priority is a whole number of 32 bits, not {priority!r:.50}")
        for cause in history:
            if cause.sender >= self.n or cause.dests >> self.n:
                raise LocalProtocolError(
                    f"the history has M({cause.sender}, {cause.clock}) of processes that have not joined here"
                )
        clock = self.next_clock()
        causes = self._stamp(history, dests)
        sends = []
        for d in unpack(dests):
            previous = self._sent.get(d, 0)
            self._sent[d] = clock
            message = ManagedMessage(self.me, clock, self.n, dests, priority, previous, causes, payload)
            sends.append(Send(d, message))
        return sends, self._after(history, Preceding(self.me, clock, dests, 0, priority))

    def _stamp(self, history: CausalHistory, dests: int) -> tuple[Preceding, ...]:
        return tuple(history)

    def admit(self, message: ManagedMessage) -> list[OrderedDelivery]:
        """What can be delivered now that this message is here, in order."""
        self._check(message)
        since = self.arrival()
        name = (message.sender, message.clock)
        if self._is_delivered(*name) or name in self._held:
            return []  # a duplicate made by the network
        self._held[name] = message, since
        return list(self._released([name]))

    def _check(self, message: ManagedMessage) -> None:
        self.check(message, ManagedMessage)
        if not 0 <= message.previous < message.clock:
            raise refusal(message, f"comes after M({message.sender}, {message.previous}) of its sender")
        check_entries(message, message.entries, (message.sender, message.clock), self)

    def _released(self, names: list[MessageKey]) -> Iterator[OrderedDelivery]:
        """Deliver those of these held messages that lack nothing, and whatever that releases."""
        for name in names:  # grows while we go
            message, _ = self._held[name]
            missing = next(self._missing(message), None)
            if missing is not None:
                self._watched.setdefault(missing, []).append(name)
                continue
            del self._held[name]
            yield self._deliver(message)
            names += sorted(self._watched.pop(name, []))  # as a machine restored meanwhile would

    def _deliver(self, message: ManagedMessage) -> OrderedDelivery:
        sender, clock, _, dests, priority, previous, causes, payload = message
        self._delivered.setdefault(sender, _Deliveries()).add(previous, clock)
        self.delivery(message)
        history = self._after(CausalHistory(causes), Preceding(sender, clock, dests, 0, priority))
        return OrderedDelivery(sender, clock, payload, history)

    def _missing(self, message: ManagedMessage) -> Iterator[MessageKey]:
        for sender, clock, dests, _, priority in message.causes:
            if (
                priority >= message.priority
                and dests >> self.me & 1
                and not self._is_delivered(sender, clock)
            ):
                yield sender, clock

    def _is_delivered(self, sender: int, clock: int) -> bool:
        return sender in self._delivered and clock in self._delivered[sender]

    def _after(self, history: CausalHistory, last: Preceding) -> CausalHistory:
        """A history and a message sent with it, as we see them now, without what all were told of (R8)."""
        itself, gone, kept = 1 << self.me, self.gone, []
        for cause in (*history, last):
            told = cause.told
            if cause.priority == last.priority and cause is not last:
                told |= last.dests
            if cause.dests & itself and self._is_delivered(cause.sender, cause.clock):
                told |= itself
            if cause.dests & ~told & ~gone:
                kept.append(cause._replace(told=told))
        return CausalHistory(kept)

    def pending(self) -> list[Held]:
        return [Held(message, tuple(self._missing(message)), since) for message, since in self._held.values()]

    def save(self) -> State:
        return {
            "sent": tuple(sorted(self._sent.items())),
            "delivered": tuple((s, *d.state()) for s, d in sorted(self._delivered.items())),
            "held": tuple((tuple(message), since) for message, since in self._held.values()),
        }

    def load(self, state: State) -> None:
        sent = dict(state["sent"])
        delivered = {s: _Deliveries(upto, dict(early)) for s, upto, early in state["delivered"]}
        held = [(_message(fields), since) for fields, since in state["held"]]
        self._sent, self._delivered = sent, delivered
        self._held = {(message.sender, message.clock): (message, since) for message, since in held}
        self._watched = {}
        for name, (message, _) in self._held.items():
            for missing in self._missing(message):
                self._watched.setdefault(missing, []).append(name)
                break


class ManagedHistories(ManagedProcess):
    """One process."""

    facts = FACTS

    def send(
        self, to: Iterable[int], payload: bytes, history: CausalHistory = NOTHING, *, priority: int = 0
    ) -> tuple[list[Send[ManagedMessage]], CausalHistory]:
        """Send after this history; what to do, and the history that holds the new message too."""
        return self.send_after(history, to, payload, priority)

    def receive(self, message: ManagedMessage) -> list[OrderedDelivery]:
        return self.admit(message)


class ManagedMulticast(ManagedProcess):
    """The same in the shape that drivers know: `after` is a keyword, and the history that comes with a
    message is asked for right after it was sent or delivered."""

    facts = FACTS

    def __init__(self, me: int, n: int) -> None:
        super().__init__(me, n)
        self._histories: dict[MessageKey, CausalHistory] = {}  # of the last input alone: no part of the state

    def multicast(self, to: Iterable[int], payload: bytes, *, after: CausalHistory = NOTHING) -> Multicast:
        sends, history = self.send_after(after, to, payload, 0)
        self._histories = {(self.me, self.clock): history}
        return Multicast(self.clock, [*sends])

    def receive(self, message: ManagedMessage) -> list[Effect]:
        delivered = self.admit(message)
        self._histories = {(each.sender, each.clock): each.history for each in delivered}
        return [Deliver(*each[:3]) for each in delivered]

    def history_of(self, sender: int, clock: int) -> CausalHistory:
        """That of a message which the last input sent or delivered."""
        return self._histories[sender, clock]


class _Deliveries:
    """Exactly which messages of one sender were delivered here.

    Each tells its predecessor, so those without a gap are one clock; only what overtook is kept one by one.
    """

    __slots__ = ("_early", "_upto")

    def __init__(self, upto: int = 0, early: dict[int, int] | None = None) -> None:
        self._upto = upto
        self._early = early or {}  # the clock of each delivered message, by that of its predecessor

    def __contains__(self, clock: int) -> bool:
        return clock <= self._upto or clock in self._early.values()

    def add(self, previous: int, clock: int) -> None:
        self._early[previous] = clock
        while self._upto in self._early:
            self._upto = self._early.pop(self._upto)

    def state(self) -> tuple[int, tuple[tuple[int, int], ...]]:
        return self._upto, tuple(sorted(self._early.items()))


def _message(fields: tuple[Any, ...]) -> ManagedMessage:
    message = ManagedMessage(*fields)
    return message._replace(causes=tuple(Preceding(*cause) for cause in message.causes))
