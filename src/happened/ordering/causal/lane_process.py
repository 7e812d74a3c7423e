"""A process whose messages name, for each sender, the last message to be delivered before them.

Invariant  lane s of `_delivered` is the clock of the last message of s delivered here. Since delivery is in
           causal order, every earlier message of s to us was delivered too.

Some of these protocols keep *columns*: for each process d, a vector of clocks over senders. Lane s of column
d names M(s, clock), sent to d; zero means none. By causal order the newest message of a sender stands for all
its earlier ones, so a column never needs two messages of one sender."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator

from ...core.effects import Deliver
from ...core.lanes import lanes
from ...core.tuples import new
from ..holding import ListeningProcess, M, Want
from ..machine import Effect, MessageKey
from ..messages import Entry
from ..process import State
from ..snapshots import VECTOR, kept

Columns = tuple[int, ...]


def named(columns: Columns) -> Iterator[Entry]:
    """The messages that the columns name, one entry per destination."""
    vector = lanes(len(columns))
    return ((s, t, 1 << d) for d, column in enumerate(columns) for s, t in vector.items(column))


class LaneProcess(ListeningProcess[M]):
    _delivered: int = kept(VECTOR)

    def __init__(self, me: int, n: int) -> None:
        super().__init__(me, n)
        self._lanes = lanes(n)

    @abstractmethod
    def wanted(self, message: M) -> int:
        """Lanes: per sender, the clock of the message that we must deliver first; 0 for none."""

    def receive(self, message: M) -> list[Effect]:
        # The same as in HoldingProcess without a call per step, which saves `ks` a fifth (bench/ordering.py).
        # No protocol on lanes may override `is_duplicate`, `lacks` or `take`: arrivals do not call them.
        if self._closing:
            return super().receive(message)
        message = self.checked(message)
        self.events += 1
        sender, clock = message.sender, message.clock
        vector, delivered, held = self._lanes, self._delivered, self._parking.held
        if clock <= delivered >> vector.width * sender & vector.value or (held and (sender, clock) in held):
            return []
        wanted, guards = self.wanted(message), vector.guards
        lacking = guards ^ ((delivered | guards) - wanted & guards)
        if lacking:
            lane = lacking.bit_length() // vector.width - 1
            self.hold(message, (lane, vector.get(wanted, lane)))
            return []
        if held:
            return self._deliver(message)
        self.learn(message)
        self.events += 1
        return [new(Deliver, (sender, clock, message.payload))]

    def told(self, message: M) -> int:
        return self._lanes.get(self.wanted(message), self.me)

    def delivered(self, sender: int) -> int:
        return self._lanes.get(self._delivered, sender)

    def lacks(self, message: M) -> Want | None:
        wanted = self.wanted(message)
        sender = self._lanes.beyond(wanted, self._delivered)
        return None if sender is None else (sender, self._lanes.get(wanted, sender))

    def missing(self, message: M) -> Iterable[MessageKey]:
        return self._lanes.items(self._lanes.newer(self.wanted(message), self._delivered))

    def skip(self, process: int, clock: int) -> Iterable[int]:
        reached = max(clock, self._lanes.get(self._delivered, process))
        self._delivered = self._lanes.put(self._delivered, process, reached)
        return (process,)

    def join(self, process: int) -> list[Effect]:
        effects = super().join(process)
        if self._lanes.n == self.n:  # this index was recycled
            self._delivered = self._lanes.put(self._delivered, process, 0)
            return effects
        self._lanes = lanes(self.n)
        self._parking.replace(lambda held: held.known_to(self.n))
        return effects

    def load(self, state: State) -> None:
        super().load(state)
        self._lanes = lanes(self.n)
