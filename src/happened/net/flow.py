"""Back-pressure: which links are read, given how much a node holds.

The answer is a function of numbers and of the limits (limits.py) alone; the node obeys it. Whether the
application may multicast is decided in sending.py.

Promises   a link is paused only by what reading other links, the application or the disk can reduce, so that
           nodes which wait for one another go on: see `links_to_pause`.
"""

from collections.abc import Iterable, Mapping

from ..core.destinations import pack
from .limits import Limits


class Flow:
    """`relays`: the protocol passes on what others have multicast, so that arrivals fill outboxes.

    `onward` says the same of routes: per link, the set of links that what comes from it is sent on to.
    """

    def __init__(self, limits: Limits, *, relays: bool, onward: Mapping[int, int] | None = None) -> None:
        self._limits = limits
        self.relays = relays
        self.onward = onward or {}

    def links_to_pause(
        self,
        *,
        undelivered: int,
        undelivered_bytes: int,
        staged: int,
        outbox_bytes: Iterable[int],
        held_on_link: Mapping[int, int],
        held: int,
        held_bytes: int = 0,
    ) -> set[int]:
        """The links that are not to be read now, out of those in `held_on_link`, which add up to `held`: each
        arrival asks, so nobody looks at all of them while there is room. `outbox_bytes` are those of outboxes
        that are full.

        All of them while the application or the journal is behind. If only too many messages are held, those
        that have some: a causally first one of what is missing is the next on a link that has none held.
        """
        limits = self._limits
        if (
            undelivered > limits.undelivered
            or undelivered_bytes > limits.undelivered_bytes
            or staged > limits.staged
            or (self.relays and self._relays_too_much(outbox_bytes))
        ):
            return set(held_on_link)
        if held_bytes > limits.held_bytes or held > limits.held:
            return {link for link, held in held_on_link.items() if held}
        return set()

    def routes_to_pause(self, outbox_bytes: Mapping[int, int]) -> set[int]:
        """The links whose messages go on to a peer that is too far behind, of those whose outboxes are full.

        Not those of its own block, or of the peer itself: what comes from them is not sent there. So whoever
        waits does so for somebody further along a tree, and no two nodes wait for each other.
        """
        full = pack(link for link, size in outbox_bytes.items() if self._relays_too_much((size,)))
        return {link for link, onward in self.onward.items() if onward & full}

    def _relays_too_much(self, outbox_bytes: Iterable[int]) -> bool:
        """A process that relays sends what others multicast: only unread links make them wait for a peer that
        is away. The bound is twice the limit of an outbox, which our own multicasts never reach, since two
        nodes must not wait for each other."""
        return max(outbox_bytes, default=0) > 2 * self._limits.outbox + self._limits.frame
