"""Order over causal chains of at most two messages, after Adelstein & Singhal (ICDCS 15, 1995).

Assumes    reliable links, FIFO or not, that may duplicate; processes that join get the next index.
Promises   a message overtakes neither an earlier message of its own sender, nor an earlier message of a
           process that later sent a message to its sender: the order holds along causal chains of one and of
           two messages (Kshemkalyani & Singhal 1998, Lemma 8).
Leaves out every longer chain: *this is not causal order*. Along three messages (x to d and a; a to b; b to
           d) the last overtakes x. It takes four processes, or three where x is sent by d itself.
Invariant  `_last` has rows, not columns: lane d of row s is the clock of the last message of s to d that we
           sent (s = ourselves) or of which s itself told us. Lane s of `_delivered` is the clock of the last
           message of s delivered here, and every earlier one to us was delivered too.
"""

from collections.abc import Iterator

from ...core.destinations import unpack
from ...core.effects import Send
from ...core.lanes import lanes
from ...core.orders import Order
from ..facts import Facts, Promises, Waits, WireFormat
from ..machine import Effect
from ..messages import Application, Entry
from ..snapshots import VECTORS, kept
from .lane_process import LaneProcess


class ChainTwoMessage(Application):
    """M(sender, clock) as it is sent to one destination."""

    entry_bytes, unit_bytes = 4, 0
    receiver: int
    sent: int  # lanes by destination: the sender's last message to each before this one
    due: int  # lanes by sender: the last message of each to `receiver` that the sender knows of
    payload: bytes

    def about(self) -> Iterator[Entry]:
        vector = lanes(self.n)
        yield from ((self.sender, t, 1 << d) for d, t in vector.items(self.sent))
        yield from ((s, t, 1 << self.receiver) for s, t in vector.items(self.due))

    def size(self) -> tuple[int, int]:
        """The message carries two whole vectors."""
        return 2 * self.n, len(self.units())

    def known_to(self, n: int) -> "ChainTwoMessage":
        vector = lanes(self.n)
        return self._replace(n=n, sent=vector.widened(self.sent, n), due=vector.widened(self.due, n))


class AdelsteinSinghal(LaneProcess[ChainTwoMessage]):
    facts = Facts(
        name="chain-two",
        order=Order.FIFO,  # the strongest value of `Order` that it keeps
        description="FIFO, and causal order over chains of two messages: violated from length three on",
        paper="Adelstein & Singhal, International Conference on Distributed Computing Systems 15, 1995",
        wire=WireFormat(17, "happened.wire.causal:CHAIN_TWO"),
        promises=Promises(longest_chain=2, entries=lambda n: 2 * n),
        waits=Waits(only_for_past=True),
    )
    message_type = ChainTwoMessage
    _last: list[int] = kept(VECTORS)

    def stamp(self, clock: int, dests: int, payload: bytes) -> list[Effect]:
        me, n, sent = self.me, self.n, self._last[self.me]
        effects: list[Effect] = [
            Send(d, ChainTwoMessage(me, clock, n, dests, d, sent, self._due(d), payload))
            for d in unpack(dests)
        ]
        self._last[me] = self._including(sent, dests, clock)
        return effects

    def _due(self, destination: int) -> int:
        """For each process, its last message to this destination that we know of."""
        place, width, value = self._lanes.width * destination, self._lanes.width, self._lanes.value
        return sum((row >> place & value) << width * s for s, row in enumerate(self._last))

    def _including(self, row: int, dests: int, clock: int) -> int:
        for d in unpack(dests):
            row = self._lanes.put(row, d, clock)
        return row

    def wanted(self, message: ChainTwoMessage) -> int:
        return message.due

    def learn(self, message: ChainTwoMessage) -> None:
        sender = message.sender
        self._delivered = self._lanes.put(self._delivered, sender, message.clock)
        if sender != self.me:  # our own row already includes the messages to ourselves
            self._last[sender] = self._including(message.sent, message.dests, message.clock)
