"""The layer of the token, for protocols whose sends must be serialized: ordering/token.py on real links.

Everything about the token is an input of the kernel: that the node wants its turn or ends it, and frames. So
the journal has it, and a holder of the token that is killed has the token when it comes back.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ..core.effects import Send
from ..core.errors import CausalityError, LocalProtocolError, RemoteProtocolError
from ..ordering import Multicast, needed
from ..ordering.capabilities import Serializes
from ..ordering.token import Token, TokenRequest
from ..wire.token_frames import MARK, decode, encode
from .batch import Input, Take
from .kernel import Kernel

TURN = 0.005
"""Seconds: long enough that many messages share one passing of the token, short enough for other senders."""
LONGEST = 20


class Serialization:
    """The token as the process of a kernel sees it."""

    key = "token"

    def __init__(self, kernel: Kernel) -> None:
        self.token = Token(kernel.me, len(kernel.roster))
        self.kernel, self._machine = kernel, needed(kernel.machine, Serializes)
        kernel.layers.append(self)
        self._order, kernel.order = kernel.order, self._order_in_turn
        kernel.members.may_leave.append(self._check_turn)
        kernel.frames[MARK] = self._hear
        kernel.inputs[Input.TOKEN_WANTED] = lambda number, data: self.want()
        kernel.inputs[Input.TOKEN_RELEASED] = lambda away, data: self.release(away=bool(away))
        kernel.joined.append(lambda process: self._send(self.token.join(process)))
        kernel.left.append(lambda process: self._send(self.token.leave(process, self._machine.latest)))

    @property
    def has_turn(self) -> bool:
        return self.token.has_turn

    def _order_in_turn(self, to: Sequence[int], payload: bytes) -> Multicast:
        self._check_turn()
        return self._order(to, payload)

    def _check_turn(self) -> None:
        if not self.token.has_turn:
            raise LocalProtocolError(
                f"{self.kernel.name!r} does not have the token; wait until there is room"
            )

    def want(self) -> None:
        self.kernel.check_has_not_left()
        self._send(self.token.request())
        self.kernel.stage(Input.TOKEN_WANTED, 0)

    def release(self, *, away: bool = False) -> None:
        """End our turn. `away`: we shall not hear further requests for the token."""
        self._send(self.token.release(self._machine.latest, away=away))
        self.kernel.stage(Input.TOKEN_RELEASED, int(away))

    def _hear(self, link: int, frame: bytes) -> None:
        message = decode(frame)
        if isinstance(message, TokenRequest):
            if message.process != link:
                raise RemoteProtocolError(f"process {link} asks for the token for process {message.process}")
            self._send(self.token.receive_request(message, self._machine.latest))
            return
        before = self.token.state()
        effects = self.token.receive_token(message)
        try:
            self._machine.follow(message.latest)
        except (CausalityError, TypeError, ValueError) as error:
            self.token.restore(before)
            raise RemoteProtocolError(f"a token that cannot be: {error}") from error
        self._send(effects)

    def _send(self, effects: Iterable[Send[Any]]) -> None:
        for to, message in effects:
            self.kernel.links.put(to, encode(message))

    def state(self) -> tuple[Any, list[bytes]]:
        return self.token.state(), []

    def restore(self, state: Any, take: Take) -> None:
        self.token.restore(state)


class Turns:
    """When a node asks for the token, and when its turn ends. `input` surrounds inputs of the engine.

    A turn begins when the token is here and a task waits to send. It lasts TURN seconds, in which this node
    may send as many messages as there is room for; up to LONGEST times that, if no waiting task has got to
    send yet. Then the token goes to a process that asked for it; if none has, it stays, and asking again
    costs nothing. A node that closes passes the token on in any case, since others could ask in vain until it
    is back.
    """

    def __init__(
        self,
        layer: Serialization,
        loop: asyncio.AbstractEventLoop,
        input: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._layer, self._kernel, self._loop, self._input = layer, layer.kernel, loop, input
        self._waiting = self._sent_before = self._extended = 0
        self._end: asyncio.TimerHandle | None = None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Within this context, a task waits for a turn."""
        self._waiting += 1
        try:
            self._want()
            yield
        finally:
            self._waiting -= 1

    def _want(self) -> None:
        if not self._layer.has_turn:
            with self._input():
                self._layer.want()

    def notice(self) -> None:
        """Check whether our turn has begun: any input of the engine may have begun it."""
        if self._layer.has_turn and self._end is None:
            self._sent_before, self._extended = self._kernel.sent, 0
            self._end = self._loop.call_later(TURN, self._over)

    def _over(self) -> None:
        self._end = None
        if not self._layer.has_turn:
            return
        if self._waiting and self._kernel.sent == self._sent_before and self._extended < LONGEST:
            self._extended += 1
            self._end = self._loop.call_later(TURN, self._over)
            return
        with self._input():
            self._layer.release()
        if self._waiting:
            self._want()

    def cancel(self) -> None:
        """Cancel what would be done at the end of our turn."""
        if self._end is not None:
            self._end.cancel()

    @property
    def is_asking(self) -> bool:
        """Whether the token is on its way to us, or will be."""
        return self._layer.token.wants and not self._layer.token.is_here

    def pass_on(self) -> None:
        self.cancel()
        if self._layer.token.is_here and self._kernel.present_links() and not self._kernel.has_left:
            with self._input():
                self._layer.release(away=True)
