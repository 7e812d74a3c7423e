"""The application's side of a state transfer (state_transfer.py): when its state is taken, and what waits.

Promises   the application is asked for its state between two steps of the event loop, at a time at which it
           has acknowledged every message that was sent without the newcomer. What it gives is journaled with
           its acknowledgements so far, or not at all: a node that is killed before asks again.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..core.errors import LocalProtocolError
from ..ordering import Facts
from .errors import EngineFault, NodeError
from .payloads import Payloads
from .running import Running
from .signed import HEAD

log = logging.getLogger("happened.node")

PART_BYTES = 128 << 10
"""Of the state in one message."""


def check_state(facts: Facts, *, journaled: bool, topology: bool) -> None:
    """Raise LocalProtocolError where a state can be neither given nor begun with."""
    why = None
    if not journaled:
        why = "a journal, in which it is certain what the state contains"
    elif topology or not facts.membership.joins:
        why = "members that join, as they cannot here"
    elif facts.assumes.serialized or facts.qualifier.keyword or "unicast" not in facts.assumes.casts:
        why = f"a protocol that can order a message to one process at any time, and not {facts.name}"
    if why is not None:
        raise LocalProtocolError(f"a newcomer that begins with a state needs {why}")


class StateGiving:
    """`take` makes the application's state; None: it gives none."""

    def __init__(self, running: Running, payloads: Payloads, take: Callable[[], Any] | None) -> None:
        self._running, self._engine, self._payloads = running, running.engine, payloads
        self._take = take
        self._through: dict[int, int] = {}  # per newcomer, the deliveries that its state must contain
        self._troubles: dict[int, str] = {}

    @property
    def gives(self) -> bool:
        return self._take is not None

    async def await_from(self, source: str) -> None:
        """Note, in a new journal, that this process begins with a state; an older one knows."""
        engine, running = self._engine, self._running
        if engine.transfers.awaited is not None or engine.transfers.has_begun:
            return
        if engine.events or any(inbox.received_through for inbox in engine.inboxes.values()):
            raise LocalProtocolError(f"{running.name!r} has begun without a state: join under a new name")
        with running.input():
            engine.transfers.wait_for(engine.roster.index(source))
        await running.commits.settled()

    def notice(self) -> None:
        """Something was delivered or acknowledged, or somebody has come or gone."""
        engine = self._engine
        awaited = engine.transfers.awaited
        if awaited is not None and awaited.source in engine.gone:
            source = engine.roster.name(awaited.source)
            self._running.fail(
                NodeError(
                    f"{source!r} has gone, and has not given the state: join under a new name elsewhere"
                )
            )
        if not engine.transfers.owed or not self._running.life.is_running or self._take is None:
            return
        for newcomer in list(engine.transfers.owed):
            if newcomer not in self._through and not self._waits_for(newcomer):
                self._through[newcomer] = engine.delivered
            if engine.acknowledged >= self._through.get(newcomer, engine.delivered + 1):
                self._give(newcomer, self._take)

    def _waits_for(self, newcomer: int) -> list[int]:
        return self._engine.transfers.waits_for(newcomer, self._engine.members.departures)

    def _give(self, newcomer: int, take: Callable[[], Any]) -> None:
        running = self._running
        if newcomer in self._troubles:
            return
        most = min(PART_BYTES, running.limits.payload, running.transport.max_payload)
        if self._engine.signed is not None:
            most = max(1, most - HEAD)
        try:
            state = self._payloads.seal(self._payloads.encode(take()), None)
            if len(state) > running.limits.state:
                raise LocalProtocolError(f"it has {len(state)} bytes, more than limits.state")
            with running.input():
                self._engine.transfers.send_state(newcomer, state, most)
        except EngineFault as error:
            running.fail(error)
        except Exception as error:  # the application's, which must not end the node
            self._troubles[newcomer] = f"{type(error).__name__}: {error}"
            log.exception("%s has no state to give", running.name, extra={"node": running.name})
        self._through.pop(newcomer)

    def why_wait(self, links: Sequence[int] | None) -> str | None:
        """Why a multicast to these members must wait: a newcomer sends nothing before it has its state, and
        does not get too much before."""
        engine = self._engine
        if (awaited := engine.transfers.awaited) is not None:
            return f"waits for the state that {engine.roster.name(awaited.source)!r} is to give"
        for newcomer in engine.transfers.owed:
            is_concerned = links is None or newcomer in links
            if is_concerned and engine.outboxes[newcomer].last > self._running.limits.held:
                return f"has sent much to {engine.roster.name(newcomer)!r}, whose state is not taken yet"
        return None

    def problems(self) -> Iterator[str]:
        """For `health`."""
        engine, name = self._engine, self._engine.roster.name
        if (awaited := engine.transfers.awaited) is not None:
            yield f"waits for the state that {name(awaited.source)} is to give"
        for newcomer in engine.transfers.owed:
            if newcomer in self._troubles:
                why = f"cannot be taken: {self._troubles[newcomer]}"
            elif self._take is None:
                why = "is not given by this application: start it with Node(state=…)"
            elif waits_for := self._waits_for(newcomer):
                why = f"waits for messages of {', '.join(map(name, waits_for))}"
            else:
                why = "waits until the application has acknowledged what was delivered"
            yield f"the state for {name(newcomer)} {why}"
