"""The right to send, for protocols whose sends must be serialized: one token, for which a process asks when
it wants to send (Suzuki & Kasami, "A distributed mutual exclusion algorithm", ACM TOCS 3(4), 1985).

Assumes    reliable links; no process is lost for good while it is a member (it may be away and come back with
           its state); every process hears of joins and departures; all number the members alike, and no index
           is recycled.
Promises   at most one process has its turn at any time, so sends are serialized: with the token comes what
           its last holder knew of earlier sends (`latest` and `follow` of the protocol).
           Every process that asks gets its turn if every holder ends its own: requests are queued. Process 0
           has the token in the beginning. A process leaves in its turn, and hands the token over.
Costs      a request to every process and one token per turn; nothing if the token is here or none asks.
Invariant  exactly one process, or one message in transit, has the token. No departed process ever gets it:
           each left in its own turn, and since then the token says that this process has gone.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from ..core.destinations import unpack
from ..core.effects import Send
from ..core.errors import LocalProtocolError, RemoteProtocolError


class TokenRequest(NamedTuple):
    """A process asks for its turn; `number` counts its requests."""

    process: int
    number: int


class TokenPassed(NamedTuple):
    served: tuple[tuple[int, int], ...]  # per process the number of its last request that was served
    queue: tuple[int, ...]  # the processes that get the token next, in this order
    gone: int  # bit set: departed processes
    latest: Any  # what the next sender must know of earlier sends


Effects = list[Send[Any]]


class Token:
    """What process `me` of n knows of the token."""

    def __init__(self, me: int, n: int) -> None:
        self.me = me
        self.n = n
        self.is_here = me == 0
        self.wants = False  # whether it has asked for a turn that has not ended
        self._asked: dict[int, int] = {}  # per process the number of its last request
        self._served: dict[int, int] = {}  # the token's `served` while it is here; the same for the queue
        self._queue: list[int] = []
        self._gone = 0

    @property
    def has_turn(self) -> bool:
        """Whether this process may send."""
        return self.is_here and self.wants

    def _others(self) -> Iterable[int]:
        return unpack(((1 << self.n) - 1) & ~self._gone & ~(1 << self.me))

    def request(self) -> Effects:
        """Ask for a turn; it begins at once if the token is here. Asking again changes nothing."""
        if self.wants:
            return []
        self.wants = True
        if self.is_here:
            return []
        number = self._asked[self.me] = self._asked.get(self.me, 0) + 1
        return [Send(process, TokenRequest(self.me, number)) for process in self._others()]

    def release(self, latest: Any, *, away: bool = False) -> Effects:
        """End our turn. `away`: pass the token on even unasked, since we shall not hear later requests."""
        if not self.is_here:
            raise LocalProtocolError(f"process {self.me} does not have the token")
        self.wants = False
        self._served[self.me] = self._asked.get(self.me, 0)
        if away:
            self._line_up()
            self._queue = self._queue or list(self._others())[:1]
        return self._pass_on(latest)

    def receive_request(self, request: TokenRequest, latest: Any) -> Effects:
        process, number = request
        if not 0 <= process < self.n or process == self.me:
            raise RemoteProtocolError(f"process {process} asks for the token, and there are {self.n} of us")
        self._asked[process] = max(number, self._asked.get(process, 0))
        return self._pass_on(latest) if self.is_here and not self.wants else []

    def receive_token(self, passed: TokenPassed) -> Effects:
        """Take the token over; the driver then calls the protocol's `follow` with `passed.latest`."""
        if self.is_here:
            raise RemoteProtocolError("there are two tokens")
        if passed.gone >> self.n or passed.gone >> self.me & 1 or any(p >= self.n for p in passed.queue):
            raise RemoteProtocolError(f"not a token for process {self.me} of {self.n}: {passed!r:.200}")
        self.is_here = True
        self._served, self._queue = dict(passed.served), list(passed.queue)
        self._gone |= passed.gone
        return [] if self.wants else self._pass_on(passed.latest)

    def join(self, process: int) -> Effects:
        """A new process exists; it has not heard our earlier request, so we repeat it."""
        self.n = max(self.n, process + 1)
        if self.wants and not self.is_here:
            return [Send(process, TokenRequest(self.me, self._asked[self.me]))]
        return []

    def leave(self, process: int, latest: Any) -> Effects:
        """A process has left in its turn; if it is this one, it hands the token over."""
        if process != self.me:
            self._gone |= 1 << process
            return []
        if not self.has_turn:
            raise LocalProtocolError("a process leaves in its turn: wait for the token")
        self._gone |= 1 << self.me
        return self.release(latest, away=True)

    def _line_up(self) -> None:
        """Add every process with an unserved request to the queue, those with indices above ours first."""
        waiting = (p for p in self._others() if self._asked.get(p, 0) > self._served.get(p, 0))
        new = sorted(set(waiting) - set(self._queue), key=lambda p: (p < self.me, p))
        self._queue = [p for p in (*self._queue, *new) if not self._gone >> p & 1]

    def _pass_on(self, latest: Any) -> Effects:
        self._line_up()
        if not self._queue:
            return []
        to, *rest = self._queue
        served = tuple(sorted(self._served.items()))
        self.is_here, self._served, self._queue = False, {}, []
        return [Send(to, TokenPassed(served, tuple(rest), self._gone, latest))]

    def state(self) -> list[Any]:
        told = [sorted(each.items()) for each in (self._asked, self._served)]
        return [self.n, self.is_here, self.wants, *told, self._queue, hex(self._gone)]

    def restore(self, state: list[Any]) -> None:
        self.n, self.is_here, self.wants, asked, served, queue, gone = state
        self._asked, self._served, self._queue = dict(asked), dict(served), list(queue)
        self._gone = int(gone, 16)
