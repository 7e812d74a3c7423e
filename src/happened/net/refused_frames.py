"""Frames that one end of a link sent and the other would not take: what each is, and since when.

A link keeps its order, so what follows such a frame waits behind it. The frame stays in the sender's outbox
and is tried again after a delay that grows, alone: its receiver may have been upgraded or configured anew.

Bounds     one frame for each link.
"""

import time
from typing import NamedTuple


class Quarantined(NamedTuple):
    """A frame that is set aside. `outgoing`: we sent it, and the peer refuses it."""

    peer: str
    outgoing: bool
    number: int  # its link number
    size: int  # bytes
    reason: str
    since: float  # seconds since 1970
    times: int  # how often it was refused


class Quarantine:
    """What is set aside now, by peer and direction."""

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
