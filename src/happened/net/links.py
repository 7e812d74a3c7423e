"""All links of a process: what is to be sent on each, how far each has come, and which have too much.

Invariant  `full` has exactly the links whose outboxes have more than `full_above` bytes, so that nobody has
           to look at all of them for each message.
"""

import sys
from collections.abc import Callable, Iterable
from typing import Any

from .link import Inbox, Outbox


class Links:
    """Both ends of the link with each of these processes."""

    def __init__(self, peers: Iterable[int]) -> None:
        self.outboxes = {link: Outbox() for link in peers}
        self.inboxes = {link: Inbox() for link in self.outboxes}
        self.held = dict.fromkeys(self.outboxes, 0)  # messages from there that wait for others
        self.full_above = sys.maxsize
        self.full: set[int] = set()
        self._out: set[int] = set()  # links on which we have sent since the last cut
        self.came: set[int] = set()  # links on which frames were taken since then

    def open(self, link: int) -> None:
        """Begin anew with this process."""
        self.outboxes[link], self.inboxes[link], self.held[link] = Outbox(), Inbox(), 0
        self.full.discard(link)

    def empty(self, link: int) -> None:
        """Drop what was to be sent to a process that will never take it; numbers go on."""
        self.outboxes[link] = Outbox(self.outboxes[link].last)
        self.full.discard(link)

    def bound(self, most: int) -> None:
        """Keep in `full` the links whose outboxes have more bytes than this."""
        self.full_above = most
        self.full = {link for link, outbox in self.outboxes.items() if outbox.bytes > most}

    def put(self, link: int, frame: bytes) -> int:
        """Send a frame once its cause is durable; returns its link number."""
        outbox = self.outboxes[link]
        number = outbox.put(frame)
        if outbox.bytes > self.full_above:
            self.full.add(link)
        self._out.add(link)
        return number

    def put_each(self, frames: Iterable[tuple[int, bytes]]) -> list[int]:
        """The same for frames on several links; returns their link numbers."""
        numbers, outboxes, out = [], self.outboxes, self._out
        for link, frame in frames:
            outbox = outboxes[link]
            numbers.append(outbox.put(frame))
            if outbox.bytes > self.full_above:
                self.full.add(link)
            out.add(link)
        return numbers

    def free(self, link: int, number: int) -> bool:
        """Drop our frames up to this number, which the peer has; False if they were dropped before."""
        outbox = self.outboxes[link]
        if number <= outbox.acknowledged:
            return False
        outbox.acknowledge(number)
        if outbox.bytes <= self.full_above:
            self.full.discard(link)
        return True

    def cut(self) -> tuple[dict[int, int], dict[int, int]]:
        """Per link the last numbers that we gave and took, where there are any since the last cut."""
        released = {link: self.outboxes[link].last for link in self._out}
        received = {link: self.inboxes[link].received_through for link in self.came}
        self._out.clear()
        self.came.clear()
        return released, received

    def state(self) -> tuple[dict[int, list[Any]], list[bytes]]:
        """What to write of them, and the frames in the order in which `restore` takes them."""
        links, blobs = {}, []
        for link, outbox in self.outboxes.items():
            frames = list(outbox.frames())
            blobs += frames
            links[link] = [outbox.acknowledged, list(map(len, frames)), self.inboxes[link].received_through]
        return links, blobs

    def restore(self, links: dict[str, list[Any]], take: Callable[[int], bytes]) -> None:
        self.outboxes, self.inboxes = {}, {}
        for key, (acknowledged, lengths, received) in links.items():
            self.outboxes[int(key)] = Outbox(acknowledged, [take(length) for length in lengths])
            self.inboxes[int(key)] = Inbox(received)
        self.held = dict.fromkeys(self.outboxes, 0)
        self.bound(self.full_above)
