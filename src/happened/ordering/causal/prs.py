"""Causal order with direct predecessors, after Prakash, Raynal & Singhal (JPDC 41(2), 1997).

Assumes    reliable links, FIFO or not, that may duplicate; processes that join get the next index.
Promises   causal order for multicasts to arbitrary sets, oneself included.
Leaves out what it learns of deliveries elsewhere: a predecessor stays in the set of its destination until
           a later message to that destination covers it, however long ago it was delivered there.
Invariant  column d is the paper's CB[d]: the messages to d in our causal past that no later message to
           d in it is known to cover; and that of `lane_process`.

On a delivery, a destination of the message keeps what the message does not
cover (the paper's -max) and gets the message itself; any other takes the union (its ∪max).
"""

from ...core.destinations import unpack
from ...core.effects import Send
from ...core.orders import Order
from ..facts import CopyTravel, Facts, MembershipChanges, Waits, WireFormat
from ..machine import Effect, Unit
from ..messages import ENTRY_BYTES, Application
from .columns import ColumnProcess, Columns, known_to, named, units_of

FACTS = Facts(
    name="prs",
    order=Order.CAUSAL,
    description="per destination, the direct predecessors of the next message to it",
    paper="Prakash, Raynal & Singhal, J. Parallel and Distributed Computing 41(2), 1997",
    wire=WireFormat(12, "happened.wire.causal:PRS"),
    membership=MembershipChanges(expels_one=True),
    waits=Waits(only_for_past=True),
    copies=CopyTravel(common_frame=True),
)


class PrsMessage(Application):
    """M(sender, clock), the same for all its destinations."""

    before: Columns  # per destination, lanes: the direct predecessors of this message there, by sender
    payload: bytes

    def units(self) -> frozenset[Unit]:
        return units_of(self.before)

    def size(self) -> tuple[int, int]:
        """An entry names one message and one destination."""
        predecessors = named(self.before)
        return predecessors, predecessors

    def model_bytes(self) -> int:
        """A sender and a clock for each predecessor; an id and a count for each destination that has any."""
        return ENTRY_BYTES * named(self.before) + 4 * sum(map(bool, self.before))

    def known_to(self, n: int) -> "PrsMessage":
        return self._replace(n=n, before=known_to(self.before, n))


class PrakashRaynalSinghal(ColumnProcess[PrsMessage]):
    """One process of the protocol."""

    facts = FACTS
    message_type = PrsMessage
    columns_name = "before"

    def stamp(self, clock: int, dests: int, payload: bytes) -> list[Effect]:
        message = PrsMessage(self.me, clock, self.n, dests, tuple(self._columns), payload)
        for d in unpack(dests):
            self._columns[d] = self._lanes.put(0, self.me, clock)
        return [Send(d, message) for d in unpack(dests)]

    def wanted(self, message: PrsMessage) -> int:
        return message.before[self.me]

    def learn(self, message: PrsMessage) -> None:
        vector, sender, columns = self._lanes, message.sender, self._columns
        self._delivered = vector.put(self._delivered, sender, message.clock)
        itself = vector.put(0, sender, message.clock)
        for d, (ours, theirs) in enumerate(zip(columns, message.before, strict=True)):
            if message.dests >> d & 1:
                ours, theirs = vector.newer(ours, theirs), itself
            columns[d] = vector.maximum(ours, theirs)
        # What is left of our own column are messages to ourselves that have not come back yet.
        columns[self.me] = vector.newer(columns[self.me], self._delivered)
