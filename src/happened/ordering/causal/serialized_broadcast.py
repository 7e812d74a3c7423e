"""Causal broadcast with one entry, where broadcasts are serialized (Kshemkalyani & Singhal 1998, §7.1).

Assumes    broadcasts are totally ordered by happened-before, say by mutual exclusion: who broadcasts has
           delivered (or made) the one before, or was told of it with the right to send (`follow`).
           Everybody present is addressed, with or without the sender; reliable links, FIFO or not, that
           may duplicate. Processes may leave; none can join.
Promises   causal order, which here is one order for all: each message names the one before it.
           A sender cannot tell whether the assumption holds. Where it does not, two broadcasts name the
           same one before them; everybody gets both and refuses the second, so no order is ever broken.
Leaves out the mutual exclusion itself (token.py); recovery once serialization is broken.
Invariant  that of link_chain.py. Our own broadcast is a link like any other and is passed in its turn, after
           what it follows: counted when it is sent, a message that follows it could be delivered before
           one that it follows.
"""

from collections.abc import Iterable, Iterator

from ...core.errors import LocalProtocolError
from ...core.orders import Order
from ..facts import BROADCAST, Assumptions, CopyTravel, Facts, MembershipChanges, Waits, WireFormat
from ..machine import Effect, Held, Multicast
from ..messages import ENTRY_BYTES, Application, Entry, broadcasts
from ..process import refusal
from ..snapshots import kept, valued
from .link_chain import NO_EXPULSION, NOTHING, Link, SerializedProcess, link_of, waiting


class SerializedBroadcast(Application):
    """M(sender, clock), the same for everybody."""

    after: Link  # the broadcast before this one
    payload: bytes

    def about(self) -> Iterator[Entry]:
        clock, sender = self.after
        return broadcasts([(sender, clock)] if clock else [], self.dests)

    def model_bytes(self) -> int:
        return ENTRY_BYTES * self.size()[0]


class SerializedBroadcasts(SerializedProcess[SerializedBroadcast]):
    facts = Facts(
        name="serialized-broadcast",
        description="one entry; broadcasts must be serialized (a token, a lock): others are refused",
        paper="Kshemkalyani & Singhal, Distributed Computing 11(2), 1998, §7.1",
        order=Order.CAUSAL,
        wire=WireFormat(18, "happened.wire.serialized_broadcast"),
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
        effects = self.to_each(message, dests)
        if self._stays_out(message):
            self._waiting[message.after] = message, self.events
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
        waiting = self._waiting.items()
        out = {link_of(message): after for after, (message, _) in waiting if self._stays_out(message)}
        held = []
        for after, (message, since) in waiting:
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
