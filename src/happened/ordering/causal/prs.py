"""Causal order with direct predecessors, after Prakash, Raynal & Singhal (JPDC 41(2), 1997).

Assumes    reliable links, FIFO or not, that may duplicate; processes that join get the next index.
Promises   causal order for multicasts to arbitrary sets, oneself included.
Leaves out what it could learn of deliveries elsewhere: a predecessor stays in a destination's set until a
           later message to that destination covers it, however long ago it was delivered there.
Invariant  column d is the paper's CB[d]: the messages to d in our causal past that no later message to d
           there is known to cover; and that of `lane_process`.

At a delivery, the column of each destination of the message keeps the entries that the message does not cover
(the paper's -max) and gains the message itself; every other column becomes the union (its ∪max).
"""

from collections.abc import Iterator

from ...core.destinations import unpack
from ...core.lanes import lanes
from ..facts import CopyTravel, Facts, MembershipChanges, Waits, WireFormat
from ..machine import Effect
from ..messages import ENTRY_BYTES, Application, Entry
from ..snapshots import VECTORS, kept, widened
from .lane_process import Columns, LaneProcess, named


class PrsMessage(Application):
    before: Columns  # per destination, lanes by sender: this message's direct predecessors there
    payload: bytes

    def about(self) -> Iterator[Entry]:
        return named(self.before)

    def size(self) -> tuple[int, int]:
        """An entry names one message and one destination."""
        predecessors = sum(map(lanes(self.n).occupied, self.before))
        return predecessors, predecessors

    def model_bytes(self) -> int:
        """A sender and a clock per predecessor; an id and a count per destination with predecessors."""
        return ENTRY_BYTES * self.size()[0] + 4 * sum(map(bool, self.before))

    def known_to(self, n: int) -> "PrsMessage":
        return self._replace(n=n, before=tuple(widened(self.before, self.n, n)))


class PrakashRaynalSinghal(LaneProcess[PrsMessage]):
    facts = Facts(
        name="prs",
        description="per destination, the direct predecessors of the next message to it",
        paper="Prakash, Raynal & Singhal, J. Parallel and Distributed Computing 41(2), 1997",
        wire=WireFormat(12, "happened.wire.causal:PRS"),
        membership=MembershipChanges(expels_one=True),
        waits=Waits(only_for_past=True),
        copies=CopyTravel(common_frame=True),
    )
    message_type = PrsMessage
    _before: list[int] = kept(VECTORS)

    def stamp(self, clock: int, dests: int, payload: bytes) -> list[Effect]:
        message = PrsMessage(self.me, clock, self.n, dests, tuple(self._before), payload)
        for d in unpack(dests):
            self._before[d] = self._lanes.put(0, self.me, clock)
        return self.to_each(message, dests)

    def wanted(self, message: PrsMessage) -> int:
        return message.before[self.me]

    def learn(self, message: PrsMessage) -> None:
        vector, sender, columns = self._lanes, message.sender, self._before
        self._delivered = vector.put(self._delivered, sender, message.clock)
        itself = vector.put(0, sender, message.clock)
        for d, (ours, theirs) in enumerate(zip(columns, message.before, strict=True)):
            if message.dests >> d & 1:
                ours, theirs = vector.newer(ours, theirs), itself
            columns[d] = vector.maximum(ours, theirs)
        # Our own column keeps only messages to ourselves that have not come back yet.
        columns[self.me] = vector.newer(columns[self.me], self._delivered)
