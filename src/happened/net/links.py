"""All links of a process: what is to be sent on each, how far each has come, and which have too much.

Invariant  `full` has exactly the links that have more than their bound, so that nobody has to look at all of
           them for each message: `full_above` bytes, and `parked_above` more if they may park.
Parked     Frames beyond `full_above` bytes go to disk where `may_park` says so. A cut has them for the
           journal, which writes them with the batch that they follow from; until then they are in memory.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from ..core.effects import Send
from .link import Inbox, Outbox
from .lives import Lives
from .parked import Parking

EVERYTHING = (1 << 63) - 1
"""Above every link number."""


class Links:
    """Both ends of the link with each of these processes."""

    def __init__(self, peers: Iterable[int]) -> None:
        self.outboxes = {link: Outbox() for link in peers}
        self.inboxes = {link: Inbox() for link in self.outboxes}
        self.held = dict.fromkeys(self.outboxes, 0)  # messages from there that wait for others
        self.held_in_all = 0
        self.lives = Lives()
        self.full_above = sys.maxsize
        self.full: set[int] = set()
        self.parked: set[int] = set()  # links that have frames on disk alone
        self.parking_bytes = 0  # of frames that go to disk with the next batch
        self._parking: dict[int, list[tuple[int, bytes]]] = {}
        self._freed: dict[int, int] = {}  # links whose frames on disk are needed no more, up to which number
        self._parked_above = 0
        self._may_park: Callable[[int], bool] = lambda link: False
        self._out: set[int] = set()  # links on which we have sent since the last cut
        self.came: set[int] = set()  # links on which frames were taken since then

    def open(self, link: int) -> None:
        """Begin anew with this process."""
        if link in self.outboxes:
            self._drop_parked(link)
            self.held_in_all -= self.held[link]
        self.outboxes[link], self.inboxes[link], self.held[link] = Outbox(), Inbox(), 0
        self.lives.open(link)
        self.full.discard(link)

    def count_held(self, link: int, more: int) -> None:
        """So many more messages from there wait for others, or so many fewer."""
        self.held[link] += more
        self.held_in_all += more

    def empty(self, link: int) -> None:
        """Drop what was to be sent to a process that will never take it; numbers go on."""
        self._drop_parked(link)
        self.outboxes[link] = Outbox(self.outboxes[link].last)
        self.full.discard(link)

    def has_much(self, link: int) -> bool:
        """Whether what is to be sent there fills an outbox."""
        return link in self.parked or self.outboxes[link].bytes > self.full_above

    def _drop_parked(self, link: int) -> None:
        self.parked.discard(link)
        self.parking_bytes -= sum(len(frame) for _, frame in self._parking.pop(link, ()))
        if self.outboxes[link].stored:
            self._freed[link] = EVERYTHING

    def bound(self, most: int, parked: int = 0, may_park: Callable[[int], bool] | None = None) -> None:
        """Keep in `full` the links that have more bytes than `most`, and more than `parked` besides where
        frames may be parked."""
        self.full_above, self._parked_above = most, parked
        if may_park is not None:
            self._may_park = may_park
        self._measure_all()

    def _measure_all(self) -> None:
        self.full = {link for link in self.outboxes if self.weight(link) > self.full_above}
        self.parked = {link for link, outbox in self.outboxes.items() if outbox.parked}

    def weight(self, link: int) -> int:
        """The bytes of a link that count towards the limit of an outbox."""
        outbox = self.outboxes[link]
        weight = outbox.bytes + outbox.parked.bytes
        if weight > self.full_above and self._may_park(link):
            weight -= self._parked_above
        return weight

    def put(self, link: int, frame: bytes) -> int:
        """Send a frame once its cause is durable; returns its link number."""
        outbox = self.outboxes[link]
        if outbox.bytes <= self.full_above and link not in self.parked:
            number = outbox.put(frame)
        elif link in self.parked or self._may_park(link):
            number = outbox.park(frame)
            self.parked.add(link)
            self._parking.setdefault(link, []).append((number, frame))
            self.parking_bytes += len(frame)
        else:
            number = outbox.put(frame)
        if (outbox.bytes > self.full_above or self.parked) and self.weight(link) > self.full_above:
            self.full.add(link)
        self._out.add(link)
        return number

    def put_each(self, sends: Sequence[Send[Any]], frames: Sequence[bytes]) -> list[int]:
        """The same for the frames of several sends; returns their link numbers."""
        numbers, outboxes = [], self.outboxes
        for (link, _), frame in zip(sends, frames, strict=True):
            outbox = outboxes[link]
            if self.parked or outbox.bytes + len(frame) > self.full_above:
                numbers.append(self.put(link, frame))
            else:  # nearly always: what `put` does then, without the call
                outbox.unacknowledged.append(frame)
                outbox.bytes += len(frame)
                outbox.last += 1
                numbers.append(outbox.last)
                self._out.add(link)
        return numbers

    def free(self, link: int, number: int) -> bool:
        """Drop our frames up to this number, which the peer has; False if they were dropped before."""
        outbox = self.outboxes[link]
        if number <= outbox.acknowledged:
            return False
        outbox.acknowledge(number)
        self._measure(link, outbox)
        if outbox.stored:
            self._freed[link] = max(number, self._freed.get(link, 0))
            if number >= outbox.stored:
                outbox.stored = 0
        return True

    def _measure(self, link: int, outbox: Outbox) -> None:
        """Frames have gone, or are back from disk: a segment that is partly back counts in both places."""
        if not outbox.parked:
            self.parked.discard(link)
        if self.weight(link) > self.full_above:
            self.full.add(link)
        else:
            self.full.discard(link)

    def unpark(self, link: int, first: int, frames: list[bytes]) -> None:
        """Frames from this number on are back from disk."""
        outbox = self.outboxes[link]
        outbox.unpark(first, frames)
        self._measure(link, outbox)

    def on_disk(self) -> dict[int, tuple[int, int]]:
        """Per link, the numbers after which and up to which frames are on disk alone."""
        return {link: (self.outboxes[link].loaded, self.outboxes[link].last) for link in self.parked}

    def cut(self) -> tuple[dict[int, int], dict[int, int], Parking | None]:
        """Per link the last numbers that we gave and took, where there are any since the last cut, and what
        the next batch does to the frames on disk."""
        released, received, parking = {}, {}, None
        for link in self._out:
            released[link] = self.outboxes[link].last
        for link in self.came:
            received[link] = self.inboxes[link].received_through
        self._out.clear()
        self.came.clear()
        if self._parking or self._freed:
            parking = Parking(self._freed, self._parking)
            self._freed, self._parking, self.parking_bytes = {}, {}, 0
        return released, received, parking

    def note_durable(self, received: Mapping[int, int], parking: Parking | None) -> None:
        """The journal has what came up to these numbers, and what was parked."""
        for link, number in received.items():
            self.inboxes[link].durable = number
        if parking is not None:
            for link, frames in parking.frames.items():
                self.outboxes[link].written = frames[-1][0]

    def state(self) -> tuple[dict[str, Any], list[bytes]]:
        """What to write of them, and the frames in memory in the order in which `restore` takes them."""
        links: dict[int, list[Any]] = {}
        blobs: list[bytes] = []
        for link, outbox in self.outboxes.items():
            frames = list(outbox.frames())
            blobs += frames
            links[link] = [outbox.acknowledged, list(map(len, frames)), self.inboxes[link].received_through]
            if outbox.parked:
                links[link].append(outbox.parked.segments())
        return {"ends": links, "lives": self.lives.state()}, blobs

    def restore(self, state: dict[str, Any], take: Callable[[int], bytes]) -> None:
        self.lives.restore(state["lives"])
        self.outboxes, self.inboxes = {}, {}
        for key, (acknowledged, lengths, received, *parked) in state["ends"].items():
            frames = [take(length) for length in lengths]
            self.outboxes[int(key)] = Outbox(acknowledged, frames, [tuple(each) for each in chain(*parked)])
            self.inboxes[int(key)] = Inbox(received)
        self.held = dict.fromkeys(self.outboxes, 0)
        self.held_in_all = 0
        self._measure_all()
