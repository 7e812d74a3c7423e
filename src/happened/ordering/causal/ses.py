"""Causal order with vector times per destination, after Schiper, Eggli & Sandoz (WDAG 1989, LNCS 392).

Assumes    reliable links, FIFO or not, that may duplicate; processes that join get the next index.
Promises   causal order for multicasts to arbitrary sets, oneself included.
Leaves out which messages a held one waits for: its vector is the join of their times, so `pending` gives, per
           process, the clock up to which some of them are missing.
Invariant  `_to[d]` joins the times of the messages to d in our causal past (for ourselves: those not
           delivered yet); `_delivered` joins those of the messages delivered here. A message M(s, c) to us is
           delivered iff lane s of `_delivered` has reached c: every message to us from a process that knows
           of its send had to wait for it.

The test compares with `_delivered`, never with `_time`, our own clock: `_time` counts a message to ourselves
when it is sent, so the next message could overtake it.
"""

from collections.abc import Iterable

from ...core.destinations import unpack
from ...core.lanes import lanes
from ..facts import CopyTravel, Facts, MembershipChanges, Waits, WireFormat
from ..holding import Want
from ..machine import Effect
from ..messages import Application
from ..snapshots import VECTOR, VECTOR_TABLE, kept
from .lane_process import LaneProcess

Pair = tuple[int, int]
"""(destination, lanes): the vector time that the destination must have reached."""


class SesMessage(Application):
    """M(sender, clock), the same for all destinations. It has no units: a vector time says what happened, not
    which message went where."""

    time: int  # lanes: the vector time of this send, which counts the send itself
    pairs: tuple[Pair, ...]  # in order of destination
    payload: bytes

    def size(self) -> tuple[int, int]:
        """Each pair counts as one entry."""
        return len(self.pairs), 0

    def model_bytes(self) -> int:
        """The vector time of the send, and an id and a vector for each pair."""
        return 4 * self.n + (2 + 4 * self.n) * len(self.pairs)

    def known_to(self, n: int) -> "SesMessage":
        vector = lanes(self.n)
        pairs = tuple((d, vector.widened(time, n)) for d, time in self.pairs)
        return self._replace(n=n, time=vector.widened(self.time, n), pairs=pairs)


class SchiperEggliSandoz(LaneProcess[SesMessage]):
    facts = Facts(
        name="ses",
        description="per destination, one vector time that it must have reached",
        paper="Schiper, Eggli & Sandoz, Workshop on Distributed Algorithms, LNCS 392, 1989",
        wire=WireFormat(13, "happened.wire.causal:SES"),
        waits=Waits(only_for_past=True, names_missing=False),
        membership=MembershipChanges(
            expulsions=False,
            at_expulsion="vectors count messages to others, of which only those that are lost may have told",
        ),
        copies=CopyTravel(common_frame=True),
    )
    message_type = SesMessage

    _time: int = kept(VECTOR)
    _to: dict[int, int] = kept(VECTOR_TABLE)  # destination -> lanes

    def stamp(self, clock: int, dests: int, payload: bytes) -> list[Effect]:
        self._time = time = self._lanes.put(self._time, self.me, clock)
        message = SesMessage(self.me, clock, self.n, dests, time, tuple(sorted(self._to.items())), payload)
        self._to |= dict.fromkeys(unpack(dests), time)  # it covers every earlier message that we know of
        return self.to_each(message, dests)

    def wanted(self, message: SesMessage) -> int:
        return next((time for d, time in message.pairs if d == self.me), 0)

    def told(self, message: SesMessage) -> int:
        return max(super().told(message), self._lanes.get(message.time, self.me))

    def moves(self, message: SesMessage) -> Iterable[Want]:
        return self._lanes.items(message.time)

    def learn(self, message: SesMessage) -> None:
        vector, me = self._lanes, self.me
        self._time = vector.maximum(self._time, message.time)
        self._delivered = vector.maximum(self._delivered, message.time)
        told = dict(message.pairs) | dict.fromkeys(unpack(message.dests), message.time)
        for d, time in told.items():
            self._to[d] = vector.maximum(self._to.get(d, 0), time)
        if vector.beyond(self._to[me], self._delivered) is None:  # the message was addressed to us too
            del self._to[me]
        for lane in self._parking.watched:  # one vector time raises many lanes at once
            self._parking.reached(lane, vector.get(self._delivered, lane))
