"""How far the broadcasts of one group have got, as one of its members sees it.

`known` and `reached` differ only for our own broadcasts: others must wait for each of them, we only for
those addressed to ourselves too, which come back over the network like any message.

Invariant  lane s of `known` is the clock of the last broadcast of s we sent or delivered; lane s of
           `reached` the greatest clock up to which we have delivered every broadcast of s to us. For
           ourselves that is just before the first that is still on its way back, or the last we sent.
"""

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from ...core.lanes import lanes
from ..delay_queue import Want
from ..holding import ListeningProcess
from ..machine import MessageKey
from ..process import State, refusal


class GroupVector:
    __slots__ = ("_lanes", "_me", "_returning", "known", "reached")

    def __init__(self, me: int, n: int) -> None:
        self._me = me
        self._lanes = lanes(n)
        self.known = 0  # lanes
        self.reached = 0  # lanes
        self._returning: deque[int] = deque()  # clocks of our broadcasts on their way to ourselves

    def send(self, clock: int, *, to_me: bool) -> None:
        self.known = self._lanes.put(self.known, self._me, clock)
        if to_me:
            self._returning.append(clock)
        self._count_own()

    def deliver(self, sender: int, clock: int) -> None:
        if sender == self._me:
            self._returning.popleft()
            self._count_own()
        else:
            self.known = self._lanes.put(self.known, sender, clock)
            self.reached = self._lanes.put(self.reached, sender, clock)

    def skip(self, sender: int, clock: int) -> None:
        """Take what this sender has broadcast up to this clock for delivered."""
        self.reached = self._lanes.put(self.reached, sender, max(clock, self.progress(sender)))

    def progress(self, sender: int) -> int:
        return self._lanes.get(self.reached, sender)

    def is_expected(self, sender: int, clock: int) -> bool:
        """Whether M(sender, clock) may still come: nobody else sends in our name."""
        return sender != self._me or clock in self._returning or clock <= self.progress(sender)

    def has_sent(self, past: int) -> bool:
        """Whether what `past` names of ourselves is a broadcast we have made, or came before one."""
        return self._lanes.get(past, self._me) <= self._lanes.get(self.known, self._me)

    def lacks(self, past: int) -> Want | None:
        """The first (sender, clock) among `past` that we have not reached."""
        sender = self._lanes.beyond(past, self.reached)
        return None if sender is None else (sender, self._lanes.get(past, sender))

    def missing(self, past: int) -> Iterator[tuple[int, int]]:
        """The last undelivered broadcast to us of each sender that `past` requires."""
        for sender, clock in self._lanes.items(self._lanes.newer(past, self.reached)):
            if sender == self._me:
                clock = max(returning for returning in self._returning if returning <= clock)
            yield sender, clock

    def _count_own(self) -> None:
        own = self._returning[0] - 1 if self._returning else self._lanes.get(self.known, self._me)
        self.reached = self._lanes.put(self.reached, self._me, own)

    def state(self) -> tuple[int, int, tuple[int, ...]]:
        return self.known, self.reached, tuple(self._returning)

    @classmethod
    def from_state(cls, me: int, n: int, state: tuple[int, int, Iterable[int]]) -> "GroupVector":
        vector = cls(me, n)
        vector.known, vector.reached, returning = state
        vector._returning = deque(returning)
        return vector


M = TypeVar("M", bound=Any)


class GroupProcess(ListeningProcess[M]):
    """A process that broadcasts to a fixed group of which it is a member."""

    def __init__(self, me: int, n: int) -> None:
        super().__init__(me, n)
        self._vector = GroupVector(me, n)

    @abstractmethod
    def past(self, message: M) -> int:
        """Lanes: per process the last broadcast that must be delivered before this one."""

    def address(self, to: Iterable[int], payload: bytes) -> int:
        return self.everybody(to, payload)

    def checked(self, message: M) -> M:
        message = super().checked(message)
        if message.n != self.n:
            raise refusal(message, f"comes from a group of {message.n} and ours has {self.n}")
        if not self._vector.has_sent(self.past(message)):
            raise refusal(message, "depends on a message we never sent")
        if not self._vector.is_expected(message.sender, message.clock):
            raise refusal(message, "claims to be ours, and we never sent it to ourselves")
        return message

    def listen(self) -> None:
        super().listen()
        self._vector.send(self.clock, to_me=False)

    def delivered(self, sender: int) -> int:
        return self._vector.progress(sender)

    def reached(self, message: M) -> Want:
        return message.sender, self._vector.progress(message.sender)

    def lacks(self, message: M) -> Want | None:
        return self._vector.lacks(self.past(message))

    def missing(self, message: M) -> Iterable[MessageKey]:
        return self._vector.missing(self.past(message))

    def skip(self, process: int, clock: int) -> Iterable[int]:
        self._vector.skip(process, clock)
        return (process,)

    def learn(self, message: M) -> None:
        self._vector.deliver(message.sender, message.clock)

    def save(self) -> State:
        return {"vector": self._vector.state()}

    def load(self, state: State) -> None:
        self._vector = GroupVector.from_state(self.me, self.n, state["vector"])
