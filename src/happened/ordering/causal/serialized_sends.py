"""Causal order with a single entry, or one for each destination, where sends are serialized (Kshemkalyani &
Singhal 1998, §7.1): `serialized-broadcast` and `serialized-multicast`.

Assumes    sends are totally ordered by happened-before, say by mutual exclusion: a sender has every earlier
           send in its causal past, by deliveries or because `follow` told it so with the right to send.
           Reliable links, FIFO or not, that may duplicate. In `serialized-multicast`, processes that join get
           the next index; in `serialized-broadcast` every present process is addressed, with or without the
           sender, and processes may leave, but none can join.
Promises   causal order: each message names the one before it, globally or at each destination. Broadcasts
           have one total order.
           A sender cannot detect that the assumption is violated. If it is, two broadcasts name the same
           predecessor; every process gets both and refuses the second, so no order is ever broken. Of two
           multicasts that violate it neither knows the other; a process that knows one refuses the other.
Leaves out the mutual exclusion itself (token.py); recovery once serialization is broken.
Invariant  the messages to one process are a chain of links, in which each follows exactly one other. `_last`
           is the last link passed, and every link before it was passed; `_waiting` maps a link that is not
           passed to its successor, so a message costs O(1) whenever it comes. If two messages follow one
           link, sends were not serialized: the second is refused and changes nothing. Our own broadcast is a
           link like any other and is passed in its turn, after its predecessor: if it were passed when sent,
           a successor of it could be delivered before a predecessor. `_latest` is the most recent broadcast
           in our causal past; in `serialized-multicast`, per destination, the most recent message to it.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Generic, TypeVar

from ...core.destinations import unpack
from ...core.errors import LocalProtocolError
from ..facts import BROADCAST, Assumptions, CopyTravel, Facts, MembershipChanges, Waits, WireFormat
from ..machine import Effect, Held, Multicast
from ..messages import Application, Entry, broadcasts
from ..process import Process, refusal
from ..snapshots import NUMBERS, TABLE, Form, kept, reader, table, valued

Link = tuple[int, int]
"""(clock, sender) of a message; the greater is more recent, since clocks follow Lamport's rule."""

NOTHING: Link = (0, 0)

NO_EXPULSION = (
    "a message that nobody but the next one names may be lost with its sender, and with it what it followed"
)
"""Why a protocol for serialized sends cannot expel a process."""

M = TypeVar("M", bound=Any)


def link_of(message: Any) -> Link:
    return message.clock, message.sender


def waiting(kind: type) -> Form:
    """Messages of this type, keyed by the link that each follows, with the local event of each arrival."""
    return table(
        lambda held: tuple((after, *each) for after, each in held.items()),
        lambda links: {after: (reader(kind)(fields), since) for after, fields, since in links},
    )


class SerializedProcess(Process, Generic[M]):
    """A process of a protocol whose sends are serialized. A protocol supplies `stamp`, `follow`, `_waiting`,
    and the abstract methods below."""

    message_type: ClassVar[type]

    _last: Link = kept(valued(NOTHING), within="chain")
    _passed: list[int] = kept(
        NUMBERS, within="chain"
    )  # per sender, the clock of its last link that was passed
    _waiting: dict[Link, tuple[M, int]]

    @property
    @abstractmethod
    def latest(self) -> Any:
        """What this process knows of earlier sends, to be handed over with the right to send."""

    @abstractmethod
    def before(self, message: M) -> Link:
        """The message that this one follows here; raises if it cannot follow any."""

    @abstractmethod
    def check_serialized(self, message: M) -> None:
        """Raise unless the message knows our latest message or the reverse. Of two serialized sends, the
        later knows the earlier."""

    @abstractmethod
    def pass_link(self, message: M) -> list[Effect]:
        """Deliver this message, whose turn it is, or pass it without delivery."""

    @property
    @abstractmethod
    def newest(self) -> Link:
        """The most recent message known here."""

    @property
    def right(self) -> Link:
        """The link that gives the right to send, if no more recent message waits here."""
        return self.newest

    @property
    def coming_clock(self) -> int:
        return max(self.clock, self.newest[0]) + 1

    def multicast(self, to: Iterable[int], payload: bytes) -> Multicast:
        dests = self.address(to, payload)
        clock, sender = max((link_of(message) for message, _ in self._waiting.values()), default=NOTHING)
        if (clock, sender) > self.right:
            raise LocalProtocolError(f"M({sender}, {clock}) was sent before: not serialized")
        clock = self.next_clock(after=self.newest[0])
        return Multicast(clock, self.stamp(clock, dests, payload))

    def receive(self, message: M) -> list[Effect]:
        self.check(message, self.message_type)
        after = self.before(message)
        known = self._waiting.get(after)
        duplicate = message.clock <= self._passed[message.sender] or (
            known is not None and link_of(known[0]) == link_of(message)
        )
        if not duplicate:
            self._check_link(message, after)
            self.check_serialized(message)
        since = self.arrival()
        if duplicate:
            return []
        self._waiting[after] = message, since
        return self.pass_links()

    def _check_link(self, message: M, after: Link) -> None:
        clock, sender = after
        if clock >= message.clock:
            raise refusal(message, f"is not later than M({sender}, {clock}), which it follows")
        is_passed = clock <= self._passed[sender] and after != self._last
        if is_passed or after in self._waiting:
            raise refusal(message, f"follows M({sender}, {clock}) here, as another does: not serialized")

    def pass_links(self) -> list[Effect]:
        """Pass the messages whose turn it is, in order."""
        effects: list[Effect] = []
        while self._last in self._waiting:
            message, _ = self._waiting.pop(self._last)
            self._last = link_of(message)
            self._passed[message.sender] = message.clock
            effects += self.pass_link(message)
        return effects


class SerializedBroadcast(Application):
    unit_bytes = 0
    after: Link  # the previous broadcast
    payload: bytes

    def about(self) -> Iterator[Entry]:
        clock, sender = self.after
        return broadcasts([(sender, clock)] if clock else [], self.dests)


class SerializedBroadcasts(SerializedProcess[SerializedBroadcast]):
    facts = Facts(
        name="serialized-broadcast",
        description="one entry; broadcasts must be serialized (a token, a lock): others are refused",
        paper="Kshemkalyani & Singhal, Distributed Computing 11(2), 1998, §7.1",
        wire=WireFormat(18, "happened.wire.causal:SERIALIZED_BROADCAST"),
        assumes=Assumptions(casts=frozenset({BROADCAST}), serialized=True),
        waits=Waits(only_for_past=True),
        membership=MembershipChanges(joins=False, expulsions=False, at_expulsion=NO_EXPULSION),
        copies=CopyTravel(common_frame=True),
    )
    message_type = SerializedBroadcast

    _waiting = kept(waiting(SerializedBroadcast), within="chain")
    _latest: Link = kept(valued(NOTHING))  # the most recent broadcast known

    @property
    def latest(self) -> Link:
        return self._latest

    newest = latest

    def follow(self, latest: Link) -> None:
        clock, sender = latest
        if clock < 0 or not 0 <= sender < self.n:
            raise LocalProtocolError(f"{latest!r} does not name a broadcast")
        self._latest = max(self._latest, latest)

    address = Process.everybody

    def stamp(self, clock: int, dests: int, payload: bytes) -> list[Effect]:
        message = SerializedBroadcast(self.me, clock, self.n, dests, self._latest, payload)
        self._latest = link_of(message)
        effects = self.to_each(message, dests)
        if self._stays_out(message):
            self._waiting[message.after] = message, self.events
            effects += self.pass_links()
        return effects

    def before(self, message: SerializedBroadcast) -> Link:
        if message.n != self.n:
            raise refusal(message, f"comes from a group of {message.n} and ours has {self.n}")
        return message.after

    def check_serialized(self, message: SerializedBroadcast) -> None:
        if message.after < self._latest < link_of(message):
            clock, sender = self._latest
            raise refusal(message, f"does not know M({sender}, {clock}): not serialized")

    def pending(self) -> list[Held]:
        waiting = self._waiting.items()
        out = {link_of(message): after for after, (message, _) in waiting if self._stays_out(message)}
        held = []
        for after, (message, since) in waiting:
            if self._stays_out(message):
                continue
            while after in out:  # our broadcast without ourselves: wait for its predecessor
                after = out[after]
            held.append(Held(message, ((after[1], after[0]),), since))
        return held

    def _stays_out(self, message: SerializedBroadcast) -> bool:
        """Whether this is our own broadcast without ourselves: a link to pass without a delivery."""
        return not message.dests >> self.me & 1

    def pass_link(self, message: SerializedBroadcast) -> list[Effect]:
        self._latest = max(self._latest, link_of(message))
        return [] if self._stays_out(message) else [self.delivery(message)]


Table = tuple[tuple[int, Link], ...]
"""Pairs (destination, most recent message to it), sorted; destinations without a message are left out."""


class SerializedMulticast(Application):
    latest: Table  # as it was before this message
    payload: bytes

    def after(self, process: int) -> Link:
        """The message that precedes this one at a process."""
        return next((link for d, link in self.latest if d == process), NOTHING)

    def about(self) -> Iterator[Entry]:
        return ((sender, clock, 1 << d) for d, (clock, sender) in self.latest)


class SerializedMulticasts(SerializedProcess[SerializedMulticast]):
    facts = Facts(
        name="serialized-multicast",
        description="an entry per destination; sends must be serialized (a token, a lock): others are "
        "refused",
        paper="Kshemkalyani & Singhal, Distributed Computing 11(2), 1998, §7.1",
        wire=WireFormat(19, "happened.wire.causal:SERIALIZED_MULTICAST"),
        waits=Waits(only_for_past=True),
        assumes=Assumptions(serialized=True),
        membership=MembershipChanges(expulsions=False, at_expulsion=NO_EXPULSION),
        copies=CopyTravel(common_frame=True),
    )
    message_type = SerializedMulticast

    _waiting = kept(waiting(SerializedMulticast), within="chain")
    _latest: dict[int, Link] = kept(TABLE)

    @property
    def latest(self) -> Table:
        return tuple(sorted(self._latest.items()))

    def follow(self, latest: Table) -> None:
        for d, (clock, sender) in latest:
            if clock < 1 or not 0 <= sender < self.n or not 0 <= d < self.n:
                raise LocalProtocolError(f"{latest!r} does not name messages and destinations")
        self._learn(dict(latest))

    @property
    def right(self) -> Link:
        return self._latest.get(self.me, NOTHING)

    def stamp(self, clock: int, dests: int, payload: bytes) -> list[Effect]:
        message = SerializedMulticast(self.me, clock, self.n, dests, self.latest, payload)
        self._latest |= dict.fromkeys(unpack(dests), link_of(message))
        return self.to_each(message, dests)

    def before(self, message: SerializedMulticast) -> Link:
        return message.after(self.me)

    def pass_link(self, message: SerializedMulticast) -> list[Effect]:
        self._learn(dict(message.latest) | dict.fromkeys(unpack(message.dests), link_of(message)))
        return [self.delivery(message)]

    def pending(self) -> list[Held]:
        waiting = self._waiting.items()
        return [Held(message, ((sender, clock),), since) for (clock, sender), (message, since) in waiting]

    @property
    def newest(self) -> Link:
        return max(self._latest.values(), default=NOTHING)

    def check_serialized(self, message: SerializedMulticast) -> None:
        link, known = link_of(message), dict(message.latest)
        if max(known.values(), default=NOTHING)[0] >= message.clock:
            raise refusal(message, "is not later than the messages it follows")
        for d, ours in self._latest.items():
            if known.get(d, NOTHING) < ours and ours[0] <= message.clock and ours != link:
                raise refusal(message, f"does not know M({ours[1]}, {ours[0]}): not serialized")
        if self.newest > link and any(self._latest.get(d, NOTHING) < link for d in message.to):
            raise refusal(message, "was not known to a later message that we know: not serialized")

    def _learn(self, latest: dict[int, Link]) -> None:
        for d, link in latest.items():
            self._latest[d] = max(self._latest.get(d, NOTHING), link)
