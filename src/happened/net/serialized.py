"""The token in an engine, for protocols whose sends must be serialized: ordering/token.py on real links.

Everything that concerns it is an input of the engine: that the node wants its turn or ends it, and frames. So
the journal has it, and a holder that is killed has the token when it comes back.
"""

from collections.abc import Callable, Iterable
from typing import Any

from ..core.effects import Send
from ..core.errors import CausalityError, RemoteProtocolError
from ..ordering.capabilities import Serializes
from ..ordering.token import Token, TokenPassed, TokenRequest
from ..wire.token_frames import decode, encode


class Serialization:
    """The token as process `me` of n sees it; `put` puts a frame into the outbox of a link."""

    def __init__(self, machine: Serializes, me: int, n: int, put: Callable[[int, bytes], object]) -> None:
        self.token = Token(me, n)
        self._machine, self._put = machine, put

    def want(self) -> None:
        self._send(self.token.request())

    def release(self, *, away: bool) -> None:
        self._send(self.token.release(self._machine.latest, away=away))

    def join(self, process: int) -> None:
        self._send(self.token.join(process))

    def leave(self, process: int) -> None:
        self._send(self.token.leave(process, self._machine.latest))

    def hear(self, link: int, frame: bytes) -> None:
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
            self._put(to, encode(message))
