"""The two ends of a reliable FIFO link, without the wire between them.

Invariant  the frames of a link are numbered 1, 2, … by its sender. An outbox holds exactly those that are
           not acknowledged, each with the number it was given; those up to number `released` may be seen
           by others, because their cause is journaled. An inbox takes each number once and in order, and
           acknowledges none before it is journaled.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Protocol

from ..core.errors import RemoteProtocolError


class Sendable(Protocol):
    """An outbox as a transport sees it."""

    @property
    def acknowledged(self) -> int: ...
    @property
    def released(self) -> int: ...
    def after(self, number: int, most_bytes: int) -> list[tuple[int, bytes]]: ...


class Outbox:
    """The sending end: `bytes` is the size of all frames that are not acknowledged, released or not."""

    __slots__ = ("_frames", "acknowledged", "bytes", "last", "released")

    def __init__(self, acknowledged: int = 0, frames: Sequence[bytes] = ()) -> None:
        self.acknowledged = acknowledged
        self._frames = deque(frames)
        self.last = acknowledged + len(self._frames)  # the number given last
        self.released = self.last
        self.bytes = sum(map(len, self._frames))

    def __len__(self) -> int:
        return len(self._frames)

    def put(self, frame: bytes) -> int:
        """Append a frame, which is not released yet; returns its number."""
        self._frames.append(frame)
        self.bytes += len(frame)
        self.last += 1
        return self.last

    def release(self, number: int) -> None:
        """Let the frames up to this number be seen."""
        self.released = max(self.released, min(number, self.last))

    def acknowledge(self, number: int) -> None:
        """Drop the frames up to this number, which are durable elsewhere."""
        if number > self.released:
            raise RemoteProtocolError(f"frame {number} is acknowledged, and {self.released} were sent")
        while self.acknowledged < number:
            self.bytes -= len(self._frames.popleft())
            self.acknowledged += 1

    def after(self, number: int, most_bytes: int) -> list[tuple[int, bytes]]:
        """The released frames after `number` that are not acknowledged, with their numbers: at least one if
        there is one, and no more once `most_bytes` are reached."""
        number = max(number, self.acknowledged)
        taken = []
        frames = islice(self._frames, number - self.acknowledged, self.released - self.acknowledged)
        for each, frame in enumerate(frames, number + 1):
            taken.append((each, frame))
            most_bytes -= len(frame)
            if most_bytes <= 0:
                break
        return taken

    def frames(self) -> Iterator[bytes]:
        return iter(self._frames)


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
