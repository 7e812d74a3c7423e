"""Causal multicast with an entry per destination, for serialized sends (Kshemkalyani & Singhal 1998, §7.1).

Assumes    sends are totally ordered by happened-before, say by mutual exclusion: who sends has in its
           causal past every send before, by deliveries or told with the right to send (`follow`).
           Reliable links, FIFO or not, that may duplicate; processes that join get the next index.
Promises   causal order for multicasts to arbitrary sets, oneself included: each message names, for each
           destination, the one before it there.
           A sender cannot tell whether the assumption holds. Of two sends that break it neither knows the
           other, and who knows of one refuses the other.
Leaves out the mutual exclusion itself (token.py); recovery once serialization is broken.
Invariant  that of its Chain; `_latest` maps a destination to the most recent message to it in our causal
           past.
"""

from collections.abc import Iterable

from ...core.destinations import unpack
from ...core.effects import Send
from ...core.errors import LocalProtocolError
from ...core.orders import Order
from ..facts import Assumptions, CopyTravel, Facts, MembershipChanges, Waits, WireFormat
from ..machine import Effect, Held, Multicast, Unit
from ..messages import Application
from ..process import State, refusal
from .link_chain import NO_EXPULSION, NOTHING, Link, SerializedProcess, link_of

FACTS = Facts(
    name="serialized-multicast",
    description="an entry per destination; sends must be serialized (a token, a lock): others are refused",
    paper="Kshemkalyani & Singhal, Distributed Computing 11(2), 1998, §7.1",
    order=Order.CAUSAL,
    wire=WireFormat(19, "happened.wire.causal:SERIALIZED_MULTICAST"),
    waits=Waits(only_for_past=True),
    assumes=Assumptions(serialized=True),
    membership=MembershipChanges(expulsions=False, at_expulsion=NO_EXPULSION),
    copies=CopyTravel(common_frame=True),
)

Table = tuple[tuple[int, Link], ...]
"""Destinations in order, each with the most recent message to it; those without one are left out."""


class SerializedMulticast(Application):
    """M(sender, clock), the same for all its destinations."""

    latest: Table  # before this message
    payload: bytes

    def after(self, process: int) -> Link:
        """The message before this one at a process."""
        return next((link for d, link in self.latest if d == process), NOTHING)

    def units(self) -> frozenset[Unit]:
        return frozenset((sender, clock, d) for d, (clock, sender) in self.latest)

    def size(self) -> tuple[int, int]:
        """An entry names one message and one destination."""
        return len(self.latest), len(self.latest)


class SerializedMulticasts(SerializedProcess[SerializedMulticast]):
    """One process of the protocol."""

    facts = FACTS
    message_type = SerializedMulticast

    def __init__(self, me: int, n: int) -> None:
        super().__init__(me, n)
        self._latest: dict[int, Link] = {}

    @property
    def latest(self) -> Table:
        """The most recent message to each destination: what to hand over with the right to send."""
        return tuple(sorted(self._latest.items()))

    def follow(self, latest: Table) -> None:
        """We have the right to send, and these were the last messages to each destination."""
        for d, (clock, sender) in latest:
            if clock < 1 or not 0 <= sender < self.n or not 0 <= d < self.n:
                raise LocalProtocolError(f"{latest!r} does not name messages and destinations")
        self._learn(dict(latest))

    @property
    def coming_clock(self) -> int:
        return max(self.clock, self._newest()[0]) + 1

    def multicast(self, to: Iterable[int], payload: bytes) -> Multicast:
        dests = self.destinations(to, payload)
        self.check_right(self._latest.get(self.me, NOTHING))
        clock = self.next_clock(after=self._newest()[0])
        message = SerializedMulticast(self.me, clock, self.n, dests, self.latest, payload)
        self._latest |= dict.fromkeys(unpack(dests), link_of(message))
        return Multicast(clock, [Send(d, message) for d in unpack(dests)])

    def before(self, message: SerializedMulticast) -> Link:
        return message.after(self.me)

    def pass_link(self, message: SerializedMulticast) -> list[Effect]:
        self._learn(dict(message.latest) | dict.fromkeys(unpack(message.dests), link_of(message)))
        return [self.delivery(message)]

    def pending(self) -> list[Held]:
        return [Held(message, ((sender, clock),), since) for (clock, sender), message, since in self._chain]

    def _newest(self) -> Link:
        return max(self._latest.values(), default=NOTHING)

    def check_serialized(self, message: SerializedMulticast) -> None:
        link, known = link_of(message), dict(message.latest)
        if max(known.values(), default=NOTHING)[0] >= message.clock:
            raise refusal(message, "is not later than the messages it follows")
        for d, ours in self._latest.items():
            if known.get(d, NOTHING) < ours and ours[0] <= message.clock and ours != link:
                raise refusal(message, f"does not know M({ours[1]}, {ours[0]}): not serialized")
        if self._newest() > link and any(self._latest.get(d, NOTHING) < link for d in message.to):
            raise refusal(message, "was not known to a later message that we know: not serialized")

    def _learn(self, latest: dict[int, Link]) -> None:
        for d, link in latest.items():
            self._latest[d] = max(self._latest.get(d, NOTHING), link)

    def load(self, state: State) -> None:
        latest = dict(state["latest"])
        super().load(state)
        self._latest = latest
