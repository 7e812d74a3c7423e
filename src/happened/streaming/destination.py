"""One destination: takes messages as they arrive and returns them in causal order.

Assumes    a message names every cause that must be delivered here before it and that no other of its causes
           waits for; duplicates are equal.
Promises   no message is delivered before its causes or twice; a message whose causes are delivered is not
           held; the output depends on the order of arrival and not on where batches begin and end. A message
           is given up if it has waited for `patience`, one of its causes has not arrived, and none of its
           other causes is held: it is delivered without the missing cause, or handed to the dead letters
           together with everything that waits for it.
Leaves out any order between concurrent messages except the order of arrival.
Invariant  a held message is parked under the first of its causes that was missing when it was parked. That
           place depends only on what has been delivered, so a duplicate is parked at the same place; the
           exception is a duplicate that arrives after a delivered cause was forgotten, which is noticed when
           a message is given up.
Cost       a few look-ups in pages for each arrival and delivery. `expire` looks at all held messages.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from ..core.errors import CausalityError
from ..core.tuples import new
from .paged import Drawer, Key, Numbers, PagedMap, PageStore
from .reached import Arrived, HeldIndex, Range, Reached, ReachedClocks, ReachedIds

VERSION = 1
"""The version of the state's format."""

DELIVERED = "delivered"
VIOLATED = "violated"
LATE = "late"
DEAD = "dead"
HELD = "held"

REACHED: dict[str, Callable[[PageStore, Numbers, int, Any], Reached]] = {
    "ids": ReachedIds,
    "clocks": ReachedClocks,
}


class DeliveryOutcome(NamedTuple):
    row: Any  # the row of the message
    number: int | None  # number of its delivery here, from 1; None if it is not delivered
    status: str
    cause: Any  # the missing cause; None if there is none


class Entry(NamedTuple):
    """A held message."""

    since: int  # milliseconds
    arrival: Arrived
    row: Any


class Head(NamedTuple):
    """The small part of the state, which every batch reads and writes."""

    delivered: int = 0  # how many messages
    held: int = 0
    oldest: int = 0  # lower bound for the arrival times of held messages (milliseconds)
    timer: int = 0  # when the timer fires; 0: no timer is set
    directories: bytes = b""  # directories of the pages, and the small pages themselves


EMPTY = Head()


def _age(entry: Entry) -> tuple[int, Any]:
    return entry.since, entry.arrival.name


def _causes_first(entries: list[Entry], here: HeldIndex, latest: int) -> dict[Any, int]:
    """Number the messages that arrived up to `latest` and all held messages that they wait for: causes first,
    except where messages wait for each other; among others the oldest first. Returns numbers by name."""
    by_name = {entry.arrival.name: entry for entry in entries}
    rank: dict[Any, int] = {}
    begun: set[Any] = set()
    path = sorted((entry for entry in entries if entry.since <= latest), key=_age, reverse=True)
    while path:
        entry = path[-1]
        name = entry.arrival.name
        if name not in begun:
            begun.add(name)
            causes = {cause for cause in here.causes(name, entry.arrival.wants) if cause not in begun}
            path += sorted((by_name[cause] for cause in causes), key=_age, reverse=True)
        else:
            path.pop()
            rank.setdefault(name, len(rank))
    return rank


class Destination:
    def __init__(self, kind: str, store: PageStore, head: Head = EMPTY, *, remember: int) -> None:
        version, *stored = pickle.loads(head.directories) if head.directories else (VERSION, 0, None, [], {})
        if version != VERSION:
            raise CausalityError(
                f"the checkpoint holds messages in format version {version}, and this happened reads "
                f"{VERSION}: resume with the happened that wrote it, or begin with a new checkpoint"
            )
        last, reached, parked, pages = stored
        self.delivered, self.held, self.oldest, self.timer = head[:4]
        self.duplicates = 0  # of this batch
        self._numbers = Numbers(last)
        self._drawer = Drawer(store, self._numbers, pages)
        self._reached = REACHED[kind](self._drawer, self._numbers, remember, reached)
        self._parked = PagedMap(self._drawer, self._numbers, parked, self._entry)
        self._read: list[Arrived] = []  # held messages of pages that were read, but not yet prepared
        self._fresh: dict[Key, list[Entry]] | None = None  # held messages of the arriving batch, by cause
        self._fresh_names: set[Any] = set()  # all names that were ever in _fresh

    def arrive(self, arrivals: Iterable[tuple[Arrived, Any]], now: int) -> list[DeliveryOutcome]:
        """Take these messages, each with its row; returns all deliveries that they make possible."""
        out: list[DeliveryOutcome] = []
        reached = self._reached
        arrivals = list(arrivals)
        reached.prepare(arrival for arrival, _ in arrivals)
        # Most messages that wait do so for a message of the same batch: those are never written to a page.
        self._fresh, self._fresh_names = {} if reached.reaches_one_cause else None, set()
        for arrival, row in arrivals:
            if reached.known(arrival):
                self.duplicates += 1
                continue
            want = reached.lacks(arrival)
            if want is None:
                self._deliver(arrival, row, out)
            else:
                self._hold(want, new(Entry, (now, arrival, row)))
        self._settle()
        return out

    def _settle(self) -> None:
        """Move messages that wait for a later batch into pages."""
        fresh, self._fresh = self._fresh, None
        for cause, entries in (fresh or {}).items():
            for entry in entries:
                if not self._parked.add((*cause, entry.arrival.name), entry):
                    self._forget_duplicate()

    def _forget_duplicate(self) -> None:
        """Correct the counts after a message was held twice: in a page, and in this batch."""
        self.held -= 1
        self.duplicates += 1

    def expire(self, now: int, patience: int, *, release: bool) -> list[DeliveryOutcome]:
        """Deliver the messages that have waited too long, causes first, or hand them to the dead letters."""
        entries = [*self._parked.items()]
        due = [(place, entry) for place, entry in entries if entry.since + patience <= now]
        if not due:
            self.oldest = min((entry.since for _, entry in entries), default=0)
            return []
        self._prepare()
        here = self._reached.held(entry.arrival.name for _, entry in entries)
        rank = _causes_first([entry for _, entry in entries], here, now - patience)
        due.sort(key=lambda found: rank[found[1].arrival.name])
        # A message waits for `patience` once more if its cause is held, in vain if they wait for each other.
        overdue = [(place, entry) for place, entry in due if entry.since + 2 * patience <= now]
        out: list[DeliveryOutcome] = []
        for number, (place, entry) in enumerate([*due, *overdue]):
            missing = self._reached.missing(entry.arrival)
            if missing and place not in self._parked:
                place = self._place(missing[0], entry.arrival)  # parked anew by a delivery in this loop
            if not missing or place not in self._parked:
                continue  # it was delivered or given up together with another message
            if self._reached.known(entry.arrival):
                self._take_out(place)  # a duplicate; see the invariant
                here.leave(entry.arrival.name)
                self.duplicates += 1
                continue
            absent = [want for want in missing if not here.has(want)]
            if len(absent) == len(missing) or number >= len(due):
                self._take_out(place)
                cause = (absent or missing)[0]
                if release:
                    gone = self._deliver(entry.arrival, entry.row, out, given_up=cause)
                else:
                    gone = self._bury(entry, cause, out)
                for arrival in gone:
                    here.leave(arrival.name)
        self.oldest = min((entry.since for _, entry in self._parked.items()), default=0)
        return out

    def next_timer(self, now: int, patience: int) -> int:
        """When `expire` should be called next; 0 if nothing is held.

        At most about eight times per `patience`, since each call looks at all held messages.
        """
        if not self.held:
            return 0
        step = max(patience // 8, 1)
        return -(-max(self.oldest + patience, now + 1) // step) * step

    def pending(self) -> Iterator[tuple[Entry, list[Any]]]:
        """Every held message and the causes that are missing; reads all pages."""
        for _, entry in self._parked.items():
            yield entry, self._reached.missing(entry.arrival)

    def new_rows(self) -> list[tuple[Entry, Any]]:
        """Messages that arrived in this batch and are held at its end, each with the cause it waits for."""
        held = [entry for entry in self._parked.changed_values() if type(entry.row) is int]
        return [(entry, self._reached.lacks(entry.arrival)) for entry in held]

    def flush(self, row: Callable[[Any], Any] = lambda row: row) -> Head:
        """Write what changed; `row` converts the rows of held messages to their stored form."""
        parked = self._parked.flush(lambda entry: (entry.since, tuple(entry.arrival), row(entry.row)))
        reached = self._reached.flush()
        state = (VERSION, self._numbers.last, reached, parked, self._drawer.flush())
        directories = pickle.dumps(state, pickle.HIGHEST_PROTOCOL)
        return Head(self.delivered, self.held, self.oldest, self.timer, directories)

    def _place(self, want: Any, arrival: Arrived) -> Key:
        return (*self._reached.cause(want), arrival.name)

    def _hold(self, want: Any, entry: Entry) -> None:
        if entry.arrival.name in self._fresh_names or not self._park(want, entry):
            self.duplicates += 1
            return
        self.oldest = min(self.oldest, entry.since) if self.held else entry.since
        self.held += 1

    def _park(self, want: Any, entry: Entry) -> bool:
        """Park a held message; False if a page has it already, which within a batch is found out later."""
        if self._fresh is None:
            return self._parked.add(self._place(want, entry.arrival), entry)
        self._fresh.setdefault(self._reached.cause(want), []).append(entry)
        self._fresh_names.add(entry.arrival.name)
        return True

    def _take_out(self, place: Key) -> None:
        self._parked.pop(place)
        self.held -= 1

    def _deliver(
        self, arrival: Arrived, row: Any, out: list[DeliveryOutcome], given_up: Any = None
    ) -> Iterator[Arrived]:
        """Deliver a message, without the cause `given_up` if there is one, then every held message that this
        releases; returns the messages delivered."""
        reached = self._reached
        ready = [(arrival, row)]
        for arrival, row in ready:  # `ready` grows in this loop
            self.delivered += 1
            status = LATE if reached.skipped and reached.is_late(arrival) else DELIVERED
            if given_up is not None:
                out.append(DeliveryOutcome(row, self.delivered, VIOLATED, given_up))
                ranges = reached.give_up(arrival)
                given_up = None
            else:
                out.append(new(DeliveryOutcome, (row, self.delivered, status, None)))
                ranges = reached.take(arrival)
            if self.held:
                ready += self._released(ranges)
        return (arrival for arrival, _ in ready)

    def _released(self, ranges: list[Range]) -> list[tuple[Arrived, Any]]:
        """Remove and return messages parked in `ranges` that lack no other cause; park the others again."""
        released = []
        for low, high in ranges:
            for entry in self._woken(low, high):
                want = self._reached.lacks(entry.arrival)
                if want is None:
                    self.held -= 1
                    released.append((entry.arrival, entry.row))
                elif not self._park(want, entry):
                    self._forget_duplicate()
        return released

    def _woken(self, low: Key, high: Key) -> list[Entry]:
        """Remove and return the messages parked in a range of causes, in the order of causes and names."""
        stored = self._parked.pop_between(low, high)
        self._prepare()
        fresh = self._fresh.pop(low, None) if self._fresh else None  # then the range is a single cause
        if not fresh:
            return [entry for _, entry in stored]
        if stored:
            older = {entry.arrival.name: entry for _, entry in stored}
            for entry in fresh:
                if older.setdefault(entry.arrival.name, entry) is not entry:
                    self._forget_duplicate()
            fresh = list(older.values())
        return sorted(fresh, key=lambda entry: entry.arrival.name) if len(fresh) > 1 else fresh

    def _prepare(self) -> None:
        """For all messages of pages that were read, look up together which causes have been delivered."""
        if self._read:
            self._reached.prepare(self._read)
            self._read = []

    def _bury(self, entry: Entry, cause: Any, out: list[DeliveryOutcome]) -> Iterator[Arrived]:
        """Give up a message that was taken out, and all messages parked under it; returns them."""
        dead = [(entry, cause)]
        for entry, cause in dead:  # `dead` grows in this loop
            out.append(DeliveryOutcome(entry.row, None, DEAD, cause))
            name = entry.arrival.name
            for _, follower in self._parked.pop_between(*self._reached.under(name)):
                self.held -= 1
                dead.append((follower, name))
        return (entry.arrival for entry, _ in dead)

    def _entry(self, stored: tuple[int, tuple[Any, ...], Any]) -> Entry:
        since, fields, row = stored
        arrival = Arrived(*fields)
        self._read.append(arrival)
        return Entry(since, arrival, row)
