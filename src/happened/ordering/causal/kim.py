"""Causal broadcast with direct predecessors only, after Kim & Kim (ICOIN 10, 1996).

Assumes    every present process is addressed, with or without the sender; reliable links, FIFO or not, that
           may duplicate. The group is fixed: processes may leave, none can join.
Promises   causal order; a message names its direct predecessors among the broadcasts and no other.
Leaves out any order between concurrent messages; multicasts to subsets.
Invariant  `_direct` names the broadcasts in our causal past that no other broadcast there follows, at most
           one per sender. Every process delivers their predecessors before them, so a message that waits for
           them waits for its whole past.

We know the paper only from a description (Kshemkalyani & Singhal 1998, §1, "Previous work"), which says that
it tracks some indirect predecessors too. When all messages go to all, a delivered message comes after all its
predecessors, so removing its predecessors from the set leaves no indirect one: this form is tighter.
"""

from collections.abc import Iterator

from ...core.lanes import lanes
from ..facts import BROADCAST, Assumptions, CopyTravel, Facts, MembershipChanges, Waits, WireFormat
from ..machine import Effect
from ..messages import Application, Entry, broadcasts
from ..snapshots import VECTOR, kept
from .bss import GroupProcess


class KimMessage(Application):
    unit_bytes = 0
    direct: int  # lanes: its direct predecessors, by sender
    payload: bytes

    def about(self) -> Iterator[Entry]:
        return broadcasts(lanes(self.n).items(self.direct), self.dests)


class KimKim(GroupProcess[KimMessage]):
    facts = Facts(
        name="kim",
        description="broadcast to a fixed group: direct predecessors only",
        paper="Kim & Kim, International Conference on Information Networking 10, 1996",
        wire=WireFormat(16, "happened.wire.causal:KIM"),
        membership=MembershipChanges(expels_one=True, joins=False),
        assumes=Assumptions(casts=frozenset({BROADCAST})),
        waits=Waits(only_for_past=True),
        copies=CopyTravel(common_frame=True),
    )
    message_type = KimMessage

    _direct: int = kept(VECTOR)

    def stamp(self, clock: int, dests: int, payload: bytes) -> list[Effect]:
        message = KimMessage(self.me, clock, self.n, dests, self._direct, payload)
        self._direct = lanes(self.n).put(0, self.me, clock)
        self._vector.send(clock, to_me=bool(dests >> self.me & 1))
        return self.to_each(message, dests)

    def past(self, message: KimMessage) -> int:
        return message.direct

    def learn(self, message: KimMessage) -> None:
        super().learn(message)
        if message.sender != self.me:  # our own was added when we sent it
            vector = lanes(self.n)
            left = vector.newer(self._direct, message.direct)
            self._direct = vector.put(left, message.sender, message.clock)
