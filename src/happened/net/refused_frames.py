"""Frames that one end of a link sent and the other end refused: which frame, why, and since when.

A link keeps its order, so later frames wait behind a refused one. The refused frame stays in the sender's
outbox and is tried again alone, after a growing delay: its receiver may be upgraded or configured anew.

Bounds     one quarantined frame for each link and direction.
"""

import time
from typing import NamedTuple


class Quarantined(NamedTuple):
    """A frame in quarantine. `outgoing`: we sent it, and the peer refuses it."""

    peer: str
    outgoing: bool
    number: int  # its link number
    size: int  # bytes
    reason: str
    since: float  # seconds since 1970
    times: int  # how often it was refused


class Quarantine:
    """The frames in quarantine now, by peer and direction."""

    def __init__(self) -> None:
        self.by_peer: dict[tuple[str, bool], Quarantined] = {}

    def put(self, peer: str, outgoing: bool, number: int, size: int, reason: str) -> None:
        before = self.by_peer.get((peer, outgoing))
        is_again = before is not None and before.number == number
        since, times = (before.since, before.times) if before is not None and is_again else (time.time(), 0)
        self.by_peer[peer, outgoing] = Quarantined(peer, outgoing, number, size, reason, since, times + 1)

    def passed(self, peer: str, outgoing: bool, number: int) -> None:
        """Frames up to this link number were taken after all."""
        before = self.by_peer.get((peer, outgoing))
        if before is not None and number >= before.number:
            del self.by_peer[peer, outgoing]

    def frames(self) -> list[Quarantined]:
        return sorted(self.by_peer.values())
