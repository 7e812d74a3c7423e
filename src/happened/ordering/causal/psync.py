"""Causal broadcast by context graph, after Peterson, Buchholz & Schlichting (ACM TOCS 7(3), 1989).

Assumes    a conversation among fixed processes, in which every message goes to all; links that may
           reorder or duplicate but not lose.
Promises   causal order; a message carries only the names of its immediate predecessors.
Leaves out the conversation's history, and members that join, which would need that history.
Invariant  `_leaves` are the messages in our view that precede no other message there: a message sent now has
           exactly these as its immediate predecessors. A message enters the view after its predecessors; a
           sender's messages precede one another, so they enter in the order of their clocks.
"""

from collections.abc import Iterable

from ...core.lanes import CLOCK_LIMIT
from ..facts import BROADCAST, Assumptions, CopyTravel, Facts, MembershipChanges, Waits, WireFormat
from ..holding import ListeningProcess
from ..machine import Effect, MessageKey
from ..messages import Application
from ..process import Process, refusal
from ..snapshots import SET, TABLE, kept


class PsyncMessage(Application):
    """M(sender, clock), the same copy for all. It has no units: a context names no destinations."""

    context: tuple[MessageKey, ...]  # the immediate predecessors, sorted; at most one per sender
    payload: bytes

    def size(self) -> tuple[int, int]:
        return len(self.context), 0


class ContextGraph(ListeningProcess[PsyncMessage]):
    facts = Facts(
        name="psync",
        description="context graph: carries the names of the immediate predecessors",
        paper="Peterson, Buchholz & Schlichting, ACM TOCS 7(3), 1989",
        wire=WireFormat(32, "happened.wire.causal:PSYNC"),
        membership=MembershipChanges(expels_one=True, joins=False),
        assumes=Assumptions(casts=frozenset({BROADCAST})),
        waits=Waits(only_for_past=True),
        copies=CopyTravel(common_frame=True),
    )
    message_type = PsyncMessage

    _view: dict[int, int] = kept(TABLE)  # per sender the clock of its last message in our view
    _leaves: set[MessageKey] = kept(SET)

    address = Process.everybody

    def stamp(self, clock: int, dests: int, payload: bytes) -> list[Effect]:
        context = tuple(sorted(self._leaves))
        message = PsyncMessage(self.me, clock, self.n, dests, context, payload)
        self.learn(message)
        return self.to_others(message, dests)

    def checked(self, message: PsyncMessage) -> PsyncMessage:
        message = super().checked(message)
        if message.sender == self.me:
            raise refusal(message, "is our own, and we have it")
        for sender, clock in message.context:
            if not 0 <= sender < self.n or not 0 < clock < CLOCK_LIMIT:
                raise refusal(message, f"follows M({sender}, {clock}), which nobody can have sent")
        return message

    def listen(self) -> None:
        super().listen()
        self._view[self.me] = self.clock

    def told(self, message: PsyncMessage) -> int:
        return max((clock for sender, clock in message.context if sender == self.me), default=0)

    def delivered(self, sender: int) -> int:
        return self._view.get(sender, 0)

    def missing(self, message: PsyncMessage) -> Iterable[MessageKey]:
        return (key for key in message.context if key[1] > self._view.get(key[0], 0))

    def skip(self, process: int, clock: int) -> Iterable[int]:
        self._view[process] = max(clock, self._view.get(process, 0))
        return (process,)

    def learn(self, message: PsyncMessage) -> None:
        self._view[message.sender] = message.clock
        # Keep only the newest message of a sender: it follows the others, even past a skipped lost one.
        self._leaves = {key for key in self._leaves.difference(message.context) if key[0] != message.sender}
        self._leaves.add((message.sender, message.clock))

    def log_size(self) -> tuple[int, int]:
        return len(self._leaves), len(self._leaves)
