"""Forgetting by the clock: with a bound Δ on the time in which every message is delivered, what a process
knew Δ ago is delivered everywhere, and need not be told any more (Rodrigues & Veríssimo 1995, §4.5 of the
report).

Assumes    every message is delivered at all its destinations within Δ of its multicast, also when a process
           is away meanwhile: a process that may be away for an hour makes Δ more than an hour. Where that is
           false, a message may be delivered before one that it follows; nothing is lost or repeated.
Promises   `expire` is called at intervals of Δ at least, as an input of the engine, so that the journal has
           it. Not while a frame of our own has been waiting for its acknowledgement since the last time: then
           we see that the assumption is false.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager

from ..core.errors import LocalProtocolError
from ..ordering import Facts, able
from ..ordering.capabilities import Expires
from .engine import Engine

log = logging.getLogger("happened.node")


def check_expiry(seconds: float, facts: Facts) -> None:
    """Refuse a bound that is none, or a protocol that forgets nothing by the clock."""
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not seconds > 0:
        raise LocalProtocolError(f"`expiry` is a number of seconds above 0, not {seconds!r}")
    if facts.name not in able(Expires):
        raise LocalProtocolError(
            f"{facts.name} keeps nothing that a bound on delivery would let it forget; `expiry` is for "
            f"{', '.join(able(Expires))}"
        )


class Expiry:
    """Calls `expire` every so many `seconds`; `input` surrounds what the engine is given."""

    def __init__(
        self, engine: Engine, seconds: float, input: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._engine, self._seconds, self._input = engine, seconds, input
        self._sent: dict[str, int] = {}  # per peer, the last frame at the time before
        self._is_late = False
        self._next = asyncio.get_running_loop().call_later(seconds, self._tick)

    def stop(self) -> None:
        self._next.cancel()

    def _tick(self) -> None:
        self._next = asyncio.get_running_loop().call_later(self._seconds, self._tick)
        engine = self._engine
        outboxes = {engine.roster.name(link): engine.outboxes[link] for link in engine.present_links()}
        late = [name for name, each in outboxes.items() if each.acknowledged < self._sent.get(name, 0)]
        if late and not self._is_late:
            told = {"node": engine.name, "peer": ", ".join(late), "reason": "nothing is forgotten"}
            log.warning("late", extra=told)
        self._is_late = bool(late)
        if not late:
            self._sent = {name: each.last for name, each in outboxes.items()}
            with self._input():
                engine.expire()
