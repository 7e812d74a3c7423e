"""How links and a broadcast medium share the frames of a node.

With some protocols a multicast is the same bytes for all its destinations (`Copies.common_frame`;
Kshemkalyani & Singhal 1998, §4.5: hardware multicast). A medium carries such a frame once, in a packet
(wire/packets.py) that has its link number for each destination. Links do not change: every frame is in the
outbox of each peer until that peer has it, and the peer takes it in by its number, once and in order,
whichever way it came.

Invariant  a link leaves out a frame that is claimed for the medium, and all frames behind it. A claim ends
           when the peer has the frame, or when the medium gives it back: then the link carries the frame. So
           a link carries consecutive frames, and the medium affects only how long frames take.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from .link import Sendable
from .transport import Shared


class Claims:
    """The frames of one link that the medium carries, and that the peer may not have yet."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        # Pairs of number and deadline, by number; only the deadline of the first pair is looked at.
        self._open: deque[tuple[int, float]] = deque()

    def __bool__(self) -> bool:
        return bool(self._open)

    @property
    def first(self) -> int | None:
        return self._open[0][0] if self._open else None

    def claim(self, number: int, deadline: float = 0.0) -> None:
        self._open.append((number, deadline))

    def settle(self, number: int) -> int:
        """The peer has the frames up to this number; returns how many of them were claimed."""
        before = len(self._open)
        while self._open and self._open[0][0] <= number:
            self._open.popleft()
        return before - len(self._open)

    def expire(self, now: float) -> int:
        """Give back the first frames, as far as their deadlines have passed; returns how many."""
        before = len(self._open)
        while self._open and self._open[0][1] <= now:
            self._open.popleft()
        return before - len(self._open)

    def give_back(self) -> int:
        """Give all claimed frames back to the link; returns how many."""
        return self.expire(float("inf"))


class Unclaimed:
    """An outbox as its link sees it: only the frames before the first claimed one."""

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


def claimed(
    released: Iterable[Shared],
    claims: Callable[[str, int], Claims | None],
    fits: Callable[[bytes, dict[str, int]], bool],
    deadline: Callable[[str], float] = lambda peer: 0.0,
) -> list[Shared]:
    """Claims for the medium the frames that it carries better, and returns them with their peers. `claims`:
    those of the link with a peer; None if the medium cannot carry a frame of this number there."""
    chosen = []
    for frame, numbers in released:
        of = {peer: mine for peer, number in numbers.items() if (mine := claims(peer, number)) is not None}
        hearing = {peer: numbers[peer] for peer in of}
        # The link would have to wait for frames that are already under way on the medium.
        if (len(of) > 1 or any(of.values())) and fits(frame, hearing):
            for peer, mine in of.items():
                mine.claim(numbers[peer], deadline(peer))
            chosen.append(Shared(frame, hearing))
    return chosen


class Run(NamedTuple):
    """Frames that are consecutive on the links to the same peers, so that one packet can carry them."""

    first: dict[str, int]
    frames: list[bytes]


def runs(shared: Iterable[Shared], most_bytes: Callable[[int], int]) -> Iterator[Run]:
    """Group frames, in their order, into runs; a run has at most `most_bytes(n)` bytes, n being the number of
    its destinations."""
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
