"""Incomplete orders, in which only some causally related messages are ordered (Rodrigues & Veríssimo, ICDCS
1995, and its report, chapter 6).

labelled     messages of one label are in causal order, messages of different labels in none
priorities   a message waits for earlier ones of its own or a higher priority, and for no others
managed      the application says which messages precede a message: it keeps and merges histories as values

Their `multicast` takes a label, a priority or a history beside destinations and payload. Nodes supply these;
drivers that compare complete orders cannot, so `protocols` does not list them, and `incomplete` does.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...core.destinations import unpack
from ...core.effects import Deliver, Send
from ...core.errors import LocalProtocolError
from ...core.orders import Order
from ..facts import Facts, MembershipChanges, Option, Qualifier, Waits, WireFormat
from ..holding import DelayQueue, Want
from ..machine import Effect, Held, MessageKey, Multicast
from ..process import Process, State, refusal
from ..snapshots import TABLE, Form, Part, kept, reader, table
from .carrier import CARRIERS, Carrier, HopHeader, InHop
from .extended_history import HistoryEntry, Timestamped, check_entries
from .ks import KsMessage

NO_EXPULSION = MembershipChanges(
    expulsions=False, at_expulsion="a message that only it could send again would be waited for"
)

MOST_LABELS = 1024
LABEL_BYTES = 255
"""The maximal length of a label in UTF-8."""


class LabelledMessage(InHop):
    """M(sender, clock) of a label; `hop` is the same message as the machine of that label numbers it."""

    label: str
    hop: KsMessage


class Labelled(Process):
    """Labels that are ordered independently of each other (Rodrigues & Veríssimo, chapter 6).

    Assumes    reliable links, FIFO or not, that may duplicate; processes that join get the next index.
    Promises   messages of one label are delivered in the causal order that the messages of this label alone
               define, and carry exactly what is necessary for it; messages of other labels never delay them.
    Leaves out any order between labels; within a label, order that only messages of other labels establish.
    Cost       a `ks` machine for each label that a process has sent or received; `most` limits their number.

    `pending` names messages by their clocks within the label.
    """

    facts = Facts(
        name="labelled",
        description="ks for each label: messages of one label in causal order, those of several in none",
        paper="Rodrigues & Veríssimo, ICDCS 1995, and its report, chapter 6",
        order=Order.NONE,
        options=(Option("most", "how many labels there may be"),),
        wire=WireFormat(71, "happened.wire.causal:INCOMPLETE"),
        qualifier=Qualifier(
            keyword="label",
            usual="",
            promise="causal among the messages of each label, by chains of that label",
        ),
        membership=NO_EXPULSION,
        waits=Waits(names_missing=False),  # `pending` uses the numbering within the label
    )

    _labels: dict[str, Carrier] = kept(CARRIERS)

    def __init__(self, me: int, n: int, *, most: int = MOST_LABELS) -> None:
        super().__init__(me, n)
        self._most = most

    def multicast(self, to: Iterable[int], payload: bytes, *, label: str = "") -> Multicast:
        dests = self.destinations(to, payload)
        if not isinstance(label, str) or not _is_short(label):
            raise LocalProtocolError(
                f"a label is text of up to {LABEL_BYTES} bytes in UTF-8, not {label!r:.50}"
            )
        if label not in self._labels and len(self._labels) >= self._most:
            raise LocalProtocolError(f"{label!r} would be one label more than the {self._most} allowed")
        carrier = self._labels[label] = self._carrier(label)
        clock = self.next_clock()
        hops = carrier.send(dests, payload)
        sends = [Send(d, LabelledMessage(self.me, clock, self.n, dests, label, hop)) for d, hop in hops]
        return Multicast(clock, [*sends])

    def receive(self, message: LabelledMessage) -> list[Effect]:
        self.check(message, LabelledMessage)
        sender, clock, _, dests, label, hop = message
        if (hop.sender, hop.dests) != (sender, dests):
            raise refusal(message, "carries another message of its label")
        if label not in self._labels and len(self._labels) >= self._most:
            raise refusal(message, f"would bring one label more than the {self._most} allowed: {label!r:.50}")
        carrier = self._carrier(label)
        delivered = carrier.receive(hop, HopHeader(sender, clock, dests), self.events + 1)
        self._labels[label] = carrier
        self.arrival()
        return [self.delivery(carried) for carried in delivered]

    def _carrier(self, label: str) -> Carrier:
        return self._labels.get(label) or Carrier(self.me, self.n)

    def pending(self) -> list[Held]:
        return [
            Held(LabelledMessage(*named[:2], self.n, named.dests, label, hop), waits_for, since)
            for label, carrier in self._labels.items()
            for named, hop, waits_for, since in carrier.pending()
        ]

    def join(self, process: int) -> list[Effect]:
        effects = super().join(process)
        for carrier in self._labels.values():
            carrier.join(process)
        return effects


def _is_short(label: str) -> bool:
    try:
        return len(label.encode()) <= LABEL_BYTES
    except UnicodeEncodeError:
        return False


PRIORITIES = 1 << 32
"""The number of priorities, half of them negative."""


class Preceding(NamedTuple):
    """A message in a history."""

    sender: int
    clock: int
    dests: int  # bit set
    told: int  # bit set: a message that follows this history follows the cause there in any case
    priority: int

    @property
    def entry(self) -> HistoryEntry:
        return HistoryEntry(*self[:4])


class CausalHistory:
    """A causal history as a value. Its content is the machine's concern; the application only merges."""

    __slots__ = ("_causes",)

    def __init__(self, causes: Iterable[Preceding] = ()) -> None:
        self._causes: dict[MessageKey, Preceding] = {}
        for cause in causes:
            known = self._causes.get(cause[:2])
            self._causes[cause[:2]] = cause if known is None else cause._replace(told=cause.told | known.told)

    def merge(self, *others: "CausalHistory") -> "CausalHistory":
        """The union of this history and the others, for a message that is to follow all of them."""
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
    """M(sender, clock) as it is sent to one destination."""

    priority: int
    previous: int  # the clock of its sender's previous message to this destination; 0: none
    causes: tuple[Preceding, ...]  # sorted
    payload: bytes

    @property
    def entries(self) -> tuple[HistoryEntry, ...]:
        return tuple(cause.entry for cause in self.causes)


class OrderedDelivery(NamedTuple):
    """What the application gets: a message, and the history that a message which follows it must have."""

    sender: int
    clock: int
    payload: bytes
    history: CausalHistory


class _Deliveries(Part):
    """Exactly which messages of one sender were delivered here. Each message names its predecessor, so one
    clock covers those without a gap; only messages that overtook others are kept one by one."""

    _upto: int = kept()
    _early: dict[int, int] = kept(TABLE)  # clock of a delivered message, by its predecessor's

    def __init__(self) -> None:
        self._begin(0)

    def __contains__(self, clock: int) -> bool:
        return clock <= self._upto or clock in self._early.values()

    def add(self, previous: int, clock: int) -> None:
        self._early[previous] = clock
        while self._upto in self._early:
            self._upto = self._early.pop(self._upto)


def _lane(sender: int, clock: int) -> Want:
    """Messages of a sender arrive in any order, so each message has a lane of its own."""
    return clock << 32 | sender, 1


class ManagedProcess(Process):
    """Causal histories managed by the application, as an abstract data type with one operation, `merge`.

    Assumes    reliable links, FIFO or not, that may duplicate; processes that join get the next index. Every
               process hears of a departure before the next message.
    Promises   a message to d is delivered there after every message to d of the same or a higher priority in
               the history it was sent with; nothing else holds it back.
    Leaves out any other order, even that of one sender: two messages that share no history may overtake each
               other.
    Invariant  for a message n in the past of a history h and a destination r of n, one of three holds: h
               names n, and r is not in the set `told` of n; or n was delivered to r before h was made; or a
               later message to r of the same priority, with n in its own past, is in the past of h as well. A
               message that follows h then follows n at r: by name, for certain, or through the later one.

    A history stands for a set of messages and all messages in their own histories. A send returns a history
    that holds the new message too; each delivery comes with its message's history. The application keeps the
    histories it wants, merges them, sends with the result, and may hand histories on by other means.

    Few rules of extended causal histories apply. A message may not leave out what its recipient was told
    before (R7): the application may have dropped that, and each history it gets must be complete by itself.
    The delivery of a later message tells nothing of an earlier one of the same sender, so deliveries are
    recorded exactly, not as one clock (R5), and nothing is inferred from the order of a sender (R6.3). R8
    remains: n is dropped once all its destinations were told. Which were told is part of the value, since
    another history knows of others.
    """

    _sent: dict[int, int] = kept(TABLE)  # per destination, the clock of the last message to it
    _delivered: dict[int, _Deliveries] = kept(
        table(
            lambda by_sender: tuple((s, *each.state()) for s, each in sorted(by_sender.items())),
            lambda by_sender: {s: _Deliveries().resume(state) for s, *state in by_sender},
        )
    )

    def __init__(self, me: int, n: int) -> None:
        super().__init__(me, n)
        self._parking: DelayQueue[ManagedMessage] = DelayQueue()

    def send(
        self, to: Iterable[int], payload: bytes, history: CausalHistory = NOTHING, *, priority: int = 0
    ) -> tuple[list[Send[ManagedMessage]], CausalHistory]:
        """Send after this history; returns the sends, and the history that holds the new message too."""
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
        """Take in a message; returns the messages that can be delivered now, in order."""
        self._check(message)
        since = self.arrival()
        if self._is_delivered(message.sender, message.clock) or message in self._parking:
            return []  # a duplicate made by the network
        want = self._lacks(message)
        if want is not None:
            self._parking.hold(message, want, since)
            return []
        return [self._deliver(message), *self._released()]

    def _check(self, message: ManagedMessage) -> None:
        self.check(message, ManagedMessage)
        if not 0 <= message.previous < message.clock:
            raise refusal(message, f"comes after M({message.sender}, {message.previous}) of its sender")
        check_entries(message, message.entries, (message.sender, message.clock), self)

    def _released(self) -> Iterator[OrderedDelivery]:
        held = self._parking.held
        for name in self._parking.woken():
            want = self._lacks(held[name].message)
            if want is not None:
                self._parking.park(name, want)
            else:
                yield self._deliver(held.pop(name).message)

    def _deliver(self, message: ManagedMessage) -> OrderedDelivery:
        sender, clock, _, dests, priority, previous, causes, payload = message
        self._delivered.setdefault(sender, _Deliveries()).add(previous, clock)
        self._parking.reached(*_lane(sender, clock))
        self.delivery(message)
        history = self._after(CausalHistory(causes), Preceding(sender, clock, dests, 0, priority))
        return OrderedDelivery(sender, clock, payload, history)

    def _lacks(self, message: ManagedMessage) -> Want | None:
        return next((_lane(*name) for name in self._missing(message)), None)

    def _missing(self, message: ManagedMessage) -> Iterator[MessageKey]:
        for sender, clock, dests, _, priority in message.causes:
            follows = priority >= message.priority and dests >> self.me & 1
            if follows and not self._is_delivered(sender, clock):
                yield sender, clock

    def _is_delivered(self, sender: int, clock: int) -> bool:
        return sender in self._delivered and clock in self._delivered[sender]

    def _after(self, history: CausalHistory, last: Preceding) -> CausalHistory:
        """The history plus the message sent with it, updated, without messages of which all are told (R8)."""
        itself, gone, left = 1 << self.me, self.gone, []
        for cause in (*history, last):
            told = cause.told
            if cause.priority == last.priority and cause is not last:
                told |= last.dests
            if cause.dests & itself and self._is_delivered(cause.sender, cause.clock):
                told |= itself
            if cause.dests & ~told & ~gone:
                left.append(cause._replace(told=told))
        return CausalHistory(left)

    def pending(self) -> list[Held]:
        return [Held(message, tuple(self._missing(message)), since) for message, since in self._parking]

    def save(self) -> State:
        return super().save() | {"held": tuple(self._parking)}

    def load(self, state: State) -> None:
        super().load(state)
        held = [(reader(ManagedMessage)(fields), since) for fields, since in state["held"]]
        self._parking.refill(held, self._lacks)


class ManagedMulticast(ManagedProcess):
    """The protocol as a machine for drivers: `after` is a keyword of `multicast`, and `history_of` gives the
    history of a message right after it was sent or delivered."""

    facts = Facts(
        name="managed-histories",
        description="the application says what a message comes after",
        paper="Rodrigues & Veríssimo, ICDCS 1995, and its report, chapter 6",
        order=Order.NONE,
        wire=WireFormat(71, "happened.wire.causal:INCOMPLETE"),
        qualifier=Qualifier(
            keyword="after",
            promise="after the messages of the history that a message is sent with, and after no other",
        ),
        membership=NO_EXPULSION,
    )

    def __init__(self, me: int, n: int) -> None:
        super().__init__(me, n)
        self._histories: dict[MessageKey, CausalHistory] = {}  # of the last input only; not saved

    def multicast(self, to: Iterable[int], payload: bytes, *, after: CausalHistory = NOTHING) -> Multicast:
        sends, history = self.send(to, payload, after)
        self._histories = {(self.me, self.clock): history}
        return Multicast(self.clock, [*sends])

    def receive(self, message: ManagedMessage) -> list[Effect]:
        delivered = self.admit(message)
        self._histories = {(each.sender, each.clock): each.history for each in delivered}
        return [Deliver(*each[:3]) for each in delivered]

    def history_of(self, sender: int, clock: int) -> CausalHistory:
        """The history that comes with a message which the last input sent or delivered."""
        return self._histories[sender, clock]


class ManagedHistories(ManagedProcess):
    """The protocol for applications that drive it directly: histories are arguments and results."""

    facts = ManagedMulticast.facts
    receive = ManagedProcess.admit


class Priorities(ManagedProcess):
    """Priorities are whole numbers, the larger the more urgent: urgent messages do not wait for others.

    Promises   a message to d is delivered after every causally earlier message to d of the same or a higher
               priority, whatever messages form the chain between them, and waits for no other. The report
               asks only for order within a priority and that no high priority waits for a low one; that low
               priorities wait for high ones costs nothing more.
    Leaves out urgency in the network: the driver decides which packet travels first.

    Each process has one history, into which all its sends and deliveries are merged. With a single priority
    this is complete causal order.
    """

    facts = Facts(
        name="priorities",
        description="a message waits for earlier ones of its own or a higher priority, and for no other",
        paper="Rodrigues & Veríssimo, ICDCS 1995, and its report, chapter 6",
        order=Order.NONE,
        wire=WireFormat(71, "happened.wire.causal:INCOMPLETE"),
        qualifier=Qualifier(
            keyword="priority",
            usual=0,
            promise="causal, but that a message waits for none of a lower priority",
        ),
        membership=NO_EXPULSION,
        waits=Waits(only_for_past=True),
    )

    _past: CausalHistory = kept(
        Form(lambda n: NOTHING, tuple, lambda past: CausalHistory(Preceding(*cause) for cause in past))
    )

    def multicast(self, to: Iterable[int], payload: bytes, *, priority: int = 0) -> Multicast:
        sends, self._past = self.send(to, payload, self._past, priority=priority)
        return Multicast(self.clock, [*sends])

    def receive(self, message: ManagedMessage) -> list[Effect]:
        delivered = self.admit(message)
        self._past = self._past.merge(*(each.history for each in delivered))
        return [Deliver(*each[:3]) for each in delivered]

    def history(self) -> CausalHistory:
        return self._past
