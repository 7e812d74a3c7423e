"""The layer of a topology: what it and its changes do to a kernel; site_changes.py says when.

Messages come over the links that the topology says, and nothing is multicast while it changes.
"""

from collections.abc import Mapping
from typing import Any

from ..core.destinations import pack, unpack
from ..core.errors import LocalProtocolError, RemoteProtocolError
from ..ordering import having, needed
from ..ordering.capabilities import HasPlace, ReplacesForwarder
from ..ordering.capabilities import members as members_of
from ..wire import membership, resent, site_news
from .inputs import Input
from .kernel import Kernel
from .layer import Take
from .link_routes import Routes
from .site import Site
from .site_changes import SiteChanges
from .site_failures import Succession


class SiteSteps:
    """The steps (site_changes.Steps) of one kernel, whose process stands in `site`."""

    key = "site"

    def __init__(self, kernel: Kernel, site: Site, routes: Routes) -> None:
        self._kernel, self._routes = kernel, routes
        self.changes = SiteChanges(site, self)
        kernel.layers.append(self)
        kernel.may_send.append(self._check_settled)
        kernel.on_sent.append(self._note_sent)
        kernel.on_arrival.append(self._note_arrival)
        self._deliver, kernel.deliver = kernel.deliver, self._deliver_counted
        self._hear_members = kernel.frames[membership.MARK]
        kernel.frames[membership.MARK] = self._hear
        kernel.inputs[Input.SITE_PROPOSED] = lambda number, text: self.changes.propose(text.decode())
        self._has_witnesses = having(kernel.machine, ReplacesForwarder) is not None
        if self._has_witnesses:
            kernel.release_frames = self._hold_back
            kernel.let_go = self._let_go
        kernel.members.do_without(site.departed)

    # What passes.

    def _check_settled(self) -> None:
        if self.changes.change is not None:
            raise LocalProtocolError("the topology is changing; wait until there is room")

    def _note_sent(self, dests: int, clock: int) -> None:
        self.changes.tally.sent.update(unpack(dests))

    def _note_arrival(self, link: int, message: Any, frame: bytes) -> None:
        number = self._kernel.inboxes[link].received_through + 1
        self.changes.witnessing.arrived(link, message, frame, number)

    def _deliver_counted(self, sender: int, clock: int, payload: bytes) -> None:
        self.changes.tally.delivered[sender] += 1
        self._deliver(sender, clock, payload)

    def _hear(self, link: int, frame: bytes) -> None:
        if frame.startswith(site_news.HEAD):
            self.changes.hear(link, frame)
        elif frame.startswith(resent.HEAD):
            self._receive_resent(link, frame)
        else:
            self._hear_members(link, frame)

    def _receive_resent(self, link: int, frame: bytes) -> None:
        """Take a hop of a failed router from its witness, unless it has come before."""
        failed, inner = resent.decode(frame)
        changes = self.changes
        under_way = changes.change.succession if changes.change is not None else None
        if under_way is None or (under_way.failed, under_way.heir) != (failed, link):
            raise RemoteProtocolError(f"process {link} sends for process {failed}, which it does not succeed")
        message = self._kernel.read(failed, inner)
        if not changes.witnessing.is_known(failed, message.hop):
            self._kernel.receive_again(message)
            changes.witnessing.came_again(failed, message.hop)

    def _absent(self) -> set[int]:
        """Those whom nobody waits for."""
        return self._kernel.gone | self.changes.failed

    def _hold_back(self, through: Mapping[int, int]) -> None:
        self.changes.witnessing.hold_back(through, self._kernel.outboxes, self._absent())

    def _let_go(self) -> set[int]:
        """Release what waits for witnesses no more; returns the links on which there is more to send."""
        return self.changes.witnessing.let_go(self._kernel.outboxes, self._absent())

    # What a change does.

    def put(self, link: int, frame: bytes) -> object:
        return self._kernel.links.put(link, frame)

    def is_idle(self) -> bool:
        return not self._kernel.machine.pending_count

    def note_proposed(self, text: str) -> None:
        self._kernel.stage(Input.SITE_PROPOSED, 0, text.encode())

    def note_change(self, is_under_way: bool) -> None:
        if is_under_way:
            self._kernel.steps["site"] = self.changes.advance
        else:
            self._kernel.steps.pop("site", None)

    def go_on(self, site: Site) -> None:
        kernel, members = self._kernel, self._kernel.members
        for index in range(len(members.roster), len(site.members)):
            members_of(kernel.machine).join(index)
            members.roster.join(site.members[index])
            for note in kernel.joining:
                note(index)
            kernel.links.open(index)
            members.seniority.append(index)
        needed(kernel.machine, HasPlace).resume_at(site.place)
        self._routes.stand(site.place)
        members.addresses.update(site.addresses)
        members.addresses.pop(members.name, None)
        members.do_without(site.departed)
        members.joined += 1

    def lose(self, succession: Succession) -> None:
        kernel = self._kernel
        kernel.links.empty(succession.failed)
        self._bar(succession.failed)
        self._routes.expect_heir(succession)
        kernel.members.joined += 1

    def _bar(self, failed: int) -> None:
        name = self._kernel.roster.name(failed)
        self._kernel.barred[failed] = f"{name!r} was declared to have failed for good"

    def send_again(self, failed: int) -> None:
        changes = self.changes
        neighbours = changes.site.place.neighbours & ~pack(changes.failed)
        for kept in changes.witnessing.kept(failed):
            for link in unpack(kept.address & neighbours):
                self.put(link, resent.encode(failed, kept.frame))

    def stand_in(self, failed: int) -> None:
        self._kernel.perform(needed(self._kernel.machine, ReplacesForwarder).stand_in(failed))

    def do_without(self, failed: int) -> None:
        self._kernel.perform(needed(self._kernel.machine, HasPlace).do_without(failed))
        self._kernel.members.note_gone(failed)

    # What survives.

    def state(self) -> tuple[Any, list[bytes]]:
        kept, frames = self.changes.witnessing.state()
        return [self.changes.state(), kept], frames

    def restore(self, state: Any, take: Take) -> None:
        changes, (told, kept) = self.changes, state
        changes.restore(told)
        self._routes.stand(changes.site.place)
        self._kernel.barred.clear()
        for failed in changes.failed:
            self._bar(failed)
        if changes.change is not None and changes.change.succession is not None:
            self._routes.expect_heir(changes.change.succession)
        changes.witnessing.restore(kept, take)
        if self._has_witnesses:
            changes.witnessing.hold_back_again(self._kernel.outboxes, self._absent())
