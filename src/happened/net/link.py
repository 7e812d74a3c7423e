"""The two ends of a reliable FIFO link, without the wire between them.

Invariant  the frames of a link are numbered 1, 2, … by its sender. An outbox holds exactly those that are
           not acknowledged, each with the number it was given; those up to number `released` may be seen
           by others, because their cause is journaled. An inbox takes each number once and in order, and
           acknowledges none before it is journaled.
Parked     An outbox has its first frames in memory, up to number `loaded`; those behind may be on disk alone
           (parked.py), and can be sent once they are in memory again.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Protocol

from ..core.errors import RemoteProtocolError
from .parked import Parked


class Sendable(Protocol):
    """An outbox as a transport sees it."""

    @property
    def acknowledged(self) -> int: ...
    @property
    def released(self) -> int: ...
    def after(self, number: int, most_bytes: int) -> list[tuple[int, bytes]]: ...


class Outbox:
    """The sending end: `bytes` is the size of the frames in memory that are not acknowledged, released or
    not. `segments` are those of the frames on disk that follow `frames`."""

    __slots__ = ("acknowledged", "bytes", "last", "parked", "released", "stored", "unacknowledged", "written")

    def __init__(
        self, acknowledged: int = 0, frames: Sequence[bytes] = (), segments: Sequence[tuple[int, int]] = ()
    ) -> None:
        self.acknowledged = acknowledged
        self.unacknowledged = deque(frames)
        self.parked = Parked(segments)
        self.last = segments[-1][0] if segments else self.loaded  # the number given last
        self.released = self.last
        self.bytes = sum(map(len, self.unacknowledged))
        self.written = self.last  # of those on disk, frames up to this number can be read
        self.stored = self.last if segments else 0  # the disk has frames up to this number; 0: none

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
        """Append a frame that the caller writes to disk before it is released; returns its number."""
        self.last += 1
        self.stored = self.last
        self.parked.add(self.last, len(frame))
        return self.last

    def wants_parked(self, most_bytes: int) -> bool:
        """Whether frames that are on disk are to be read: there is room for half of `most_bytes`."""
        return self.loaded < self.written and self.bytes <= most_bytes // 2 and bool(self.parked)

    def unpark(self, first: int, frames: Sequence[bytes]) -> None:
        """Take frames from the disk back into memory; those acknowledged meanwhile are passed over."""
        for number, frame in enumerate(frames, first):
            if number == self.loaded + 1:
                self.unacknowledged.append(frame)
                self.bytes += len(frame)
        self.parked.drop(self.loaded)

    def release(self, number: int) -> None:
        """Let the frames up to this number be seen."""
        self.released = max(self.released, min(number, self.last))

    def acknowledge(self, number: int) -> None:
        """Drop the frames up to this number, which are durable elsewhere."""
        if number > self.released:
            raise RemoteProtocolError(f"frame {number} is acknowledged, and {self.released} were sent")
        while self.acknowledged < number and self.unacknowledged:
            self.bytes -= len(self.unacknowledged.popleft())
            self.acknowledged += 1
        if self.acknowledged < number:  # a restart forgot that the peer has more than what is in memory
            self.acknowledged = number
        if self.parked:
            self.parked.drop(self.loaded)

    def after(self, number: int, most_bytes: int) -> list[tuple[int, bytes]]:
        """The released frames after `number` that are in memory and not acknowledged, with their numbers: at
        least one if there is one, and no more once `most_bytes` are reached."""
        number = max(number, self.acknowledged)
        if number >= self.released:  # most often: whoever sends asks until there is no more
            return []
        taken = []
        frames = islice(self.unacknowledged, number - self.acknowledged, self.released - self.acknowledged)
        for each, frame in enumerate(frames, number + 1):
            taken.append((each, frame))
            most_bytes -= len(frame)
            if most_bytes <= 0:
                break
        return taken

    def frames(self) -> Iterator[bytes]:
        """Those in memory."""
        return iter(self.unacknowledged)


class Inbox:
    """The receiving end: how far a peer's frames have come."""

    __slots__ = ("durable", "received_through")

    def __init__(self, received_through: int = 0) -> None:
        self.received_through = received_through  # the engine has had frames up to this number
        self.durable = received_through  # and the journal up to this one

    def is_new(self, number: int) -> bool:
        """Whether a frame of this number is the next one; False if it came before."""
        if number > self.received_through + 1:
            raise RemoteProtocolError(
                f"frame {number} follows {self.received_through}: those between are missing"
            )
        return number > self.received_through
