"""What a forwarder and its witnesses do for each other on real links, so that one can step in at any time.

The report of Rodrigues & Veríssimo assumes that what a process sends in one step reaches all its neighbours
or none. Here that is made true for a forwarder that has witnesses, whatever kills it:

    it holds back   Nothing leaves it for others before its witnesses have acknowledged what it sent them in
                    the same step or before. So they have every hop of it that anybody knows of.
    they keep       A witness keeps the hops of its forwarder until all others that they were sent to say that
                    they have come (`HopsTaken`, once in REPORT_EVERY frames), and can send them again.

Bounds     a witness keeps, besides what is on its way, at most REPORT_EVERY hops for each neighbour of its
           forwarder. A witness that is away holds its forwarder up, like any process that messages pass.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from ..core.destinations import unpack
from ..wire.site_news import HopsTaken, encode
from .link import Outbox
from .site import Site

REPORT_EVERY = 64


class Kept(NamedTuple):
    """A hop of a forwarder."""

    clock: int
    address: int  # bit set: those it was sent to
    frame: bytes


class _HeldBack(NamedTuple):
    """Frames that wait for witnesses: per link the last of them, and per witness what it must have."""

    frames: dict[int, int]
    awaited: dict[int, int]


class Witnessing:
    """The part of one process; `put` puts a frame into the outbox of a link."""

    def __init__(self, site: Site, put: Callable[[int, bytes], object]) -> None:
        self._put = put
        self._held_back: deque[_HeldBack] = deque()  # follows from the outboxes: not in a snapshot
        self.stand(site)

    def stand(self, site: Site) -> None:
        """Begin in a site: nothing of an earlier one is needed any more."""
        self._site = site
        self._kept: dict[int, dict[int, Kept]] = {
            forwarder: {} for forwarder, its in site.witnesses.items() if its >> site.me & 1
        }
        self._taken: dict[int, dict[int, int]] = {forwarder: {} for forwarder in self._kept}
        self._last: dict[int, int] = {}  # per forwarder, the clock of its last hop that came here

    @property
    def witnesses(self) -> tuple[int, ...]:
        """Our own."""
        return tuple(unpack(self._site.witnesses.get(self._site.me, 0)))

    # As a forwarder.

    def hold_back(
        self, released: Mapping[int, int], outboxes: Mapping[int, Outbox], absent: Collection[int]
    ) -> None:
        """Let the frames for witnesses leave, up to these numbers, and the others when they have them."""
        witnesses = self.witnesses
        for link, number in released.items():
            if link in witnesses:
                outboxes[link].release(number)
        awaited = {witness: outboxes[witness].released for witness in witnesses}
        frames = {link: number for link, number in released.items() if link not in witnesses}
        if frames:
            self._held_back.append(_HeldBack(frames, awaited))
            self.let_go(outboxes, absent)

    def let_go(self, outboxes: Mapping[int, Outbox], absent: Collection[int]) -> set[int]:
        """Release what waits for witnesses no more; returns the links concerned."""
        links: set[int] = set()
        while self._held_back:
            frames, awaited = self._held_back[0]
            if any(outboxes[w].acknowledged < number for w, number in awaited.items() if w not in absent):
                break
            self._held_back.popleft()
            for link, number in frames.items():
                outboxes[link].release(number)
            links |= frames.keys()
        return links

    def hold_back_again(self, outboxes: dict[int, Outbox], absent: Collection[int]) -> None:
        """After a restart: nobody knows which frames had left."""
        self._held_back.clear()
        if self.witnesses:
            for link, outbox in outboxes.items():
                if link not in self.witnesses:
                    outbox.released = outbox.acknowledged
            self.hold_back({link: each.last for link, each in outboxes.items()}, outboxes, absent)

    # Next to a forwarder, and as its witness.

    def arrived(self, link: int, message: Any, frame: bytes, number: int) -> None:
        """A hop of the process at this link has come, in its frame of this number."""
        if link not in self._site.witnesses or getattr(message, "address", None) is None:
            return
        self._last[link] = message.hop
        if link in self._kept:
            self._kept[link][message.hop] = Kept(message.hop, message.address, frame)
        if number % REPORT_EVERY == 0:
            news = encode(HopsTaken(self._site.digest, link, message.hop))
            for witness in unpack(self._site.witnesses[link] & ~(1 << self._site.me)):
                if self._site.place.neighbours >> witness & 1:
                    self._put(witness, news)
            if link in self._kept:
                self._forget(link)

    def hear(self, process: int, news: HopsTaken) -> None:
        """This process has the hops of a forwarder up to some clock."""
        if news.index in self._kept:
            self._taken[news.index][process] = news.clock
            self._forget(news.index)

    def _forget(self, forwarder: int) -> None:
        taken, others = self._taken[forwarder], ~(1 << self._site.me)
        self._kept[forwarder] = {
            clock: kept
            for clock, kept in self._kept[forwarder].items()
            if any(taken.get(process, 0) < clock for process in unpack(kept.address & others))
        }

    def kept(self, forwarder: int) -> Iterator[Kept]:
        """Its hops that somebody may lack, in the order in which it sent them."""
        yield from self._kept.get(forwarder, {}).values()

    def is_known(self, forwarder: int, clock: int) -> bool:
        """Whether this hop of a forwarder has come here."""
        return clock <= self._last.get(forwarder, 0)

    def came_again(self, forwarder: int, clock: int) -> None:
        """A witness has brought this hop."""
        self._last[forwarder] = clock

    # What survives.

    def state(self) -> tuple[list[Any], list[bytes]]:
        """As JSON, and the frames."""
        kept = [
            [forwarder, each.clock, hex(each.address), len(each.frame)]
            for forwarder, its in self._kept.items()
            for each in its.values()
        ]
        taken = [[forwarder, sorted(its.items())] for forwarder, its in self._taken.items()]
        frames = [each.frame for its in self._kept.values() for each in its.values()]
        return [kept, taken, sorted(self._last.items())], frames

    def restore(self, state: list[Any], take: Callable[[int], bytes]) -> None:
        kept, taken, last = state
        for forwarder, clock, address, length in kept:
            self._kept[forwarder][clock] = Kept(clock, int(address, 16), take(length))
        for forwarder, its in taken:
            self._taken[forwarder] = dict(its)
        self._last = dict(last)
