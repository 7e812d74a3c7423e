"""When a node asks for the token of serialized sends, and when its turn ends.

A turn begins when the token is here and somebody waits to send. It lasts TURN seconds, in which this node may
send as many messages as there is room for; up to LONGEST times that, if none of those who wait has come to
send yet. Then the token goes to whoever has asked for it; if nobody has, it stays, and asking again costs
nothing. A node that closes passes it on in any case, since others could ask in vain until it is back.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .engine import Engine
from .serialized import Serialization

TURN = 0.005
"""Seconds: many messages of one sender share one passing of the token, and others do not wait long."""


LONGEST = 20


class Turns:
    """The turns of a node.

    given     is called before an input is given to the engine, and `changed` after
    """

    def __init__(
        self,
        engine: Engine,
        serialization: Serialization,
        loop: asyncio.AbstractEventLoop,
        given: Callable[[], None],
        changed: Callable[[], None],
    ) -> None:
        self._engine, self._serialization, self._loop = engine, serialization, loop
        self._given, self._changed = given, changed
        self._waiting = 0
        self._sent_before = 0
        self._extended = 0
        self._end: asyncio.TimerHandle | None = None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Somebody waits for a turn meanwhile."""
        self._waiting += 1
        try:
            self._want()
            yield
        finally:
            self._waiting -= 1

    def _want(self) -> None:
        if not self._engine.has_turn:
            self._given()
            self._serialization.want()
            self._changed()

    def notice(self) -> None:
        """See whether our turn has begun; it may have, whenever the engine was given something."""
        if self._engine.has_turn and self._end is None:
            self._sent_before, self._extended = self._engine.sent, 0
            self._end = self._loop.call_later(TURN, self._over)

    def _over(self) -> None:
        self._end = None
        engine = self._engine
        if not engine.has_turn:
            return
        if self._waiting and engine.sent == self._sent_before and self._extended < LONGEST:
            self._extended += 1
            self._end = self._loop.call_later(TURN, self._over)
            return
        self._given()
        self._serialization.release()
        self._changed()
        if self._waiting:
            self._want()

    def cancel(self) -> None:
        """Do nothing more when our turn is over."""
        if self._end is not None:
            self._end.cancel()

    @property
    def is_asking(self) -> bool:
        """Whether the token is on its way to us, or will be."""
        token = self._serialization.token
        return token.wants and not token.is_here

    def pass_on(self) -> None:
        """Give the token away, if it is here: the node closes."""
        self.cancel()
        engine, serialization = self._engine, self._serialization
        if serialization.token.is_here and engine.present_links() and not engine.has_left:
            self._given()
            serialization.release(away=True)
            self._changed()
