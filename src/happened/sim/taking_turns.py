"""The token of serialized sends in a simulated run: sends wait until their process has its turn.

The machine is that of real nodes (ordering/token.py). A process in its turn sends all that waits, and then
passes the token on. Requests and the token take as long as other packets; a network that doubles packets does
not double them, as the links of nodes do not.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..core.effects import Send
from ..ordering.capabilities import Serializes
from ..ordering.messages import ENTRY_BYTES
from ..ordering.token import Token, TokenPassed, TokenRequest
from ..wire.token_frames import encode


class TakingTurns:
    """The tokens of `machines`.

    send      lets a process multicast what waited: the arguments that `ask` was given
    put       puts a token's message on the link from a process to another
    """

    def __init__(
        self,
        machines: Sequence[Serializes],
        send: Callable[..., None],
        put: Callable[[int, int, TokenRequest | TokenPassed], None],
    ) -> None:
        self._machines, self._send, self._put = machines, send, put
        self._tokens = [Token(me, len(machines)) for me in range(len(machines))]
        self._waiting: list[deque[tuple[Any, ...]]] = [deque() for _ in machines]

    def ask(self, process: int, *arguments: Any) -> None:
        """Send as soon as it is this process's turn."""
        self._waiting[process].append(arguments)
        self._perform(process, self._tokens[process].request())
        self._serve(process)

    def arrive(self, process: int, message: TokenRequest | TokenPassed) -> None:
        machine, token = self._machines[process], self._tokens[process]
        if isinstance(message, TokenRequest):
            self._perform(process, token.receive_request(message, machine.latest))
        else:
            effects = token.receive_token(message)
            machine.follow(message.latest)
            self._perform(process, effects)
            self._serve(process)

    def _serve(self, process: int) -> None:
        token, waiting = self._tokens[process], self._waiting[process]
        if token.has_turn:
            while waiting:
                self._send(process, *waiting.popleft())
            self._perform(process, token.release(self._machines[process].latest))

    def _perform(self, process: int, effects: Iterable[Send[Any]]) -> None:
        for to, message in effects:
            self._put(process, to, message)


def control_of(message: TokenRequest | TokenPassed) -> tuple[int, int, int, int]:
    """Its entries, units, bytes as encoded and bytes in the papers' model: it is all control information."""
    entries = 1
    if isinstance(message, TokenPassed):
        entries = len(message.served) + len(message.queue) + _links(message.latest)
    return entries, 0, len(encode(message)), ENTRY_BYTES * entries


def _links(latest: Any) -> int:
    """How many messages are named: pairs of numbers."""
    if not isinstance(latest, tuple):
        return 0
    return 1 if all(isinstance(each, int) for each in latest) and latest else sum(map(_links, latest))
