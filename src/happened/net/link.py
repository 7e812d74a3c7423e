"""Reliable FIFO links, without the network: the two ends of a link, and all links of one process.

Invariant  the sender of a link numbers its frames 1, 2, … An outbox holds exactly the frames that are not
           acknowledged, each with its number; frames up to number `released` may be sent, because the
           inputs that caused them are journaled. An inbox takes each number once and in order, and
           acknowledges none before it is journaled.
Parked     An outbox has its first frames in memory, up to number `loaded`; later ones may be on disk alone,
           and can be sent once they are in memory again. At a cut, newly parked frames go to the journal,
           which writes them with the batch that caused them; until then they are in memory.
"""

import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple, Protocol

from ..core.effects import Send
from ..core.errors import RemoteProtocolError
from .lives import Lives

SEGMENT = 256 << 10
EVERYTHING = (1 << 63) - 1
"""A number above every link number."""


class Parking(NamedTuple):
    """How a batch changes the frames on disk: it first deletes `freed`, then adds `frames`.

    freed    per link: frames up to this number are no longer needed
    frames   per link: new frames with their numbers, in order
    """

    freed: Mapping[int, int]
    frames: Mapping[int, list[tuple[int, bytes]]]


class Parked:
    """The frames of an outbox that are only on disk, as the last number and the bytes of each segment.

    Bounds     a pair of numbers for about SEGMENT bytes of frames. The frames of a segment count until its
               last one is acknowledged or back in memory: `bytes` is too high by at most a segment, and never
               too low.
    """

    __slots__ = ("_segments", "bytes")

    def __init__(self, segments: Iterable[tuple[int, int]] = ()) -> None:
        self._segments = deque((last, size) for last, size in segments)
        self.bytes = sum(size for _, size in self._segments)

    def __bool__(self) -> bool:
        return bool(self._segments)

    def add(self, number: int, size: int) -> None:
        self.bytes += size
        if self._segments and self._segments[-1][1] < SEGMENT:
            size += self._segments.pop()[1]
        self._segments.append((number, size))

    def drop(self, through: int) -> None:
        while self._segments and self._segments[0][0] <= through:
            self.bytes -= self._segments.popleft()[1]

    def segments(self) -> list[tuple[int, int]]:
        return list(self._segments)


class Sendable(Protocol):
    """An outbox as a transport sees it."""

    @property
    def acknowledged(self) -> int: ...
    @property
    def released(self) -> int: ...
    def after(self, number: int, most_bytes: int) -> list[tuple[int, bytes]]: ...


class Outbox:
    """The sending end of a link: `bytes` is the size of the frames in memory, released or not."""

    __slots__ = ("acknowledged", "bytes", "last", "parked", "released", "stored", "unacknowledged", "written")

    def __init__(
        self, acknowledged: int = 0, frames: Sequence[bytes] = (), segments: Sequence[tuple[int, int]] = ()
    ) -> None:
        self.acknowledged = acknowledged
        self.unacknowledged = deque(frames)
        self.parked = Parked(segments)
        self.last = segments[-1][0] if segments else self.loaded  # the last number that was given to a frame
        self.released = self.last
        self.bytes = sum(map(len, self.unacknowledged))
        self.written = self.last  # of the frames on disk, those up to this number can be read
        self.stored = self.last if segments else 0  # frames up to this number are stored on disk; 0: none

    def __len__(self) -> int:
        return self.last - self.acknowledged

    @property
    def loaded(self) -> int:
        """The number of the last frame before those on disk."""
        return self.acknowledged + len(self.unacknowledged)

    def put(self, frame: bytes) -> int:
        """Append a frame, which is not released yet; returns its number."""
        self.unacknowledged.append(frame)
        self.bytes += len(frame)
        self.last += 1
        return self.last

    def park(self, frame: bytes) -> int:
        """Append a frame that the caller writes to disk before the frame is released; returns its number."""
        self.last += 1
        self.stored = self.last
        self.parked.add(self.last, len(frame))
        return self.last

    def wants_parked(self, most_bytes: int) -> bool:
        """Whether to read frames back from disk: half of `most_bytes` is free."""
        return self.loaded < self.written and self.bytes <= most_bytes // 2 and bool(self.parked)

    def unpark(self, first: int, frames: Sequence[bytes]) -> None:
        for number, frame in enumerate(frames, first):
            if number == self.loaded + 1:
                self.unacknowledged.append(frame)
                self.bytes += len(frame)
        self.parked.drop(self.loaded)

    def release(self, number: int) -> None:
        self.released = max(self.released, min(number, self.last))

    def acknowledge(self, number: int) -> None:
        """Drop the frames up to this number, which are durable elsewhere."""
        if number > self.released:
            raise RemoteProtocolError(f"frame {number} is acknowledged, and {self.released} were sent")
        if number <= self.acknowledged:
            return
        while self.acknowledged < number and self.unacknowledged:
            self.bytes -= len(self.unacknowledged.popleft())
            self.acknowledged += 1
        self.acknowledged = number  # after a restart the peer may have more frames than are in memory
        if self.parked:
            self.parked.drop(self.loaded)

    def after(self, number: int, most_bytes: int) -> list[tuple[int, bytes]]:
        """The released frames after `number` that are in memory and not acknowledged, with their numbers: at
        least one if there is one, and no further ones once `most_bytes` are reached."""
        number = max(number, self.acknowledged)
        if number >= self.released:  # most often: the sender asks until there are no more
            return []
        taken = []
        frames = islice(self.unacknowledged, number - self.acknowledged, self.released - self.acknowledged)
        for each, frame in enumerate(frames, number + 1):
            taken.append((each, frame))
            most_bytes -= len(frame)
            if most_bytes <= 0:
                break
        return taken


class Inbox:
    """The receiving end of a link: how far the peer's frames have arrived."""

    __slots__ = ("durable", "received_through")

    def __init__(self, received_through: int = 0) -> None:
        self.received_through = received_through  # the engine has taken frames up to this number
        self.durable = received_through  # the journal has them up to this number

    def is_new(self, number: int) -> bool:
        """Whether a frame of this number is the next one; False if it was taken before."""
        if number > self.received_through + 1:
            raise RemoteProtocolError(
                f"frame {number} follows {self.received_through}: those between are missing"
            )
        return number > self.received_through


class Links:
    """Both ends of the link with each of these processes.

    Invariant  `full` has exactly the links above their bound, so that no message needs a look at all links:
               `full_above` bytes, and `parked_above` more if the link's frames may be parked.
    """

    def __init__(self, peers: Iterable[int]) -> None:
        self.outboxes = {link: Outbox() for link in peers}
        self.inboxes = {link: Inbox() for link in self.outboxes}
        self.held = dict.fromkeys(self.outboxes, 0)  # messages that came over the link and wait for others
        self.held_in_all = 0
        self.lives = Lives()
        self.full_above = sys.maxsize
        self.full: set[int] = set()
        self.parked: set[int] = set()  # links that have frames on disk alone
        self.parking_bytes = 0  # of frames that the next batch writes to disk
        self._parking: dict[int, list[tuple[int, bytes]]] = {}
        self._freed: dict[int, int] = {}  # per link, frames on disk up to this number are no longer needed
        self._parked_above = 0
        self._may_park: Callable[[int], bool] = lambda link: False
        self._out: set[int] = set()  # links on which we have sent since the last cut
        self.came: set[int] = set()  # links on which frames were taken since the last cut

    def open(self, link: int) -> None:
        if link in self.outboxes:
            self._drop_parked(link)
            self.held_in_all -= self.held[link]
        self.outboxes[link], self.inboxes[link], self.held[link] = Outbox(), Inbox(), 0
        self.lives.open(link)
        self.full.discard(link)

    def count_held(self, link: int, more: int) -> None:
        self.held[link] += more
        self.held_in_all += more

    def empty(self, link: int) -> None:
        """Drop the frames for a process that will never take them; the numbering goes on."""
        self._drop_parked(link)
        self.outboxes[link] = Outbox(self.outboxes[link].last)
        self.full.discard(link)

    def has_much(self, link: int) -> bool:
        """Whether the frames for this link fill an outbox."""
        return link in self.parked or self.outboxes[link].bytes > self.full_above

    def _drop_parked(self, link: int) -> None:
        self.parked.discard(link)
        self.parking_bytes -= sum(len(frame) for _, frame in self._parking.pop(link, ()))
        if self.outboxes[link].stored:
            self._freed[link] = EVERYTHING

    def bound(self, most: int, parked: int = 0, may_park: Callable[[int], bool] | None = None) -> None:
        """Keep in `full` the links that have more than `most` bytes; more than `parked` bytes besides, if
        `may_park` says that the link's frames may be parked."""
        self.full_above, self._parked_above = most, parked
        self._may_park = may_park or self._may_park
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
        """Append a frame, to be sent once its cause is durable; returns its link number."""
        outbox = self.outboxes[link]
        if link in self.parked or (outbox.bytes > self.full_above and self._may_park(link)):
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
        """`put` for the frames of several sends; returns their link numbers."""
        numbers, outboxes = [], self.outboxes
        for (link, _), frame in zip(sends, frames, strict=True):
            outbox = outboxes[link]
            if self.parked or outbox.bytes + len(frame) > self.full_above:
                numbers.append(self.put(link, frame))
            else:  # nearly always: the same as `put`, without the call
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
        """Update `full` once frames have gone or are back: a segment partly read back counts twice."""
        if not outbox.parked:
            self.parked.discard(link)
        if self.weight(link) > self.full_above:
            self.full.add(link)
        else:
            self.full.discard(link)

    def unpark(self, link: int, first: int, frames: list[bytes]) -> None:
        outbox = self.outboxes[link]
        outbox.unpark(first, frames)
        self._measure(link, outbox)

    def on_disk(self) -> dict[int, tuple[int, int]]:
        """Per link, the number after which frames are on disk alone, and the last such number."""
        return {link: (self.outboxes[link].loaded, self.outboxes[link].last) for link in self.parked}

    def cut(self) -> tuple[dict[int, int], dict[int, int], Parking | None]:
        """Per link, the last numbers that we sent and took since the last cut, if any, and the changes that
        the next batch makes to the frames on disk."""
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
        """The journal has the frames that arrived up to these numbers, and the parked frames."""
        for link, number in received.items():
            self.inboxes[link].durable = number
        if parking is not None:
            for link, frames in parking.frames.items():
                self.outboxes[link].written = frames[-1][0]

    def state(self) -> tuple[dict[str, Any], list[bytes]]:
        """The part of a snapshot's header, and the frames in memory in the order that `restore` takes."""
        links: dict[int, list[Any]] = {}
        blobs: list[bytes] = []
        for link, outbox in self.outboxes.items():
            frames = outbox.unacknowledged
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
