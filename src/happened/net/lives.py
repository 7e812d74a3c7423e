"""Which start of a node numbered which frames: this shows a node that its journal is an old copy.

A node started on an old copy gives new frames numbers under which its peers already have other frames. A
peer's number alone shows that only until the copy has numbered as many. So each start with a journal begins a
*life*, named by random bytes that are journaled before anything is sent. The sender of a link tells the
receiver its lives and where on the link they began. The receiver remembers the life in which the last frame
that it took was numbered, and tells that life and number when the sender calls again. The sender looks for
the life in its own journal:

    the present life                        all is well
    an earlier life, and the peer has no    all is well
    frame beyond the last one of that life
    an earlier life, and the peer has more  the journal is a copy that was made during that life
    a life that it does not know            the journal is a copy that was made before that life began, or
                                            that life went on from a copy

Only one process numbers frames in a life, and a copy of its journal has a first part of these numbers. So
the journal is found to be old exactly if the peer has another frame under some number.

Assumes    a life is durable before its first frame is sent, and a frame together with the life that it was
           numbered in. Peers that tell no lives, and frames whose life is unknown, show nothing.
Invariant  per link, lives are in the order in which they began, each with the number of the last frame
           before it. They include every life that numbered the last frame which the peer has acknowledged,
           or a later frame: the peer cannot name another, unless it has forgotten frames itself.
Bounds     MOST lives for each link. Beyond that, the first one, which a peer that is away remembers, and the
           newest ones are kept. Those between are merged into one entry, FORGOTTEN; for an unknown life the
           journal then counts as old only if the peer has frames beyond the last of the merged lives.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

MOST = 64
TOKEN_BYTES = 8
FORGOTTEN = b""
"""Stands for the names of several merged lives; in what a peer says, for a life that it does not know."""

Life = tuple[bytes, int]
"""A life's name, and the number of the last frame before the life began."""


class Numbered(Protocol):
    """An outbox, as far as lives need it: the numbers of its frames."""

    acknowledged: int
    last: int


class Lives:
    """Our lives, per link, and the lives of the peers that numbered their last frames."""

    __slots__ = ("_heard", "_ours", "_present")

    def __init__(self) -> None:
        self._present = b""  # the name of the present life; empty: there is no journal
        self._ours: dict[int, list[Life]] = {}
        # Per link (number, life): frames of the batch with that number, and later ones, are of that life.
        self._heard: dict[int, list[tuple[int, bytes]]] = {}

    def open(self, link: int) -> None:
        """Begin anew with this process: no frames have been sent in either direction."""
        self._heard.pop(link, None)
        self._ours.pop(link, None)
        if self._present:
            self._ours[link] = [(self._present, 0)]

    # Our own lives.

    def begin(self, life: bytes, outboxes: Mapping[int, Numbered]) -> None:
        """Begin a life: it numbers the next frame on each link."""
        self._present = life
        for link, outbox in outboxes.items():
            lives = self._ours.setdefault(link, [])
            if lives and lives[-1][1] == outbox.last:
                lives.pop()  # that life numbered no frame here
            lives.append((life, outbox.last))
            while len(lives) > 1 and lives[1][1] < outbox.acknowledged:
                del lives[0]
            if len(lives) > MOST:
                lives[1:3] = [(FORGOTTEN, lives[1][1])]

    def ours(self, link: int) -> tuple[Life, ...]:
        return tuple(self._ours.get(link, ()))

    def unknown(self, link: int, number: int, life: bytes) -> str:
        """Why our journal is old, if a peer has our frames up to this number, the last of them numbered in
        this life; empty if nothing shows that. `number` must not be below what the peer has acknowledged."""
        lives = self._ours.get(link)
        if life == FORGOTTEN or not lives:
            return ""
        names = [name for name, _ in lives]
        if life not in names and FORGOTTEN not in names:
            return "of a life that its journal does not know"
        # The life may be any of the merged ones: assume the last one, which gives the weakest evidence.
        following = len(names) - names[::-1].index(life if life in names else FORGOTTEN)
        if following < len(lives) and number > (last := lives[following][1]):
            return f"of a life that ended with frame {last} in its journal"
        return ""

    # Lives of peers.

    def hear(self, link: int, number: int, life: bytes) -> None:
        """Note that the last frame taken from there, with this number, is of this life."""
        self._heard.setdefault(link, []).append((number, life))

    def last_heard(self, link: int) -> bytes:
        heard = self._heard.get(link)
        return heard[-1][1] if heard else b""

    def heard(self, link: int, durable: int) -> bytes:
        """The life of the last frame that is journaled, which has number `durable`."""
        heard = self._heard.get(link, [])
        while len(heard) > 1 and heard[1][0] <= durable:
            del heard[0]
        return heard[0][1] if heard and heard[0][0] <= durable else b""

    # Snapshots.

    def state(self) -> dict[str, Any]:
        """The lives to write into a snapshot."""
        heard = {link: self.last_heard(link).hex() for link in self._heard}
        ours = {link: [[name.hex(), last] for name, last in lives] for link, lives in self._ours.items()}
        return {"present": self._present.hex(), "ours": ours, "heard": heard}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._present = bytes.fromhex(state["present"])
        self._ours = {
            int(link): [(bytes.fromhex(name), last) for name, last in lives]
            for link, lives in state["ours"].items()
        }
        self._heard = {int(k): [(0, bytes.fromhex(life))] for k, life in state["heard"].items()}


def life_of(number: int, lives: Sequence[Life]) -> bytes:
    """The life that numbered this frame, of those that its sender told; empty if it is before them."""
    return next((name for name, last in reversed(lives) if last < number), b"")
