"""Causal broadcast with vector clocks, after Birman, Schiper & Stephenson (ACM TOCS 9(3), 1991).

Assumes    everybody present is addressed, with or without the sender; reliable links, FIFO or not, that
           may duplicate. Processes may leave; none can join, since it would wait for broadcasts that were
           made before it and never come.
Promises   causal order.
Leaves out any order between concurrent messages; multicasts to some; the view changes that joins need.
Invariant  that of its GroupVector: a message carries the last broadcast of everyone that its sender knew,
           and is delivered once all of those are.

The paper counts broadcasts; here the last one of each sender is named by its clock, so that a clock may
also tick on its own and a held message can say what it waits for.
"""

from ...core.destinations import unpack
from ...core.effects import Send
from ...core.lanes import lanes
from ...core.orders import Order
from ..facts import BROADCAST, Assumptions, CopyTravel, Facts, MembershipChanges, Promises, Waits, WireFormat
from ..machine import Effect, Unit
from ..messages import Application
from .group_vector import GroupProcess

FACTS = Facts(
    name="bss",
    order=Order.CAUSAL,
    description="broadcast to a fixed group: one vector clock",
    paper="Birman, Schiper & Stephenson, ACM TOCS 9(3), 1991",
    wire=WireFormat(14, "happened.wire.causal:BSS"),
    assumes=Assumptions(casts=frozenset({BROADCAST})),
    membership=MembershipChanges(joins=False),
    waits=Waits(only_for_past=True),
    promises=Promises(entries=lambda n: n),
    copies=CopyTravel(common_frame=True),
)


class BssMessage(Application):
    """M(sender, clock), the same for everybody."""

    past: int  # lanes: the last broadcast of each process before this one
    payload: bytes

    def units(self) -> frozenset[Unit]:
        """What an entry says of this message's destinations: a broadcast went to them too."""
        past = lanes(self.n).items(self.past)
        return frozenset((s, t, d) for s, t in past for d in self.to if d != s)

    def size(self) -> tuple[int, int]:
        """The whole vector."""
        return self.n, len(self.units())

    def model_bytes(self) -> int:
        return 4 * self.n


class BirmanSchiperStephenson(GroupProcess[BssMessage]):
    """One process of the protocol."""

    facts = FACTS
    message_type = BssMessage

    def stamp(self, clock: int, dests: int, payload: bytes) -> list[Effect]:
        message = BssMessage(self.me, clock, self.n, dests, self._vector.known, payload)
        self._vector.send(clock, to_me=bool(dests >> self.me & 1))
        return [Send(d, message) for d in unpack(dests)]

    def past(self, message: BssMessage) -> int:
        return message.past
