"""From one topology to the next while the system runs: processes and links that come and go.

A change is proposed at one process, and everybody passes the proposal on over all its links. From then on
the applications wait; what they sent before arrives, over the links of the old topology. When nothing more is
on its way to anybody, all go on in the new one. Nothing sent in the old one is then left that anybody could
lack, so no history, log or copy of a witness is needed in the new (compare the flush of Birman, Schiper &
Stephenson, "Lightweight causal and atomic group multicast", 1991, at the end of a view).

    drained    A process says so on a link when it sends nothing more there: its application waits, it holds
               nothing, and every link whose messages it would send on there is drained towards it. Routes
               are a tree, so that comes to pass.
    finished   A process says so to everybody when all its links are drained both ways.

Who has heard that all are finished goes on. The frames of a link are in order, and news are passed on before
anything else: so what was sent in the new topology never comes to a process that is still in the old one. Of
two proposals at once the one with the lesser digest is followed: whoever proposed it never says that it
expects the other, which therefore nobody can follow.

Assumes    everybody in the old topology takes part: whoever was killed is started again with its journal.
Leaves out a process that never comes back: the others wait for it, and `awaited` names it.
"""

from collections.abc import Callable, Iterable
from typing import Any

from ..core.destinations import unpack
from ..core.errors import CausalityError, LocalProtocolError, RemoteProtocolError
from ..core.places import onward_by_link
from ..wire import site_news as wire
from ..wire.site_news import LinkDrained, ProcessFinished, SiteProposed
from .site import Site, site_of


class Change:
    """One change under way."""

    def __init__(self, text: str, following: Site) -> None:
        self.text = text
        self.following = following
        self.drained: set[int] = set()  # links over which nothing more comes
        self.said: set[int] = set()  # links on which we have said that we send nothing more
        self.finished: set[int] = set()  # processes that expect `following`


class SiteChanges:
    """Which topology a process stands in, and the change that is under way.

    put         puts a frame into the outbox of a link
    go_on       makes the engine stand in another site
    """

    def __init__(self, site: Site, put: Callable[[int, bytes], None], go_on: Callable[[Site], None]) -> None:
        self.site = site
        self.text = ""  # of the last change, if there was one
        self.previous = ""  # the digest before it
        self.previous_links: tuple[str, ...] = ()
        self.past = [site.base]  # of all topologies with the members there are now, the present one last
        self.change: Change | None = None
        self._put, self._go_on = put, go_on

    def propose(self, text: str) -> None:
        if self.change is not None:
            raise LocalProtocolError("the topology is changing; wait until that has ended")
        if self.site.departed >> self.site.me & 1:
            raise LocalProtocolError(f"{self.site.name!r} has left the topology")
        following = site_of(text, self.site.name)
        if following.base == self.site.base:
            raise LocalProtocolError("the proposed topology is the present one")
        self._check_follows(following)
        self._begin(text, following)

    def hear(self, link: int, frame: bytes) -> None:
        news = wire.decode(frame)
        if news.after != self.site.digest:
            return  # of a change that has ended here
        if isinstance(news, SiteProposed):
            self._hear_proposed(news.text)
        elif self.change is None:
            raise RemoteProtocolError(f"process {link} tells of a change that it has not proposed to us")
        elif isinstance(news, LinkDrained):
            self.change.drained.add(link)
        else:
            self._hear_finished(self.change, link, news)

    def _hear_proposed(self, text: str) -> None:
        if self.change is not None and self.change.text == text:
            return
        try:
            following = site_of(text, self.site.name)
            self._check_follows(following)
        except CausalityError as error:
            raise RemoteProtocolError(f"a change of the topology is refused: {error}") from error
        if self.change is None:
            self._begin(text, following)
        elif following.digest < self.change.following.digest:
            drained, said = self.change.drained, self.change.said
            self._begin(text, following)
            self.change.drained, self.change.said = drained, said

    def _hear_finished(self, change: Change, link: int, news: ProcessFinished) -> None:
        if news.next == change.following.digest and news.index not in change.finished:
            change.finished.add(news.index)
            self._tell(news, besides=link)

    def _check_follows(self, following: Site) -> None:
        known = self.site.members
        if following.members[: len(known)] != known or self.site.departed & ~following.departed:
            raise LocalProtocolError(
                "it numbers processes otherwise than the present one, or brings one back that has left"
            )
        if following.times_before != self.past.count(following.base):
            raise LocalProtocolError("it counts wrongly how often the same topology was there before")

    def _begin(self, text: str, following: Site) -> None:
        self.change = Change(text, following)
        self._tell(SiteProposed(self.site.digest, text))

    def _links(self) -> Iterable[int]:
        return unpack(self.site.place.neighbours)

    def _tell(self, news: wire.SiteNews, besides: int | None = None) -> None:
        frame = wire.encode(news)
        for link in self._links():
            if link != besides:
                self._put(link, frame)

    def advance(self, *, is_idle: bool) -> None:
        """Do what has become possible. `is_idle`: no message waits here."""
        change = self.change
        if change is None:
            return
        links = set(self._links())
        if is_idle:
            feeding = onward_by_link(self.site.place)
            for link in sorted(links - change.said):
                if all(source in change.drained for source, onto in feeding.items() if onto >> link & 1):
                    change.said.add(link)
                    self._put(link, wire.encode(LinkDrained(self.site.digest)))
            is_finished = links <= change.said and links <= change.drained
            if is_finished and self.site.me not in change.finished:
                change.finished.add(self.site.me)
                self._tell(ProcessFinished(self.site.digest, change.following.digest, self.site.me))
        if not self.awaited():
            self.previous, self.previous_links = self.site.digest, self.site.links
            if len(change.following.members) > len(self.site.members):
                self.past = []  # no digest of theirs is one with these members
            self.past.append(change.following.base)
            self.change, self.site, self.text = None, change.following, change.text
            self._go_on(change.following)

    def digests(self, peer: str) -> set[str]:
        """Those of the topologies that a peer may be in while we work with it. A change ends for one before
        another, and they still have to tell each other of it, over a link of the old topology; over a new
        one nothing may come before it has ended for both."""
        found = {self.site.digest}
        if self.change is not None and peer in self.site.links:
            found.add(self.change.following.digest)
        if peer in self.previous_links:
            found.add(self.previous)
        return found

    def awaited(self) -> list[str]:
        """The names of those who have not finished the change under way."""
        if self.change is None:
            return []
        here = (1 << len(self.site.members)) - 1 & ~self.site.departed
        return [self.site.members[p] for p in unpack(here) if p not in self.change.finished]

    def state(self) -> list[Any]:
        change = self.change
        under_way = (
            None
            if change is None
            else [change.text, *map(sorted, (change.drained, change.said, change.finished))]
        )
        return [self.text, self.previous, list(self.previous_links), self.past, under_way]

    def restore(self, state: list[Any]) -> None:
        self.text, self.previous, links, self.past, under_way = state
        self.previous_links = tuple(links)
        if self.text:
            self.site = site_of(self.text, self.site.name)
        self.change = None
        if under_way is not None:
            text, drained, said, finished = under_way
            self.change = Change(text, site_of(text, self.site.name))
            self.change.drained, self.change.said = set(drained), set(said)
            self.change.finished = set(finished)
