"""From one topology to the next while the system runs: processes and links that come and go.

A change is proposed at one process, and each process passes the proposal on over all its links. From then on
the applications wait, and messages sent before arrive over the links of the old topology. When no message is
on its way to anybody any more, all processes go on in the new topology. Nobody can then lack a message of the
old one, so the new one needs no history, log or copy of a witness from it (compare the flush of Birman,
Schiper & Stephenson, "Lightweight causal and atomic group multicast", 1991, at the end of a view).

    drained    A process says so on a link when it sends nothing more there: its application waits, it holds
               nothing, and every link whose messages it would forward on that link is drained towards it.
               Routes are a tree, so this comes to pass.
    finished   A process says so to everybody when all its links are drained both ways.

A process goes on when it has heard that all are finished. The frames of a link are in order, and news are
passed on before anything else: so messages sent in the new topology never come to a process that is still in
the old one. Of two concurrent proposals the one with the lesser digest is followed: its proposer never says
that it expects the other, so nobody can follow the other.

Assumes    everybody in the old topology takes part: a killed process is started again with its journal.
Leaves out a process that never comes back and is not succeeded: the others wait, and `awaited` names it.

Succession (site_failures.py) is a change in which one process has failed for good. A process that hears of it
takes nothing more from the failed one and sends it nothing; if that is alive after all, it is refused. Then

    witness      The heir sends the hops of the failed router that it keeps to the processes that may lack
                 them (site_failures.py), so that nobody waits for one any more. When the router's other
                 neighbours are drained towards the heir, the heir has everything that the router was given.
                 It forwards what the router had not, in its own name, and says "drained" on its behalf too.
    collection   Messages sent before the failure come before the proposal on every link. A process that has
                 the proposal from all its links waits for no hop of the failed process (`do_without`), and
                 says that it is drained when it has gone on from there. Survivors whom only the failed
                 process connected are told in each part, and each part goes on by itself: a link between
                 two parts is new, and carries nothing before both its ends are in the new topology.

After a succession, every process tells all others how many messages of each sender came in the old topology,
so that senders know what was lost. A succession may overrule a change that is under way, if it is proposed
at a process that has not finished: that change then never ends. Otherwise only one change is under way.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

from ..core.destinations import pack, unpack
from ..core.errors import CausalityError, LocalProtocolError, RemoteProtocolError
from ..core.places import onward_by_link
from ..ordering import having, needed
from ..ordering.capabilities import HasPlace, ReplacesForwarder
from ..ordering.capabilities import members as members_of
from ..wire import membership, resent
from ..wire import site_news as wire
from ..wire.site_news import (
    Account,
    HopsTaken,
    LinkDrained,
    LinkFlushed,
    ProcessFinished,
    SiteProposed,
    SuccessionProposed,
)
from .batch import Input, Take
from .kernel import Kernel
from .link_routes import Routes
from .site import Site, site_of
from .site_failures import How, Succession, Tally, Witnessing, succession_of, survivors_in_reach


class Change:
    """The state of one change of the topology, while it is under way."""

    def __init__(self, text: str, present: Site, *, is_succession: bool = True) -> None:
        self.text = text
        self.following = site_of(text, present.name)
        self.succession = succession_of(text, present) if is_succession else None
        self.heard: set[int] = set()  # in a succession: links over which its proposal has come
        self.has_acted = False  # in a succession: we have done what the others need of us
        self.drained: set[int] = set()  # links over which no more messages come
        self.said: set[int] = set()  # links on which we have said that we send nothing more
        self.finished: set[int] = set()  # processes that have finished, and expect `following`

        # Tells this change from other changes of the same topology.
        self.key = self.following.digest
        if self.succession is not None:
            self.key = hashlib.sha256(text.encode()).hexdigest()
        # Of two concurrent changes, the one of the lesser rank is followed.
        self.rank = (self.succession is None, self.key)


class SiteChanges:
    """The layer of a topology: the site in which the process of a kernel stands, and the change under way.

    Messages come only over the topology's links, and nothing is multicast during a change.
    """

    key = "site"

    def __init__(self, kernel: Kernel, site: Site, routes: Routes) -> None:
        self.site = site
        self.text = ""  # the last change's proposal; empty: there was none
        self.previous = ""  # the digest of the topology before that
        self.previous_links: tuple[str, ...] = ()
        self.past = [site.base]  # of all topologies with the present members, the current one last
        self.failed: set[int] = set()  # members that were declared to have failed for good
        self.change: Change | None = None
        self.tally = Tally()
        self._put = kernel.links.put
        self.witnessing = Witnessing(site, self._put)
        self._kernel, self._routes = kernel, routes
        kernel.layers.append(self)
        kernel.may_send.append(self._check_settled)
        kernel.on_sent.append(lambda dests, clock: self.tally.sent.update(unpack(dests)))
        kernel.on_arrival.append(self._note_arrival)
        self._deliver, kernel.deliver = kernel.deliver, self._deliver_counted
        self._hear_members = kernel.frames[membership.MARK]
        kernel.frames[membership.MARK] = self._hear
        kernel.inputs[Input.SITE_PROPOSED] = lambda number, text: self.propose(text.decode())
        self._has_witnesses = having(kernel.machine, ReplacesForwarder) is not None
        if self._has_witnesses:
            kernel.release_frames = self._hold_back
            kernel.let_go = self._let_go
        kernel.members.do_without(site.departed)

    # Functions that the kernel calls.

    def _check_settled(self) -> None:
        if self.change is not None:
            raise LocalProtocolError("the topology is changing; wait until there is room")

    def _note_arrival(self, link: int, message: Any, frame: bytes) -> None:
        number = self._kernel.inboxes[link].received_through + 1
        self.witnessing.arrived(link, message, frame, number)

    def _deliver_counted(self, sender: int, clock: int, payload: bytes) -> None:
        self.tally.delivered[sender] += 1
        self._deliver(sender, clock, payload)

    def _hear(self, link: int, frame: bytes) -> None:
        if frame.startswith(wire.HEAD):
            self._hear_news(link, wire.decode(frame))
        elif frame.startswith(resent.HEAD):
            self._receive_resent(link, frame)
        else:
            self._hear_members(link, frame)

    def _receive_resent(self, link: int, frame: bytes) -> None:
        """Take a hop of a failed router from its witness, unless it has come before."""
        failed, inner = resent.decode(frame)
        under_way = self.change.succession if self.change is not None else None
        if under_way is None or (under_way.failed, under_way.heir) != (failed, link):
            raise RemoteProtocolError(f"process {link} sends for process {failed}, which it does not succeed")
        message = self._kernel.read(failed, inner)
        if not self.witnessing.is_known(failed, message.hop):
            self._kernel.receive_again(message)
            self.witnessing.came_again(failed, message.hop)

    def _absent(self) -> set[int]:
        """Indices of members that left, were expelled or failed: nobody waits for them."""
        return self._kernel.members.gone | self.failed

    def _hold_back(self, through: Mapping[int, int]) -> None:
        self.witnessing.hold_back(through, self._kernel.links.outboxes, self._absent())

    def _let_go(self) -> set[int]:
        """Release frames that wait for witnesses no more; returns the links that have more to send."""
        return self.witnessing.let_go(self._kernel.links.outboxes, self._absent())

    # Steps of a change.

    def propose(self, text: str) -> None:
        """Change the topology, as soon as everything sent so far has arrived everywhere."""
        change = Change(text, self.site)
        if self.site.departed >> self.site.me & 1:
            raise LocalProtocolError(f"{self.site.name!r} has left the topology")
        present = self.change
        # We have not finished the present change and shall not finish it, so nobody can have ended it.
        if present is not None and (
            change.succession is None or present.succession is not None or self.site.me in present.finished
        ):
            raise LocalProtocolError(
                "the topology is changing; wait until that has ended"
                + (f", for which {', '.join(self.awaited())} must come back" if change.succession else "")
            )
        if change.following.base == self.site.base:
            raise LocalProtocolError("the proposed topology is the present one")
        self._check_follows(change)
        self._begin(change)
        self.advance()
        self._kernel.stage(Input.SITE_PROPOSED, 0, text.encode())

    def _hear_news(self, link: int, news: wire.SiteNews) -> None:
        if news.after != self.site.digest:
            return  # of a change that has ended here
        if isinstance(news, SiteProposed | SuccessionProposed):
            self._hear_proposed(link, news)
        elif isinstance(news, HopsTaken):
            self.witnessing.hear(link, news)
        elif isinstance(news, Account):
            if news.index not in self.tally.heard:
                self.tally.hear(self.site.me, news.index, news.counts)
                self._tell(news, besides=link)
        elif self.change is None:
            raise RemoteProtocolError(f"process {link} tells of a change that it has not proposed to us")
        elif isinstance(news, ProcessFinished):
            if news.next == self.change.key and news.index not in self.change.finished:
                self.change.finished.add(news.index)
                self._tell(news, besides=link)
        elif isinstance(news, LinkDrained):
            if self.change.succession is None:
                self.change.drained.add(link)
        elif news.next == self.change.key:
            self.change.drained.add(link)

    def _hear_proposed(self, link: int, news: SiteProposed | SuccessionProposed) -> None:
        present = self.change
        if present is None or present.text != news.text:
            try:
                is_succession = isinstance(news, SuccessionProposed)
                change = Change(news.text, self.site, is_succession=is_succession)
                self._check_follows(change)
            except CausalityError as error:
                raise RemoteProtocolError(f"a change of the topology is refused: {error}") from error
            if present is None or change.rank < present.rank:
                if present is not None and change.succession is None:
                    change.drained, change.said = present.drained, present.said
                self._begin(change)
        if self.change is not None and self.change.text == news.text:
            self.change.heard.add(link)

    def _check_follows(self, change: Change) -> None:
        known, following = self.site.members, change.following
        if following.members[: len(known)] != known or self.site.departed & ~following.departed:
            raise LocalProtocolError(
                "it numbers processes otherwise than the present one, or brings one back that has left"
            )
        if following.times_before != self.past.count(following.base):
            raise LocalProtocolError("it counts wrongly how often the same topology was there before")
        if change.succession is not None:
            failed = 1 << change.succession.failed
            if following.departed & ((1 << len(known)) - 1) != self.site.departed | failed:
                raise LocalProtocolError("it leaves out others than the process that has failed")

    def _begin(self, change: Change) -> None:
        self.change = change
        self._note_change()
        succession = change.succession
        if succession is None:
            self._tell(SiteProposed(self.site.digest, change.text))
            return
        self.failed.add(succession.failed)
        self._kernel.links.empty(succession.failed)
        self._bar(succession.failed)
        self._routes.expect_heir(succession)
        self._kernel.members.joined += 1
        self._tell(SuccessionProposed(self.site.digest, change.text))
        if succession.how is How.WITNESS:
            if succession.heir == self.site.me:
                self._send_again(succession.failed)
            else:
                change.has_acted = True

    def _note_change(self) -> None:
        """While a change is under way, check after each frame whether it can advance."""
        if self.change is not None:
            self._kernel.steps[self.key] = self.advance
        else:
            self._kernel.steps.pop(self.key, None)

    def _bar(self, failed: int) -> None:
        """Take nothing from a process that has failed, and send it nothing."""
        name = self.site.members[failed]
        self._kernel.barred[failed] = f"{name!r} was declared to have failed for good"

    def _send_again(self, failed: int) -> None:
        """Send the hops of a failed router again, as its witness."""
        neighbours = self.site.place.neighbours & ~pack(self.failed)
        for kept in self.witnessing.kept(failed):
            for link in unpack(kept.address & neighbours):
                self._put(link, resent.encode(failed, kept.frame))

    def _links(self) -> set[int]:
        return set(unpack(self.site.place.neighbours)) - self.failed

    def _tell(self, news: wire.SiteNews, besides: int | None = None) -> None:
        frame = wire.encode(news)
        for link in sorted(self._links() - {besides}):
            self._put(link, frame)

    def advance(self) -> None:
        change = self.change
        if change is None:
            return
        links = self._links()
        if change.succession is not None and not change.has_acted:
            self._act(change, change.succession, links)
        if not self._kernel.machine.pending_count and (change.succession is None or change.has_acted):
            for link in sorted(links - change.said):
                if self._sources(change, link) <= change.drained:
                    change.said.add(link)
                    drained: wire.SiteNews = LinkDrained(self.site.digest)
                    if change.succession is not None:
                        drained = LinkFlushed(self.site.digest, change.key)
                    self._put(link, wire.encode(drained))
            is_finished = links <= change.said and links <= change.drained
            if is_finished and self.site.me not in change.finished:
                change.finished.add(self.site.me)
                self._tell(ProcessFinished(self.site.digest, change.key, self.site.me))
        if not self.awaited():
            self._end(change)

    def _act(self, change: Change, succession: Succession, links: set[int]) -> None:
        """Do our part of a succession, once all that it needs has come."""
        kernel, failed = self._kernel, succession.failed
        if succession.how is How.COLLECTION:
            if links <= change.heard:
                change.has_acted = True
                kernel.perform(needed(kernel.machine, HasPlace).do_without(failed))
                kernel.members.note_gone(failed)
            return
        branches = dict(self.site.place.watches)[failed]
        around = {branch.towards for branch in branches if branch.towards != self.site.me}
        if around <= change.drained and not kernel.machine.pending_count:
            change.has_acted = True
            self.stand_in(failed)

    def stand_in(self, failed: int) -> None:
        """Forward what a failed router still had to forward, as its witness."""
        self._kernel.perform(needed(self._kernel.machine, ReplacesForwarder).stand_in(failed))

    def _sources(self, change: Change, link: int) -> set[int]:
        """The links that must be drained before we can be sure to send nothing more on this one."""
        feeding = onward_by_link(self.site.place)
        sources = {source for source, onto in feeding.items() if onto >> link & 1}
        succession = change.succession
        if succession is not None and succession.failed in sources:
            sources.discard(succession.failed)
            # What the heir brings in the router's stead it has: it need not get it back, even as our witness.
            if succession.how is How.WITNESS and succession.heir not in (None, self.site.me, link):
                sources.add(succession.heir)
        return sources

    def _end(self, change: Change) -> None:
        """All processes have finished: go on in the topology that follows."""
        self.previous, self.previous_links = self.site.digest, self.site.links
        if len(change.following.members) > len(self.site.members):
            self.past = []  # no topology so far had the members that there are now
        self.past.append(change.following.base)
        self.change, self.site, self.text = None, change.following, change.text
        self._note_change()
        self.witnessing.stand(self.site)
        failed = None if change.succession is None else change.succession.failed
        account = self.tally.turn(self.site.me, failed)
        self._go_on()
        if failed is not None:
            self._tell(Account(self.site.digest, self.site.me, account))

    def _go_on(self) -> None:
        """Move to the new site: everything that anybody sent in the last one has been delivered."""
        site, kernel, members = self.site, self._kernel, self._kernel.members
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

    def digests(self, peer: str) -> set[str]:
        """The digests of the topologies that a peer may be in while we work with it. A change ends earlier
        for one process than for another; meanwhile the two tell each other of it over a link of the old
        topology. Over a new link nothing may come before the change has ended for both."""
        if self.has_failed(peer):
            return set()
        found = {self.site.digest}
        if self.change is not None and peer in self.site.links:
            found.add(self.change.following.digest)
        if peer in self.previous_links:
            found.add(self.previous)
        return found

    def has_failed(self, peer: str) -> bool:
        return any(self.site.members[process] == peer for process in self.failed)

    def awaited(self) -> list[str]:
        """The names of the processes that have not finished the current change."""
        if self.change is None:
            return []
        here = (1 << len(self.site.members)) - 1 & ~self.site.departed
        if self.change.succession is not None:
            here = survivors_in_reach(self.site, self.change.succession.failed)
        return [self.site.members[p] for p in unpack(here) if p not in self.change.finished]

    def lost(self) -> dict[str, int]:
        """By destination, how many messages that we sent before the last succession did not arrive."""
        return {self.site.members[to]: count for to, count in sorted(self.tally.lost.items())}

    def unaccounted(self) -> list[str]:
        """Destinations that have not yet reported which messages from before the last succession arrived."""
        return [self.site.members[to] for to in sorted(self.tally.before)]

    def state(self) -> tuple[Any, list[bytes]]:
        change = self.change
        under_way: list[Any] | None = None
        if change is not None:
            sets = (change.drained, change.said, change.finished, change.heard)
            under_way = [change.text, change.succession is not None, change.has_acted, *map(sorted, sets)]
        told = {
            "text": self.text,
            "previous": [self.previous, *self.previous_links],
            "past": self.past,
            "failed": sorted(self.failed),
            "tally": self.tally.state(),
            "change": under_way,
        }
        kept, frames = self.witnessing.state()
        return [told, kept], frames

    def restore(self, state: Any, take: Take) -> None:
        told, kept = state
        self.text, self.past, under_way = told["text"], told["past"], told["change"]
        self.previous, *links = told["previous"]
        self.previous_links, self.failed = tuple(links), set(told["failed"])
        self.tally.restore(told["tally"])
        if self.text:
            self.site = site_of(self.text, self.site.name)
            self.witnessing.stand(self.site)
        self.change = None
        if under_way is not None:
            text, is_succession, has_acted, *sets = under_way
            self.change = change = Change(text, self.site, is_succession=is_succession)
            change.has_acted = has_acted
            change.drained, change.said, change.finished, change.heard = map(set, sets)
        self._note_change()
        self._routes.stand(self.site.place)
        self._kernel.barred.clear()
        for failed in self.failed:
            self._bar(failed)
        if self.change is not None and self.change.succession is not None:
            self._routes.expect_heir(self.change.succession)
        self.witnessing.restore(kept, take)
        if self._has_witnesses:
            self.witnessing.hold_back_again(self._kernel.links.outboxes, self._absent())
