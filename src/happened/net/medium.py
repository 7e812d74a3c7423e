"""How links and a broadcast medium share the frames of a node.

A multicast of some protocols is the same bytes for all its destinations (`Copies.common_frame`; Kshemkalyani
& Singhal 1998, §4.5: hardware multicast). A medium carries such a frame once, in a packet (wire/packets.py)
that has its link number for each destination. So links stay what they are: every frame is in the outbox of
each peer until that peer has it, and is taken in there by its number, once and in order, whichever way it
came.

Invariant  a frame that is claimed for the medium is left out by its link, and so are all frames behind it.
           A claim ends when the peer has the frame, or when the medium gives it back: then the link carries
           it. So a link carries consecutive frames, and nothing depends on the medium but time.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from .link import Sendable
from .transport import Shared


class _Claim(NamedTuple):
    number: int
    deadline: float


class Claims:
    """The frames of one link that the medium carries and that are not known to be there."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: deque[_Claim] = deque()  # in order of numbers; a deadline counts once it is the first

    def __bool__(self) -> bool:
        return bool(self._open)

    @property
    def first(self) -> int | None:
        return self._open[0].number if self._open else None

    def claim(self, number: int, deadline: float = 0.0) -> None:
        self._open.append(_Claim(number, deadline))

    def settle(self, number: int) -> int:
        """The frames up to this number are there; returns how many of them were claimed."""
        before = len(self._open)
        while self._open and self._open[0].number <= number:
            self._open.popleft()
        return before - len(self._open)

    def expire(self, now: float) -> int:
        """Give back those whose deadline has passed; returns how many."""
        before = len(self._open)
        while self._open and self._open[0].deadline <= now:
            self._open.popleft()
        return before - len(self._open)

    def give_back(self) -> int:
        """Give all of them back; returns how many."""
        return self.expire(float("inf"))


class Unclaimed:
    """An outbox as its link sees it: the frames before the first one that is claimed."""

    __slots__ = ("_claims", "_outbox")

    def __init__(self, outbox: Sendable, claims: Claims) -> None:
        self._outbox, self._claims = outbox, claims

    @property
    def acknowledged(self) -> int:
        return self._outbox.acknowledged

    @property
    def released(self) -> int:
        first = self._claims.first
        return self._outbox.released if first is None else min(self._outbox.released, first - 1)

    def after(self, number: int, most_bytes: int) -> list[tuple[int, bytes]]:
        last = self.released
        return [each for each in self._outbox.after(number, most_bytes) if each[0] <= last]


class Run(NamedTuple):
    """Frames that are consecutive on the links to the same peers: they can go in one packet."""

    first: dict[str, int]
    frames: list[bytes]


def runs(shared: Iterable[Shared], most_bytes: Callable[[int], int]) -> Iterator[Run]:
    """Put frames together, in their order, as long as a run has no more bytes than `most_bytes` of the number
    of its destinations."""
    run, size = Run({}, []), 0
    for frame, numbers in shared:
        follows = run.frames and numbers == {peer: at + len(run.frames) for peer, at in run.first.items()}
        if follows and size + len(frame) + 3 <= most_bytes(len(numbers)):
            run.frames.append(frame)
            size += len(frame) + 3
            continue
        if run.frames:
            yield run
        run, size = Run(dict(numbers), [frame]), len(frame)
    if run.frames:
        yield run


class Hearer:
    """What the medium knows of one peer."""

    __slots__ = ("called", "calling", "claims", "early", "heard", "hears_us", "patience")

    def __init__(self) -> None:
        self.claims = Claims()
        self.early: dict[int, bytes] = {}  # frames by link number, whose turn has not come
        self.heard = self.hears_us = float("-inf")  # when its last beacon came, and the last that names us
        self.calling = self.called = False  # our link to it, and its link to us
        self.patience = 1.0  # how many times `repair` seconds it is given
