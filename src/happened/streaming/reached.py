"""Records what has been delivered at one destination: by the ids of messages, or by a clock for each sender.

ReachedIds and ReachedClocks have the same methods; an arrival is a message (`Arrived`):

    prepare(arrivals) looks up, for all these messages together, what the other methods will need
    known(arrival)    whether the message has been delivered
    missing(arrival)  the causes of the message that have not been delivered, in a fixed order
    lacks(arrival)    the first missing cause; None if there is none
    take(arrival)     records that the message is delivered; returns the ranges of causes (`cause`) it reaches
    give_up(arrival)  records that the message is delivered without its missing causes, which are now skipped
    is_late(arrival)  whether a message that waited for this one was delivered without it
    cause(want)       the key of a cause in the order of all causes, under which held messages are parked
    under(want)       the range of keys of the messages that are parked under a cause
    skipped           how many skipped causes are remembered; no message is late if there are none
    reaches_one_cause whether a delivery always reaches one cause: the message's own name
    held(names)       an index of held messages (HeldIndex): has(want), whether a message that the cause means
                      is held; causes(name, wants), the names of held messages that come before this one, or
                      enough of these if the rest comes before them; leave(name), no longer held

Bound   ids: the last `remember` ids, and as many skipped causes. An older cause counts as missing, an older
        message as new, and a message is not marked late when its skipping was forgotten.
        clocks: a clock for each sender that has sent anything here, and at most `remember` skipped causes;
        messages that come late after their skipping was forgotten count as duplicates.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from .paged import Key, Numbers, PagedMap, PageStore


class HeldIds:
    def __init__(self, names: Iterable[str]) -> None:
        self._names = set(names)

    def has(self, want: Any) -> bool:
        return want in self._names

    def causes(self, name: str, wants: Iterable[str]) -> list[str]:
        return [want for want in wants if want in self._names]

    def leave(self, name: str) -> None:
        self._names.discard(name)


class HeldClocks:
    """A cause means all messages of its sender up to its clock. Call `causes` before the first `leave`."""

    def __init__(self, names: Iterable[tuple[int, int]]) -> None:
        # Clocks are negated, so that the smallest one is at the end of the sorted list.
        self._lanes: dict[int, list[int]] = defaultdict(list)
        for sender, clock in names:
            self._lanes[sender].append(-clock)
        for lane in self._lanes.values():
            lane.sort()
        self._gone: set[tuple[int, int]] = set()

    def has(self, want: Any) -> bool:
        sender, clock = want
        lane = self._lanes.get(sender, [])
        while lane and (sender, -lane[-1]) in self._gone:
            lane.pop()
        return bool(lane) and -lane[-1] <= clock

    def causes(self, name: tuple[int, int], wants: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        sender, clock = name
        found = []
        for lane, latest in (*wants, (sender, clock - 1)):
            clocks = self._lanes.get(lane, ())
            at = bisect_left(clocks, -latest)
            if at < len(clocks):
                found.append((lane, -clocks[at]))
        return found

    def leave(self, name: tuple[int, int]) -> None:
        self._gone.add(name)


Ints = np.ndarray[Any, np.dtype[Any]]

DIGEST = 16
GENERATION = 8192
"""The most ids in a page; when ids are forgotten, the oldest page is dropped as a whole."""


class Arrived(NamedTuple):
    name: Any  # an id, or (sender, clock)
    wants: tuple[Any, ...]  # ids, or (sender, clock): the causes
    moves: tuple[Any, ...]  # (sender, clock) that the delivery reaches; empty for ids, which reach themselves


Range = tuple[Key, Key]


def digest(name: str) -> bytes:
    """The digest of an id; two of a million ids have the same one with a probability below 10^-26."""
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=DIGEST).digest()


def _rows(digests: Iterable[bytes]) -> Ints:
    return np.frombuffer(b"".join(digests), np.uint8).reshape(-1, DIGEST)


def _first(digests: Ints) -> Ints:
    """The first two bytes of each digest, as a number."""
    return digests.view(np.uint16)[:, 0]


class ReachedIds:
    """Remembers delivered ids as digests, in order of delivery, in pages of up to GENERATION ids."""

    reaches_one_cause = True

    def __init__(self, store: PageStore, numbers: Numbers, remember: int, state: Any) -> None:
        self._store, self._numbers, self._remember = store, numbers, remember
        self._page = min(max(remember // 8, 1), GENERATION)  # ids in a page
        pages, skipped, self.skipped = state if state is not None else ([], [], 0)
        self._pages: list[tuple[int, int]] = list(pages)  # (number, ids in it), the newest last
        self._stored: Ints | None = None  # all digests in the pages, one row of bytes each, once read
        self._digests: dict[str, bytes] = {}  # digests of the ids that were looked up
        self._ids: set[str] = set()  # ids that were looked up and have been delivered
        self._tail: bytes | None = None  # the newest page, once read
        self._new: list[bytes] = []
        self._skipped = PagedMap(store, numbers, skipped)

    def prepare(self, arrivals: Iterable[Arrived]) -> None:
        names = {name for arrival in arrivals for name in (arrival.name, *arrival.wants)}
        self._look_up(names - self._digests.keys())

    def _look_up(self, names: set[str]) -> None:
        """Find which of these ids were delivered, in one pass over the remembered digests."""
        digests = {name: digest(name) for name in names}
        self._digests |= digests
        if not digests or not self._pages:
            return
        if self._stored is None:
            data = [self._store.read(number) for number, _ in self._pages]
            self._tail = data[-1]
            self._stored = _rows(data)
        wanted = _rows(digests.values())
        is_near = np.zeros(1 << 16, bool)  # compared by the first two bytes first: few candidates remain
        is_near[_first(wanted)] = True
        near = self._stored[is_near[_first(self._stored)]].tobytes()
        found = {near[i : i + DIGEST] for i in range(0, len(near), DIGEST)}
        self._ids.update(name for name, mark in digests.items() if mark in found)

    def _has(self, name: str) -> bool:
        if name not in self._digests:
            self._look_up({name})
        return name in self._ids

    def known(self, arrival: Arrived) -> bool:
        name = arrival.name  # usually looked up already
        return name in self._ids or (name not in self._digests and self._has(name))

    def missing(self, arrival: Arrived) -> list[str]:
        return [want for want in arrival.wants if not self._has(want)]

    def lacks(self, arrival: Arrived) -> str | None:
        ids, digests = self._ids, self._digests  # local names are faster: called twice for every message
        for want in arrival.wants:
            if want not in ids and (want in digests or not self._has(want)):
                return want  # type: ignore[no-any-return]
        return None

    def take(self, arrival: Arrived) -> list[Range]:
        name = arrival.name
        if (mark := self._digests.get(name)) is None:
            mark = self._digests[name] = digest(name)
        self._ids.add(name)
        self._new.append(mark)
        if self.skipped and (name,) in self._skipped:
            self._skipped.pop((name,))
            self.skipped -= 1
        return [((name,), (name + "\0",))]

    def give_up(self, arrival: Arrived) -> list[Range]:
        for want in self.missing(arrival):
            if (want,) not in self._skipped:
                self._skipped.put((want,), None)
                self.skipped += 1
        while self.skipped > self._remember:
            lowest = self._skipped.first_from(())
            assert lowest is not None
            self._skipped.pop(lowest[0])
            self.skipped -= 1
        return self.take(arrival)

    def is_late(self, arrival: Arrived) -> bool:
        return self.skipped > 0 and (arrival.name,) in self._skipped

    def cause(self, want: str) -> Key:
        return (want,)

    def under(self, want: str) -> Range:
        return (want,), (want + "\0",)

    def held(self, names: Iterable[str]) -> HeldIds:
        return HeldIds(names)

    def flush(self) -> Any:
        new, self._new = self._new, []
        while new:
            if not self._pages or self._pages[-1][1] >= self._page:
                self._pages.append((self._numbers.next(), 0))
                self._tail = b""
            number, filled = self._pages[-1]
            before = self._store.read(number) if self._tail is None else self._tail
            room = self._page - filled
            added, new = new[:room], new[room:]
            self._tail = before + b"".join(added)
            self._store.write(number, self._tail)
            self._pages[-1] = (number, filled + len(added))
        while sum(ids for _, ids in self._pages[1:]) >= self._remember:
            self._store.remove(self._pages.pop(0)[0])
        self._stored = None
        return self._pages, self._skipped.flush(), self.skipped


class ReachedClocks:
    """Lane s has the clock of the last message from s delivered here; all earlier messages from s to here
    have been delivered too, except for the skipped ones."""

    reaches_one_cause = False

    def __init__(self, store: PageStore, numbers: Numbers, remember: int, state: Any) -> None:
        clocks, skipped, late, count = state if state is not None else ([], [], [], 0)
        self._clocks = PagedMap(store, numbers, clocks)
        # (sender, clock of a skipped cause) -> the sender's lane then: messages between the two may come late
        self._skipped = PagedMap(store, numbers, skipped)
        self._late = PagedMap(store, numbers, late)  # late messages that have arrived
        self._remember, self.skipped = remember, count

    def prepare(self, arrivals: Iterable[Arrived]) -> None:
        """Does nothing: there are few clocks, so they are looked up on demand."""

    def known(self, arrival: Arrived) -> bool:
        sender, clock = arrival.name
        if clock > self._clocks.get((sender,), 0):
            return False
        return not self.is_late(arrival) or (sender, clock) in self._late

    def missing(self, arrival: Arrived) -> list[tuple[int, int]]:
        clocks = self._clocks
        return [want for want in arrival.wants if clocks.get(want[:1], 0) < want[1]]

    def lacks(self, arrival: Arrived) -> tuple[int, int] | None:
        clocks = self._clocks
        return next((want for want in arrival.wants if clocks.get(want[:1], 0) < want[1]), None)

    def take(self, arrival: Arrived) -> list[Range]:
        if self.is_late(arrival):
            self._late.put(arrival.name, None)
        ranges = []
        for sender, clock in arrival.moves:
            before = self._clocks.get((sender,), 0)
            if clock > before:
                if self.skipped and self._may_skip(arrival, sender):
                    self._skip((sender, clock - 1), before)
                self._clocks.put((sender,), clock)
                ranges.append(((sender,), (sender, clock + 1)))
        return ranges

    def _may_skip(self, arrival: Arrived, sender: int) -> bool:
        """Whether the message may be delivered before earlier messages of its sender. A message names the
        last of these unless another cause follows that one; but if such a cause was given up, or follows one
        that was, the sender's earlier messages need not have been delivered."""
        return bool(arrival.wants) and all(want[0] != sender for want in arrival.wants)

    def give_up(self, arrival: Arrived) -> list[Range]:
        for sender, clock in self.missing(arrival):
            self._skip((sender, clock), self._clocks.get((sender,), 0))
        return self.take(arrival)

    def _skip(self, cause: tuple[int, int], before: int) -> None:
        """Messages of the sender after `before` and up to the cause may come late."""
        if cause[1] <= before or cause in self._skipped:
            return
        self._skipped.put(cause, before)
        self.skipped += 1
        while self.skipped > self._remember:
            lowest = self._skipped.first_from(())
            assert lowest is not None
            (sender, clock), before = lowest
            self._skipped.pop((sender, clock))
            self._late.pop_between((sender, before + 1), (sender, clock + 1))
            following = self._skipped.first_from((sender, clock + 1))
            if following is not None and following[0][0] == sender and following[1] < clock:
                self._skipped.put(following[0], clock)  # without this a late message could be delivered twice
            self.skipped -= 1

    def is_late(self, arrival: Arrived) -> bool:
        if not self._skipped:
            return False
        sender, clock = arrival.name
        found = self._skipped.first_from((sender, clock))
        return found is not None and found[0][0] == sender and found[1] < clock

    def cause(self, want: tuple[int, int]) -> Key:
        return want

    def under(self, want: tuple[int, int]) -> Range:
        return want, (want[0], want[1] + 1)

    def held(self, names: Iterable[tuple[int, int]]) -> HeldClocks:
        return HeldClocks(names)

    def flush(self) -> Any:
        return self._clocks.flush(), self._skipped.flush(), self._late.flush(), self.skipped


Reached = ReachedIds | ReachedClocks
HeldIndex = HeldIds | HeldClocks
