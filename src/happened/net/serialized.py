"""The layer of the token, for protocols whose sends must be serialized: ordering/token.py on real links.

Everything that concerns it is an input of the kernel: that the node wants its turn or ends it, and frames. So
the journal has it, and a holder that is killed has the token when it comes back.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from ..core.effects import Send
from ..core.errors import CausalityError, LocalProtocolError, RemoteProtocolError
from ..ordering import Multicast, needed
from ..ordering.capabilities import Serializes
from ..ordering.token import Token, TokenPassed, TokenRequest
from ..wire.token_frames import MARK, decode, encode
from .inputs import Input
from .kernel import Kernel
from .layer import Take


class Serialization:
    """The token as the process of a kernel sees it."""

    key = "token"

    def __init__(self, kernel: Kernel) -> None:
        self.token = Token(kernel.me, len(kernel.roster))
        self._kernel, self._machine = kernel, needed(kernel.machine, Serializes)
        kernel.layers.append(self)
        self._order, kernel.order = kernel.order, self._order_in_turn
        kernel.members.may_leave.append(self._check_turn)
        kernel.frames[MARK] = self._hear
        kernel.inputs[Input.TOKEN_WANTED] = lambda number, data: self.want()
        kernel.inputs[Input.TOKEN_RELEASED] = lambda away, data: self.release(away=bool(away))
        kernel.joined.append(self._join)
        kernel.left.append(self._leave)

    @property
    def has_turn(self) -> bool:
        """Whether this process may multicast now."""
        return self.token.has_turn

    def _order_in_turn(self, to: Sequence[int], payload: bytes) -> Multicast:
        self._check_turn()
        return self._order(to, payload)

    def _check_turn(self) -> None:
        if not self.token.has_turn:
            raise LocalProtocolError(
                f"{self._kernel.name!r} does not have the token; wait until there is room"
            )

    def want(self) -> None:
        """Ask for a turn to send."""
        if self._kernel.has_left:
            raise LocalProtocolError(f"{self._kernel.name!r} has left the others, or they have expelled it")
        self._send(self.token.request())
        self._kernel.stage(Input.TOKEN_WANTED, 0)

    def release(self, *, away: bool = False) -> None:
        """End our turn. `away`: we shall not hear who asks for the token next."""
        self._send(self.token.release(self._machine.latest, away=away))
        self._kernel.stage(Input.TOKEN_RELEASED, int(away))

    def _join(self, process: int) -> None:
        self._send(self.token.join(process))

    def _leave(self, process: int) -> None:
        self._send(self.token.leave(process, self._machine.latest))

    def _hear(self, link: int, frame: bytes) -> None:
        message = decode(frame)
        if isinstance(message, TokenRequest):
            if message.process != link:
                raise RemoteProtocolError(f"process {link} asks for the token for process {message.process}")
            self._send(self.token.receive_request(message, self._machine.latest))
        else:
            self._take_over(message)

    def _take_over(self, passed: TokenPassed) -> None:
        before = self.token.state()
        effects = self.token.receive_token(passed)
        try:
            self._machine.follow(passed.latest)
        except (CausalityError, TypeError, ValueError) as error:
            self.token.restore(before)
            raise RemoteProtocolError(f"a token that cannot be: {error}") from error
        self._send(effects)

    def _send(self, effects: Iterable[Send[Any]]) -> None:
        for to, message in effects:
            self._kernel.links.put(to, encode(message))

    def state(self) -> tuple[Any, list[bytes]]:
        return self.token.state(), []

    def restore(self, state: Any, take: Take) -> None:
        self.token.restore(state)
