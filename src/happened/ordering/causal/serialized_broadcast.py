"""Causal broadcast with one entry, where broadcasts are serialized (Kshemkalyani & Singhal 1998, §7.1).

Assumes    broadcasts are totally ordered by happened-before, say by mutual exclusion: who broadcasts has
           delivered (or made) the one before, or was told of it with the right to send (`follow`).
           Everybody present is addressed, with or without the sender; reliable links, FIFO or not, that
           may duplicate. Processes may leave; none can join.
Promises   causal order, which here is one order for all: each message names the one before it.
           A sender cannot tell whether the assumption holds. Where it does not, two broadcasts name the
           same one before them; everybody gets both and refuses the second, so no order is ever broken.
Leaves out the mutual exclusion itself (token.py); recovery once serialization is broken.
Invariant  that of its Chain. Our own broadcast is a link like any other and is passed in its turn, after
           what it follows: counted when it is sent, a message that follows it could be delivered before
           one that it follows.
"""

from collections.abc import Iterable

from ...core.destinations import unpack
from ...core.effects import Send
from ...core.errors import LocalProtocolError
from ...core.orders import Order
from ..facts import BROADCAST, Assumptions, CopyTravel, Facts, MembershipChanges, Waits, WireFormat
from ..machine import Effect, Held, Multicast, Unit
from ..messages import ENTRY_BYTES, Application
from ..process import State, refusal
from .link_chain import NO_EXPULSION, NOTHING, Link, SerializedProcess, link_of

FACTS = Facts(
    name="serialized-broadcast",
    description="one entry; broadcasts must be serialized (a token, a lock): others are refused",
    paper="Kshemkalyani & Singhal, Distributed Computing 11(2), 1998, §7.1",
    order=Order.CAUSAL,
    wire=WireFormat(18, "happened.wire.causal:SERIALIZED_BROADCAST"),
    assumes=Assumptions(casts=frozenset({BROADCAST}), serialized=True),
    waits=Waits(only_for_past=True),
    membership=MembershipChanges(joins=False, expulsions=False, at_expulsion=NO_EXPULSION),
    copies=CopyTravel(common_frame=True),
)


class SerializedBroadcast(Application):
    """M(sender, clock), the same for everybody."""

    after: Link  # the broadcast before this one
    payload: bytes

    def units(self) -> frozenset[Unit]:
        """What the entry says of this message's destinations: a broadcast went to them too."""
        clock, sender = self.after
        return frozenset((sender, clock, d) for d in self.to if clock and d != sender)

    def size(self) -> tuple[int, int]:
        return int(self.after != NOTHING), len(self.units())

    def model_bytes(self) -> int:
        return ENTRY_BYTES * self.size()[0]


class SerializedBroadcasts(SerializedProcess[SerializedBroadcast]):
    """One process of the protocol."""

    facts = FACTS
    message_type = SerializedBroadcast

    def __init__(self, me: int, n: int) -> None:
        super().__init__(me, n)
        self._latest = NOTHING  # the most recent broadcast known

    @property
    def latest(self) -> Link:
        """The most recent broadcast known here: what to hand over with the right to send."""
        return self._latest

    def follow(self, latest: Link) -> None:
        """We have the right to send, and this was the broadcast before."""
        clock, sender = latest
        if clock < 0 or not 0 <= sender < self.n:
            raise LocalProtocolError(f"{latest!r} does not name a broadcast")
        self._latest = max(self._latest, latest)

    @property
    def coming_clock(self) -> int:
        return max(self.clock, self._latest[0]) + 1

    def multicast(self, to: Iterable[int], payload: bytes) -> Multicast:
        dests = self.everybody(to, payload)
        self.check_right(self._latest)
        clock = self.next_clock(after=self._latest[0])
        message = SerializedBroadcast(self.me, clock, self.n, dests, self._latest, payload)
        self._latest = link_of(message)
        effects: list[Effect] = [Send(d, message) for d in unpack(dests)]
        if self._stays_out(message):
            self._chain.add(message, message.after, self.events)
            effects += self.pass_links()
        return Multicast(clock, effects)

    def before(self, message: SerializedBroadcast) -> Link:
        if message.n != self.n:
            raise refusal(message, f"comes from a group of {message.n} and ours has {self.n}")
        return message.after

    def check_serialized(self, message: SerializedBroadcast) -> None:
        if message.after < self._latest < link_of(message):
            clock, sender = self._latest
            raise refusal(message, f"does not know M({sender}, {clock}): not serialized")

    def pending(self) -> list[Held]:
        out = {link_of(message): after for after, message, _ in self._chain if self._stays_out(message)}
        held = []
        for after, message, since in self._chain:
            if self._stays_out(message):
                continue
            while after in out:  # our own that does not come back waits too, for what it follows
                after = out[after]
            held.append(Held(message, ((after[1], after[0]),), since))
        return held

    def _stays_out(self, message: SerializedBroadcast) -> bool:
        """Whether it is ours and not to ourselves: a link to pass, nothing to deliver."""
        return not message.dests >> self.me & 1

    def pass_link(self, message: SerializedBroadcast) -> list[Effect]:
        self._latest = max(self._latest, link_of(message))
        return [] if self._stays_out(message) else [self.delivery(message)]

    def load(self, state: State) -> None:
        latest = state["latest"]
        super().load(state)
        self._latest = latest
