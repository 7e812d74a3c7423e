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


class Claims:
    """The frames of one link that the medium carries and that are not known to be there."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        # Number and deadline, in order of numbers; a deadline counts once it is the first.
        self._open: deque[tuple[int, float]] = deque()

    def __bool__(self) -> bool:
        return bool(self._open)

    @property
    def first(self) -> int | None:
        return self._open[0][0] if self._open else None

    def claim(self, number: int, deadline: float = 0.0) -> None:
        self._open.append((number, deadline))

    def settle(self, number: int) -> int:
        """The frames up to this number are there; returns how many of them were claimed."""
        before = len(self._open)
        while self._open and self._open[0][0] <= number:
            self._open.popleft()
        return before - len(self._open)

    def expire(self, now: float) -> int:
        """Give back those whose deadline has passed; returns how many."""
        before = len(self._open)
        while self._open and self._open[0][1] <= now:
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


def claimed(
    released: Iterable[Shared],
    claims: Callable[[str, int], Claims | None],
    fits: Callable[[bytes, dict[str, int]], bool],
    deadline: Callable[[str], float] = lambda peer: 0.0,
) -> list[Shared]:
    """The frames and peers for which the medium is the better way, which are claimed for it. `claims` are
    those of the link with a peer; None: the medium cannot carry a frame of this number there."""
    chosen = []
    for frame, numbers in released:
        of = {peer: mine for peer, number in numbers.items() if (mine := claims(peer, number)) is not None}
        hearing = {peer: numbers[peer] for peer in of}
        # Behind others that are under way on the medium, the link would have to wait for those.
        if (len(of) > 1 or any(of.values())) and fits(frame, hearing):
            for peer, mine in of.items():
                mine.claim(numbers[peer], deadline(peer))
            chosen.append(Shared(frame, hearing))
    return chosen


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
