"""Causal order with a matrix of sent messages, after Raynal, Schiper & Toueg (IPL 39(6), 1991).

Assumes    reliable links, FIFO or not, that may duplicate; processes that join get the next index.
Promises   causal order for multicasts to arbitrary sets, oneself included.
Leaves out any compression: every message carries n² numbers.
Invariant  lane s of column d is the clock of the last message of s to d in our causal past; and that of
           `lane_process`.

The paper counts the messages from s to d; here the clock of the last one names it. To a receiver that
delivers in order both say the same. With clocks, a multicast raises the column of *every* destination, a held
message can say which one it waits for, and a self-addressed message cannot be counted twice, at its send and
at its delivery, which blocks the protocol as published.
"""

from collections.abc import Iterator

from ...core.destinations import unpack
from ...core.lanes import lanes
from ..facts import CopyTravel, Facts, Promises, Waits, WireFormat
from ..machine import Effect
from ..messages import Application, Entry
from ..snapshots import VECTORS, kept, widened
from .lane_process import Columns, LaneProcess, named


class RstMessage(Application):
    entry_bytes, unit_bytes = 4, 0
    sent: Columns  # per destination, lanes by sender: its last message there before this one
    payload: bytes

    def about(self) -> Iterator[Entry]:
        return named(self.sent)

    def size(self) -> tuple[int, int]:
        """The number of entries of the whole matrix, and of those that name a message (the units)."""
        return self.n * self.n, sum(map(lanes(self.n).occupied, self.sent))

    def known_to(self, n: int) -> "RstMessage":
        return self._replace(n=n, sent=tuple(widened(self.sent, self.n, n)))


class RaynalSchiperToueg(LaneProcess[RstMessage]):
    facts = Facts(
        name="rst",
        description="a matrix of the last message from everyone to everyone",
        paper="Raynal, Schiper & Toueg, Information Processing Letters 39(6), 1991",
        wire=WireFormat(11, "happened.wire.causal:RST"),
        waits=Waits(only_for_past=True),
        promises=Promises(entries=lambda n: n * n),
        copies=CopyTravel(common_frame=True),
    )
    message_type = RstMessage
    _sent: list[int] = kept(VECTORS)

    def stamp(self, clock: int, dests: int, payload: bytes) -> list[Effect]:
        message = RstMessage(self.me, clock, self.n, dests, tuple(self._sent), payload)
        for d in unpack(dests):
            self._sent[d] = self._lanes.put(self._sent[d], self.me, clock)
        return self.to_each(message, dests)

    def wanted(self, message: RstMessage) -> int:
        return message.sent[self.me]

    def learn(self, message: RstMessage) -> None:
        vector, sender, clock = self._lanes, message.sender, message.clock
        self._delivered = vector.put(self._delivered, sender, clock)
        for d, (ours, theirs) in enumerate(zip(self._sent, message.sent, strict=True)):
            if message.dests >> d & 1:
                theirs = vector.put(theirs, sender, clock)
            if theirs != ours:
                self._sent[d] = vector.maximum(ours, theirs)
