"""What a change of the topology does to an engine; site_changes.py says when."""

from collections.abc import Iterable
from typing import Any, Protocol

from ..core.destinations import pack, unpack
from ..core.errors import RemoteProtocolError
from ..ordering import Machine, needed
from ..ordering.capabilities import HasPlace, ReplacesForwarder
from ..ordering.capabilities import members as members_of
from ..wire import decode, resent
from .link_routes import Routes
from .links import Links
from .member_changes import MemberChanges
from .signed import Signed
from .site import Site
from .site_changes import SiteChanges
from .site_failures import Succession
from .tracked import Tracking


class Placed(Protocol):
    """What of an engine a topology concerns."""

    machine: Machine
    tracking: Tracking | None
    signed: Signed | None
    replays: bool
    links: Links
    members: MemberChanges
    routes: Routes
    sites: SiteChanges | None

    def perform(self, effects: Iterable[Any]) -> None: ...
    def note_arrival(self, message: Any) -> None: ...


class SiteSteps:
    """The steps (site_changes.Steps) of one engine."""

    def __init__(self, engine: Placed) -> None:
        self._engine = engine

    def put(self, link: int, frame: bytes) -> object:
        return self._engine.links.put(link, frame)

    def is_idle(self) -> bool:
        return not self._engine.machine.pending_count

    def go_on(self, site: Site) -> None:
        engine, members = self._engine, self._engine.members
        for index in range(len(members.roster), len(site.members)):
            members_of(engine.machine).join(index)
            members.roster.join(site.members[index])
            if engine.tracking is not None:
                engine.tracking.join(index)
            engine.links.open(index)
            members.seniority.append(index)
        needed(engine.machine, HasPlace).resume_at(site.place)
        engine.routes.stand(site.place)
        members.addresses.update(site.addresses)
        members.addresses.pop(members.name, None)
        members.do_without(site.departed)
        members.joined += 1

    def lose(self, succession: Succession) -> None:
        self._engine.links.empty(succession.failed)
        self._engine.routes.expect_heir(succession)
        self._engine.members.joined += 1

    def send_again(self, failed: int) -> None:
        sites = self._engine.sites
        assert sites is not None
        neighbours = sites.site.place.neighbours & ~pack(sites.failed)
        for kept in sites.witnessing.kept(failed):
            for link in unpack(kept.address & neighbours):
                self.put(link, resent.encode(failed, kept.frame))

    def stand_in(self, failed: int) -> None:
        self._engine.perform(needed(self._engine.machine, ReplacesForwarder).stand_in(failed))

    def do_without(self, failed: int) -> None:
        self._engine.perform(needed(self._engine.machine, HasPlace).do_without(failed))
        self._engine.members.note_gone(failed)


def receive_resent(engine: Placed, sites: SiteChanges, link: int, frame: bytes) -> None:
    """Take a hop of a failed router from its witness, unless it has come before."""
    failed, inner = resent.decode(frame)
    under_way = sites.change.succession if sites.change is not None else None
    if under_way is None or (under_way.failed, under_way.heir) != (failed, link):
        raise RemoteProtocolError(f"process {link} sends for process {failed}, which it does not succeed")
    message, _ = decode(inner if engine.tracking is None else engine.tracking.unframe(inner))
    if message.via != failed:
        raise RemoteProtocolError(f"a message of process {message.via} comes for process {failed}")
    if not engine.routes.leads(failed, message.sender):
        raise RemoteProtocolError(f"a message of process {message.sender} never came from {failed}")
    if engine.signed is not None and not engine.replays:
        engine.signed.check(message, engine.members.roster, tracked=engine.tracking is not None)
    if not sites.witnessing.is_known(failed, message.hop):
        if engine.tracking is not None:
            engine.tracking.check(message)
        effects = engine.machine.receive(message)
        sites.witnessing.came_again(failed, message.hop)
        engine.note_arrival(message)
        engine.perform(effects)
