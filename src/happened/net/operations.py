"""An operator's changes to the members and the topology of a running system: see `Node` for each."""

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path

from ..core.errors import LocalProtocolError
from .errors import NodeError
from .running import Running
from .sending import StateGiving
from .site import proposal
from .site_changes import SiteChanges
from .site_failures import How, check_witnesses, succession_proposal


class Operations:
    def __init__(self, running: Running, addresses: Mapping[str, str], states: StateGiving) -> None:
        self._states = states
        self._running, self._engine, self._members = running, running.engine, running.members
        self._addresses = addresses  # of the peers at the start
        self._told: set[str] = set()  # processes that we have admitted since then

    # Changes of members without a topology.

    def _check_may_change(self) -> None:
        if (site := self._running.site) is not None:
            raise LocalProtocolError(
                f"members follow from {site.source}: write another topology, and change_topology to it"
            )

    async def join(self, name: str, address: str) -> tuple[str, ...]:
        running = self._running
        self._check_may_change()
        running.transport.check_address(name, address)  # first: all others remember it for ever
        if name not in self._told and self._members.is_newest(name, address):
            self._told.add(name)  # a crash came before the caller got the answer
            await running.flush()
            return tuple(self._members.names)
        with running.input():
            before = self._members.names
            members = self._members.join(name, address)
            self._told.add(name)
            if self._states.gives:
                self._engine.transfers.owe(self._members.index[name])
            running.joined = self._engine.members.joined
            for former in self._members.replaced(before):
                running.transport.remove_peer(former)
            running.transport.add_peer(name, address)
        await running.flush()
        return members

    async def leave(self, timeout: float) -> None:
        running, name = self._running, self._running.name
        self._check_may_change()
        if self._engine.transfers.owed:
            owed = ", ".join(map(self._engine.roster.name, self._engine.transfers.owed))
            raise LocalProtocolError(f"{name!r} is to give a state to {owed}, and leaves when it has")
        deadline = running.loop.time() + timeout
        # Otherwise a protocol that keeps some multicasts back might never have sent them all.
        running.is_leaving = True
        try:
            while self._engine.machine.queued:
                await self._pause_until(deadline, f"{name!r} could not send all its messages")
            with running.turns.waiting() if running.turns is not None else contextlib.nullcontext():
                while not self._engine.has_turn:
                    await self._pause_until(deadline, f"{name!r} did not get the token")
            with running.input():
                self._members.leave()
        finally:
            running.is_leaving = False
            running.room.set()
        await running.flush()
        while not self._members.everybody_said_farewell:
            await self._pause_until(deadline, f"not everybody has said farewell to {name!r}")

    async def expel(self, name: str) -> None:
        self._check_may_change()
        with self._running.input():
            self._members.expel(name)
        self._running.measure_room()
        await self._running.flush()
        self._running.transport.remove_peer(name)

    async def _pause_until(self, deadline: float, why: str) -> None:
        if self._running.loop.time() > deadline:
            raise NodeError(f"{why} in time; it is still a member where that has not been heard")
        await asyncio.sleep(0.01)

    # Changes of the topology.

    async def change_topology(
        self, file: Path, addresses: Mapping[str, str] | None, timeout: float
    ) -> tuple[str, ...]:
        sites = self._sites()
        text = proposal(file, sites.site, self._known(addresses), sites.past)
        return await self._change(sites, text, timeout)

    async def succeed(
        self,
        failed: str,
        heir: str | None,
        how: str,
        addresses: Mapping[str, str] | None,
        timeout: float,
    ) -> tuple[str, ...]:
        sites, transport = self._sites(), self._running.transport
        if how not in (each.value for each in How):
            raise LocalProtocolError(f"a process is succeeded by witness or by collection, not by {how!r}")
        check_witnesses(self._running.facts, How(how))
        if How(how) is How.WITNESS and not transport.acknowledges_for_peers:
            raise LocalProtocolError(
                f"{type(transport).__name__} keeps messages itself, so a witness cannot know what the "
                "failed process sent: start that one again from its journal, or succeed it by collection"
            )
        text = succession_proposal(sites.site, failed, heir, How(how), self._known(addresses), sites.past)
        return await self._change(sites, text, timeout)

    def _sites(self) -> SiteChanges:
        if self._engine.sites is None:
            raise LocalProtocolError(
                f"{self._running.name!r} has no topology: start it with one to change it"
            )
        return self._engine.sites

    def _known(self, given: Mapping[str, str] | None) -> dict[str, str]:
        return {**self._addresses, **self._engine.members.addresses, **(given or {})}

    async def _change(self, sites: SiteChanges, text: str, timeout: float) -> tuple[str, ...]:
        running = self._running
        with running.input():
            sites.propose(text)
            running.after_a_change()  # a process alone in its part is in the next topology at once
        running.measure_room()
        await running.flush()
        deadline = running.loop.time() + timeout
        while sites.change is not None:
            await self._pause_until(deadline, f"{', '.join(sites.awaited())} did not finish the change")
        return tuple(self._members.names)
