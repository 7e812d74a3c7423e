"""A process that has failed for good, its heir, and what was lost with it (Rodrigues & Veríssimo, §4.4;
site_changes.py has the steps that all processes take).

    witness      The heir is a witness of the failed router: it has what the router was given, and forwards
                 what the router had not forwarded. Nothing is lost.
    collection   The heir, new or not, has neither journal nor copies; or there is no heir, if the failed
                 process forwards nothing. Messages that only it had, or that were on their way to it, are
                 lost: all count what they sent and what came (`Tally`), and senders learn the difference.

Journals show which process failed last (ordering/last_to_fail.py): nobody sees what a node does about a
failure before the frame or command that told of it is journaled, and snapshots keep the failures heard of.
So a journal is searched without a replay, which would need its topology.
"""

import json
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from ..core.destinations import pack, unpack
from ..core.errors import LocalProtocolError
from ..ordering import Facts, able
from ..ordering.capabilities import ReplacesForwarder
from ..ordering.last_to_fail import perhaps_last
from ..wire import site_news
from ..wire.site_news import HopsTaken, encode
from .batch import Input, read_entries, snapshot_head
from .errors import JournalError
from .journal import Journal
from .link import Outbox
from .site import Site, proposed


class How(Enum):
    WITNESS = "witness"
    COLLECTION = "collection"


class Succession(NamedTuple):
    failed: int
    heir: int | None
    how: How


def succession_proposal(
    present: Site,
    failed: str,
    heir: str | None,
    how: How,
    addresses: Mapping[str, str],
    past: Sequence[str],
) -> str:
    """The topology without a process that has failed for good, as the next one after the present. Raises
    CausalityError if the others need that process, or if the heir cannot take its place."""
    from ..topology import from_document, refuse
    from ..topology.replacement import with_heir, without

    topology = from_document(present.document, present.source)
    _check_heir(present, failed, heir, how)
    if heir is None or how is How.WITNESS:
        following = without(topology, failed, heir)
    else:
        following = with_heir(topology, failed, heir)
    source = f"the topology without {failed!r}"
    refuse(following, source)
    return proposed(following, source, present, addresses, past, succession=[failed, heir, how.value])


def _check_heir(present: Site, failed: str, heir: str | None, how: How) -> None:
    here = {name for i, name in enumerate(present.members) if not present.departed >> i & 1}
    if failed not in here:
        raise LocalProtocolError(f"{failed!r} is no process of {present.source}, or has left it")
    if failed == present.name:
        raise LocalProtocolError(f"{failed!r} is running: say at another process that it has failed")
    if heir == failed or (heir in present.members and heir not in here):
        raise LocalProtocolError(
            f"{heir!r} cannot take the place of {failed!r}: it has failed or left itself"
        )
    index = present.members.index(failed)
    witnesses = [present.members[w] for w in unpack(present.witnesses.get(index, 0))]
    if how is How.WITNESS and heir not in witnesses:
        known = f"its witnesses are {', '.join(witnesses)}" if witnesses else "it has no witness"
        raise LocalProtocolError(
            f"{heir!r} is no witness of {failed!r}: {known}. Start {failed!r} again from its journal, on "
            "another machine if need be, or give up what only it had, by collection"
        )


def check_witnesses(facts: Facts, how: How) -> None:
    """Refuse a succession by a witness if the protocol gives witnesses no copies."""
    if how is How.WITNESS and facts.name not in able(ReplacesForwarder):
        raise LocalProtocolError(
            f"{facts.name} gives witnesses no copies, so none can take over: start the failed process again "
            "from its journal, or give up what only it had, by collection"
        )


def succession_of(text: str, site: Site) -> Succession | None:
    """What a proposal says about a failure, as seen from this site; None: nothing. Raises CausalityError if
    that is not possible."""
    said = json.loads(text).get("succession")
    if said is None:
        return None
    try:
        failed, heir, how = said
        found = How(how)
    except (TypeError, ValueError) as error:
        raise LocalProtocolError(f"the proposed succession cannot be read: {error}") from error
    if not isinstance(failed, str) or not (heir is None or isinstance(heir, str)):
        raise LocalProtocolError("the proposed succession cannot be read: names are text")
    _check_heir(site, failed, heir, found)
    names = json.loads(text)["names"]
    return Succession(names.index(failed), None if heir is None else names.index(heir), found)


def survivors_in_reach(site: Site, failed: int) -> int:
    """The processes, this one included, connected with it by links that avoid the failed one: a bit set."""
    index = {name: i for i, name in enumerate(site.members)}
    edges = [pack(map(index.__getitem__, edge)) for edge in site.edges]
    usable = [edge for edge in edges if not edge >> failed & 1]
    reached, before = 1 << site.me, 0
    while reached != before:
        before = reached
        for edge in usable:
            if edge & reached:
                reached |= edge
    return reached


class Tally:
    """How many messages a process has sent to each other one, and was given from each, in the present
    topology; and how many were lost when a process of the last one failed."""

    def __init__(self) -> None:
        self.sent: Counter[int] = Counter()
        self.delivered: Counter[int] = Counter()
        self.before: dict[int, int] = {}  # sent in the last topology, by destination still to report
        self.lost: dict[int, int] = {}  # of those, by destination, how many were lost
        self.heard: set[int] = set()  # processes that have reported

    def turn(self, me: int, failed: int | None) -> tuple[tuple[int, int], ...]:
        """Begin to count anew; returns our report on the last topology."""
        account = tuple(sorted(self.delivered.items()))
        self.before, self.lost, self.heard = {}, {}, set()
        if failed is not None:
            self.before = {to: count for to, count in self.sent.items() if to != failed}
            self.hear(me, me, account)
        self.sent, self.delivered = Counter(), Counter()
        return account

    def hear(self, me: int, process: int, counts: Sequence[tuple[int, int]]) -> None:
        self.heard.add(process)
        missing = self.before.pop(process, 0) - dict(counts).get(me, 0)
        if missing > 0:
            self.lost[process] = missing

    def state(self) -> list[Any]:
        counters = (self.sent, self.delivered, self.before, self.lost)
        return [*(sorted(each.items()) for each in counters), sorted(self.heard)]

    def restore(self, state: list[Any]) -> None:
        sent, delivered, before, lost, heard = state
        self.sent, self.delivered = Counter(dict(sent)), Counter(dict(delivered))
        self.before, self.lost, self.heard = dict(before), dict(lost), set(heard)


# Which process failed last, according to journals.


class Record(NamedTuple):
    """The owner of a journal, and the names of the processes that it had heard to have failed for good."""

    name: str
    failed: frozenset[str]


def read_record(path: Path) -> Record:
    """Read a journal's record; raises JournalError if the journal cannot be read, or is in use."""
    if not path.is_file():
        raise JournalError(f"{path}: no such file")
    journal = Journal(path)
    try:
        name, failed = journal.owner(), set[str]()
        state = journal.snapshot()
        if state is not None:
            head, _ = snapshot_head(state)
            names = head["members"]["members"]
            failed |= {names[index] for index in head["site"][0]["failed"]} if "site" in head else set()
        for _, entries in journal.batches():
            for kind, _, data in read_entries(entries):
                failed |= _told(kind, data)
        return Record(name, frozenset(failed))
    except (ValueError, KeyError, IndexError) as error:
        raise JournalError(f"{path}: cannot be read ({error}); was it written by another version?") from error
    finally:
        journal.close()


def _told(kind: int, data: bytes) -> set[str]:
    """The names of the processes that an input declares to have failed."""
    text = ""
    if kind == Input.SITE_PROPOSED:
        text = data.decode()
    elif kind == Input.FRAME_RECEIVED and data.startswith(site_news.HEAD):
        news = site_news.decode(data)
        text = news.text if isinstance(news, site_news.SuccessionProposed) else ""
    said = json.loads(text).get("succession") if text else None
    return {said[0]} if said else set()


class LastToFail(NamedTuple):
    last: tuple[str, ...]  # the processes that failed last, as far as is known
    awaited: tuple[str, ...]  # the processes whose journals are needed to be sure


def last_of(records: Sequence[Record], members: Sequence[str]) -> LastToFail:
    if unknown := sorted({record.name for record in records} - set(members)):
        raise LocalProtocolError(f"{unknown[0]!r} is not among the members {', '.join(members)}")
    index = {name: i for i, name in enumerate(members)}
    recorded = {
        index[record.name]: sum(1 << index[name] for name in record.failed if name in index)
        for record in records
    }
    everybody = (1 << len(members)) - 1
    last, awaited = perhaps_last(everybody, recorded)
    return LastToFail(tuple(members[i] for i in unpack(last)), tuple(members[i] for i in unpack(awaited)))


REPORT_EVERY = 64


class KeptFrame(NamedTuple):
    """A hop that a witness keeps of its forwarder."""

    clock: int
    address: int  # bit set: the processes it was sent to
    frame: bytes


class _HeldBack(NamedTuple):
    """Frames that wait for witnesses: by link the last frame, and by witness the frame that it must have."""

    frames: dict[int, int]
    awaited: dict[int, int]


class Witnessing:
    """What a forwarder and its witnesses do for each other on real links, so that a witness can replace the
    forwarder at any time; `put` puts a frame into the outbox of a link.

    The report of Rodrigues & Veríssimo assumes that what a process sends in one step reaches all its
    neighbours or none. Here that is made true for a forwarder that has witnesses, whatever kills it:

    it holds back   It sends nothing to others before its witnesses have acknowledged what it sent them in the
                    same step or before. So they have every hop of it that anybody has.
    they keep       A witness keeps the hops of its forwarder until all their other destinations have said
                    that the hops came (`HopsTaken`, once in REPORT_EVERY frames), and can send them again.

    Bounds     a witness keeps, besides what is on its way, at most REPORT_EVERY hops for each neighbour of
               its forwarder. A witness that is away holds its forwarder up, like any process that forwards
               messages.
    """

    def __init__(self, site: Site, put: Callable[[int, bytes], object]) -> None:
        self._put = put
        self._held_back: deque[_HeldBack] = deque()  # it follows from the outboxes, so no snapshot has it
        self.stand(site)

    def stand(self, site: Site) -> None:
        """Begin in a new site: nothing of an earlier one is needed any more."""
        self._site = site
        self._kept: dict[int, dict[int, KeptFrame]] = {
            forwarder: {} for forwarder, its in site.witnesses.items() if its >> site.me & 1
        }
        self._taken: dict[int, dict[int, int]] = {forwarder: {} for forwarder in self._kept}
        self._last: dict[int, int] = {}  # per forwarder, the clock of the last hop that came here from it

    @property
    def witnesses(self) -> tuple[int, ...]:
        return tuple(unpack(self._site.witnesses.get(self._site.me, 0)))

    # Used at a forwarder.

    def hold_back(
        self, released: Mapping[int, int], outboxes: Mapping[int, Outbox], absent: Collection[int]
    ) -> None:
        """Release frames for witnesses now, and the others once the witnesses have acknowledged theirs."""
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
        """Release frames that wait for witnesses no more; returns their links."""
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
        """After a restart, hold all frames back anew: which of them had left is not recorded."""
        self._held_back.clear()
        if self.witnesses:
            for link, outbox in outboxes.items():
                if link not in self.witnesses:
                    outbox.released = outbox.acknowledged
            self.hold_back({link: each.last for link, each in outboxes.items()}, outboxes, absent)

    # Used at a forwarder's neighbours and witnesses.

    def arrived(self, link: int, message: Any, frame: bytes, number: int) -> None:
        """Note a hop of the process at this link, which has come in the frame of this number."""
        if link not in self._site.witnesses or getattr(message, "address", None) is None:
            return
        self._last[link] = message.hop
        if link in self._kept:
            self._kept[link][message.hop] = KeptFrame(message.hop, message.address, frame)
        if number % REPORT_EVERY == 0:
            news = encode(HopsTaken(self._site.digest, link, message.hop))
            for witness in unpack(self._site.witnesses[link] & ~(1 << self._site.me)):
                if self._site.place.neighbours >> witness & 1:
                    self._put(witness, news)
            if link in self._kept:
                self._forget(link)

    def hear(self, process: int, news: HopsTaken) -> None:
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

    def kept(self, forwarder: int) -> Iterable[KeptFrame]:
        """The forwarder's hops that somebody may lack, in the order in which it sent them."""
        return self._kept.get(forwarder, {}).values()

    def is_known(self, forwarder: int, clock: int) -> bool:
        return clock <= self._last.get(forwarder, 0)

    def came_again(self, forwarder: int, clock: int) -> None:
        self._last[forwarder] = clock

    # Snapshots.

    def state(self) -> tuple[list[Any], list[bytes]]:
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
            self._kept[forwarder][clock] = KeptFrame(clock, int(address, 16), take(length))
        for forwarder, its in taken:
            self._taken[forwarder] = dict(its)
        self._last = dict(last)
