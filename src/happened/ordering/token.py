"""The right to send, for protocols whose sends must be serialized: one token, which whoever wants to send
asks for (Suzuki & Kasami, "A distributed mutual exclusion algorithm", ACM TOCS 3(4), 1985).

Assumes    reliable links; no process is lost for good while it is a member (it may be away, and come back as
           it was); everybody hears who joins and leaves; members are numbered alike, and no index is given
           again.
Promises   at most one process has its turn at any time, so sends are serialized: with the token comes what
           its last holder knew of the sends before (`latest` and `follow` of the protocol).
           Whoever asks gets its turn, if everybody who has one ends it: who asked is served in order.
           Process 0 has the token in the beginning. A process leaves in its turn, and hands the token over.
Costs      a request to everybody and one token for a turn; nothing if the token is here, or if nobody asks.
Invariant  exactly one process, or one message on its way, has the token. Nobody who has left ever gets it:
           each left in its turn, and since then the token says that it has gone.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from ..core.destinations import unpack
from ..core.effects import Send
from ..core.errors import LocalProtocolError, RemoteProtocolError


class TokenRequest(NamedTuple):
    """A process asks for its turn, for the so many-th time."""

    process: int
    number: int


class TokenPassed(NamedTuple):
    served: tuple[tuple[int, int], ...]  # per process the number of its last request that was served
    queue: tuple[int, ...]  # who gets it next, in this order
    gone: int  # bit set: who has left
    latest: Any  # what the next sender must know of the sends before


Effects = list[Send[Any]]


class Token:
    """What process `me` of n knows of the token."""

    def __init__(self, me: int, n: int) -> None:
        self.me = me
        self.n = n
        self.is_here = me == 0
        self.wants = False  # whether it has asked for its turn, which has not ended
        self._asked: dict[int, int] = {}  # per process the number of its last request
        self._served: dict[int, int] = {}  # of the token, while it is here; likewise the queue
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
        """End our turn. `away`: pass the token on in any case, since we shall not hear who asks for it."""
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
        """Take the token over; the driver has the protocol `follow` what comes with it."""
        if self.is_here:
            raise RemoteProtocolError("there are two tokens")
        if passed.gone >> self.n or passed.gone >> self.me & 1 or any(p >= self.n for p in passed.queue):
            raise RemoteProtocolError(f"not a token for process {self.me} of {self.n}: {passed!r:.200}")
        self.is_here = True
        self._served, self._queue = dict(passed.served), list(passed.queue)
        self._gone |= passed.gone
        return [] if self.wants else self._pass_on(passed.latest)

    def join(self, process: int) -> Effects:
        """A process exists from now on; it has not heard what we asked for."""
        self.n = max(self.n, process + 1)
        if self.wants and not self.is_here:
            return [Send(process, TokenRequest(self.me, self._asked[self.me]))]
        return []

    def leave(self, process: int, latest: Any) -> Effects:
        """A process has left, in its turn; if it is this one, it hands the token over."""
        if process != self.me:
            self._gone |= 1 << process
            return []
        if not self.has_turn:
            raise LocalProtocolError("a process leaves in its turn: wait for the token")
        self._gone |= 1 << self.me
        return self.release(latest, away=True)

    def _line_up(self) -> None:
        """Let everybody into the queue who has asked and was not served; those after us come first."""
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
